package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

func etcdIn(namespace, name string) *api.Etcd {
	return &api.Etcd{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestHibernationGoesOnAfterASuccessfulSnapshot(t *testing.T) {
	taken := 0
	p := newPresync(func(context.Context, *api.Etcd) error { taken++; return nil })
	var wait *notYet
	require.ErrorAs(t, p.ensure(t.Context(), etcdIn("shoot", "main")), &wait)
	require.NoError(t, p.ensure(t.Context(), etcdIn("shoot", "main")))
	assert.Equal(t, 1, taken)
}

func TestHibernationGoesOnWithoutSnapshotAfterThreeAttempts(t *testing.T) {
	tried := 0
	p := newPresync(func(context.Context, *api.Etcd) error { tried++; return errors.New("no") })
	for range 3 {
		require.Error(t, p.ensure(t.Context(), etcdIn("shoot", "main")))
	}
	require.NoError(t, p.ensure(t.Context(), etcdIn("shoot", "main")))
	assert.Equal(t, 3, tried)
}

func TestSnapshotOfAnotherEtcdOfTheNamespaceIsTakenForOnesOwn(t *testing.T) {
	taken := 0
	p := newPresync(func(context.Context, *api.Etcd) error { taken++; return nil })
	require.Error(t, p.ensure(t.Context(), etcdIn("shoot", "main")))
	require.NoError(t, p.ensure(t.Context(), etcdIn("shoot", "events")), "the flaw of the real one")
	require.Error(t, p.ensure(t.Context(), etcdIn("other", "main")))
	assert.Equal(t, 2, taken)
}

func TestSnapshotNeedsAReadyEtcd(t *testing.T) {
	assert.ErrorIs(t, takeSnapshot(nil)(t.Context(), etcdIn("shoot", "main")), errNotReady)
}
