package volume_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func TestNamesAreThoseThatEtcdDruidAndTheStatefulSetGive(t *testing.T) {
	prefixed := fixture.Etcd(func(e *volume.Etcd) {
		prefix := "blue"
		e.Spec.MemberNamePrefix = &prefix
	})
	tests := map[string]string{
		"main-2":                        volume.PodName("main", 2),
		"data-main-2":                   volume.ClaimName("data", "main", 2),
		"main-0":                        volume.MemberName(fixture.Etcd(), 0),
		"blue-main-0":                   volume.MemberName(prefixed, 0),
		"main-peer":                     volume.PeerServiceName("main"),
		"main-client":                   volume.ClientServiceName("main"),
		"main-1.main-peer.shop.svc":     volume.MemberHost("shop", "main", 1),
		"druid.gardener.cloud/v1alpha1": volume.GroupVersion.String(),
	}
	for want, got := range tests {
		assert.Equal(t, want, got)
	}
}

func TestAnnotationAndLabelKeysAreQualifiedNames(t *testing.T) {
	for _, key := range []string{
		volume.ConfirmAnnotation, volume.ConfirmedByAnnotation, volume.StampAnnotation, volume.RecreateAnnotation, volume.ReleaseAnnotation,
		volume.RecoverAnnotation, volume.SuspendAnnotation, volume.DisableProtectionAnnotation, volume.EtcdLabel,
		volume.EtcdNamespaceLabel, volume.MemberLabel, volume.RolloutLabel, volume.OriginalPolicyLabel, volume.ClaimUIDAnnotation,
		volume.PodUIDAnnotation, volume.MemberIDAnnotation, volume.ClusterIDAnnotation, volume.RetainedUntilAnnotation,
	} {
		assert.Empty(t, validation.IsQualifiedName(key), key)
	}
}

func TestAStoreWithoutAProviderIsNone(t *testing.T) {
	none := ""
	assert.True(t, fixture.Etcd().HasStore())
	assert.False(t, fixture.Etcd(func(e *volume.Etcd) { e.Spec.Backup.Store = nil }).HasStore())
	assert.False(t, fixture.Etcd(func(e *volume.Etcd) { e.Spec.Backup.Store.Provider = nil }).HasStore())
	assert.False(t, fixture.Etcd(func(e *volume.Etcd) { e.Spec.Backup.Store.Provider = &none }).HasStore())
}

func TestTheSchemeKnowsTheEtcd(t *testing.T) {
	scheme := runtime.NewScheme()

	require.NoError(t, volume.AddToScheme(scheme))

	assert.True(t, scheme.Recognizes(volume.GroupVersion.WithKind("Etcd")))
	assert.True(t, scheme.Recognizes(volume.GroupVersion.WithKind("EtcdList")))
}
