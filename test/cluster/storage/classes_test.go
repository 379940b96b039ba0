package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestTheClassesAreWhatTheirNamesSay(t *testing.T) {
	type facts struct {
		expandable bool
		binding    storagev1.VolumeBindingMode
		fails      bool
	}
	got := map[string]facts{}
	for _, c := range Classes() {
		params, err := parse(c.Parameters)
		require.NoError(t, err)
		got[c.Name] = facts{*c.AllowVolumeExpansion, *c.VolumeBindingMode, params.failure != ""}
		assert.Equal(t, Provisioner, c.Provisioner)
		assert.Equal(t, corev1.PersistentVolumeReclaimDelete, *c.ReclaimPolicy)
		assert.Empty(t, c.Annotations, "none is the default class")
	}
	assert.Equal(t, map[string]facts{
		"slow":      {expandable: true, binding: storagev1.VolumeBindingWaitForFirstConsumer},
		"fast":      {expandable: true, binding: storagev1.VolumeBindingWaitForFirstConsumer},
		"fixed":     {expandable: false, binding: storagev1.VolumeBindingWaitForFirstConsumer},
		"immediate": {expandable: true, binding: storagev1.VolumeBindingImmediate},
		"broken":    {expandable: true, binding: storagev1.VolumeBindingWaitForFirstConsumer, fails: true},
	}, got)
}

func TestParametersAreUnderstoodOrRefused(t *testing.T) {
	got, err := parse(map[string]string{
		ParameterFailure: "no", ParameterDelay: "2s", ParameterMax: "10Gi",
		ParameterExpandFailure: "never", ParameterExpandDelay: "1m",
	})
	require.NoError(t, err)
	assert.Equal(t, parameters{
		failure: "no", delay: 2 * time.Second, max: new(resource.MustParse("10Gi")),
		expandFailure: "never", expandDelay: time.Minute,
	}, got)

	for given, want := range map[string]string{
		ParameterDelay: `storage class parameter delay: time: invalid duration "x"`,
		ParameterMax:   "storage class parameter max: " + resource.ErrFormatWrong.Error(),
		"dealy":        "storage class parameter dealy: unknown parameter",
	} {
		_, err := parse(map[string]string{given: "x"})
		assert.EqualError(t, err, want)
	}
}
