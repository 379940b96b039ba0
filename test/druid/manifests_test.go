package druid_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/druid"
)

func TestManifestsDecodeStrictly(t *testing.T) {
	objects, err := druid.Objects(druid.Protect, "--enable-auto-reconcile")
	require.NoError(t, err)
	assert.Len(t, objects, 7)
	for _, obj := range objects {
		typed, err := scheme.New(obj.GroupVersionKind())
		require.NoError(t, err)
		assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, typed, true), obj.GetKind())
	}
}

func TestWebhookConfigurationComesWithProtectionOnly(t *testing.T) {
	assert.Contains(t, druid.Manifests(druid.Protect), "kind: ValidatingWebhookConfiguration")
	assert.Contains(t, druid.Manifests(druid.Protect), `args: ["--enable-protection-webhook"]`)
	assert.NotContains(t, druid.Manifests(), "kind: ValidatingWebhookConfiguration")
	assert.Contains(t, druid.Manifests(), "args: []")
}

func TestManifestsAreAcceptedByTheServer(t *testing.T) {
	w := newWorld(t)
	objects, err := druid.Objects(druid.Protect)
	require.NoError(t, err)
	for _, obj := range objects {
		if obj.GetNamespace() != "" {
			obj.SetNamespace(w.namespace)
		}
		assert.NoError(t, w.Create(t.Context(), obj, client.DryRunAll), obj.GetKind())
	}
}
