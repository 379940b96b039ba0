package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/test/druid"
)

func TestBadCommandLineIsOneLineAndExitCodeTwo(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"superfluous"}, {"--etcd-status-sync-period=soon"}} {
		var stderr bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), args, &stderr), args)
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	}
}

func TestManifestsUseFlagsThatTheCommandHas(t *testing.T) {
	objects, err := druid.Objects(druid.Protect, "--exempt-service-accounts=a,b", "--enable-auto-reconcile", "--readiness-initial-delay=1s")
	require.NoError(t, err)
	o := &options{}
	flags := o.flags()
	for _, obj := range objects {
		if obj.GetKind() != "Deployment" {
			continue
		}
		containers := obj.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
		var args []string
		for _, arg := range containers[0].(map[string]any)["args"].([]any) {
			args = append(args, arg.(string))
		}
		require.NoError(t, flags.Parse(args))
	}
	assert.True(t, o.protection)
	assert.True(t, o.controller.AutoReconcile)
	assert.Equal(t, []string{"a", "b"}, o.exempt)
	assert.Equal(t, druid.Account, o.account)
	assert.Equal(t, druid.Namespace, o.namespace)
	assert.Equal(t, druid.Service, o.service)
	assert.Equal(t, druid.Service, o.configuration)
}

func TestDefaultsAreThoseOfTheRealOne(t *testing.T) {
	o := &options{}
	require.NoError(t, o.flags().Parse(nil))
	assert.False(t, o.controller.AutoReconcile)
	assert.False(t, o.protection)
	assert.Equal(t, "15s", o.controller.StatusSyncPeriod.String())
	assert.Equal(t, "15s", o.controller.ReadinessDelay.String())
	assert.Equal(t, "1m0s", o.controller.Thresholds.Unknown.String())
	assert.Equal(t, "5m0s", o.controller.Thresholds.NotReady.String())
	assert.Equal(t, []string{"system:serviceaccount:kube-system:generic-garbage-collector"}, o.exempt)
}
