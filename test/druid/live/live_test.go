package live_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
	"github.com/etcd-volumes/etcd-volumes/test/druid"
	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

const (
	patience = 2 * time.Minute
	pulse    = 200 * time.Millisecond
	nobody   = 65532
)

var (
	shared  *cluster.Cluster
	kube    client.Client
	starter = 3 * time.Minute
)

func TestMain(m *testing.M) {
	cluster.Enter(cluster.Program("./test/druid/cmd/druid", "./test/sidecar/cmd/etcd-sidecar"))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), starter)
	defer cancel()
	var err error
	if shared, err = cluster.Start(ctx, cluster.Options{Images: map[string]node.Image{
		"druid":        {Path: cluster.ProgramPath("druid"), User: nobody},
		"etcd-wrapper": member(),
		"etcdbrctl":    member(),
	}}); err != nil {
		return complain(err)
	}
	defer shared.Stop()
	if err := install(ctx); err != nil {
		return complain(err)
	}
	code := m.Run()
	if code != 0 {
		shared.DumpOnFailure(os.Stderr)
	}
	return code
}

// member is both containers of a member. Its back-offs are shortened: with the real ones, three members need two
// minutes for their first start.
func member() node.Image {
	return node.Image{Path: cluster.ProgramPath("etcd-sidecar"), User: nobody, Env: map[string]string{"SIDECAR_SPEEDUP": "30"}}
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func install(ctx context.Context) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if kube, err = shared.Client(scheme); err != nil {
		return err
	}
	if err := shared.Apply(ctx, string(druid.CRD(false))); err != nil {
		return err
	}
	manifests := druid.Manifests(druid.Protect, "--readiness-initial-delay=1s", "--etcd-status-sync-period=1s", "--sync-retry-interval=1s", "--cleanup-interval=1s")
	if err := shared.Apply(ctx, manifests); err != nil {
		return err
	}
	_, stderr, err := shared.Kubectl(ctx, "-n", druid.Namespace, "rollout", "status", "deployment", druid.Deployment, "--timeout=120s")
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr)
	}
	return nil
}

// newEtcd makes an Etcd with a store in a namespace of its own, and waits until its members are ready.
func newEtcd(t *testing.T, members int32) *api.Etcd {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "live-"}}
	require.NoError(t, kube.Create(t.Context(), namespace))
	require.NoError(t, kube.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "backup"},
		StringData: map[string]string{"hostPath": filepath.Join(shared.Dir, "backups", namespace.Name)},
	}))
	etcd := &api.Etcd{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "main"},
		Spec: api.EtcdSpec{
			Labels: map[string]string{"app": "main"}, Replicas: members, StorageClass: ptr.To("slow"),
			Etcd: api.EtcdConfig{HeartbeatDuration: &metav1.Duration{Duration: time.Second}},
			Backup: api.BackupSpec{
				Store:                &api.StoreSpec{Provider: ptr.To("Local"), Container: ptr.To("bucket"), Prefix: "main", SecretRef: &corev1.SecretReference{Name: "backup"}},
				FullSnapshotSchedule: ptr.To("0 0 * * *"), DeltaSnapshotPeriod: &metav1.Duration{Duration: 5 * time.Second},
			},
		},
	}
	require.NoError(t, kube.Create(t.Context(), etcd))
	return until(t, etcd, "all members are ready and the spec is reconciled", func(e *api.Etcd) bool {
		return condition(e, api.ConditionAllMembersReady) == api.ConditionTrue && ptr.Deref(e.Status.Ready, false) && e.Status.ReadyReplicas == members &&
			ptr.Deref(e.Status.ObservedGeneration, 0) == e.Generation && !e.ReconciliationInProgress()
	})
}

func until(t *testing.T, etcd *api.Etcd, what string, wanted func(*api.Etcd) bool) *api.Etcd {
	t.Helper()
	var now *api.Etcd
	require.Eventually(t, func() bool {
		now = &api.Etcd{}
		return kube.Get(t.Context(), client.ObjectKeyFromObject(etcd), now) == nil && wanted(now)
	}, patience, pulse, "waiting until "+what)
	return now
}

func condition(etcd *api.Etcd, kind api.ConditionType) api.ConditionStatus {
	for _, c := range etcd.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func change(t *testing.T, etcd *api.Etcd, change func(*api.Etcd)) {
	t.Helper()
	now := &api.Etcd{}
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(etcd), now))
	before := now.DeepCopy()
	change(now)
	require.NoError(t, kube.Patch(t.Context(), now, client.MergeFrom(before)))
}

func annotated(key, value string) func(*api.Etcd) {
	return func(e *api.Etcd) { metav1.SetMetaDataAnnotation(&e.ObjectMeta, key, value) }
}

func TestThreeMembersBecomeOneClusterAndItsStatusSaysSo(t *testing.T) {
	etcd := newEtcd(t, 3)
	etcd = until(t, etcd, "backups are ready", func(e *api.Etcd) bool { return condition(e, api.ConditionBackupReady) == api.ConditionTrue })
	leaders := 0
	for _, m := range etcd.Status.Members {
		if m.Role != nil && *m.Role == api.RoleLeader {
			leaders++
		}
	}
	assert.Len(t, etcd.Status.Members, 3)
	assert.Equal(t, 1, leaders)
	assert.Equal(t, api.ConditionFalse, condition(etcd, api.ConditionClusterIDMismatch))
	for _, kind := range []api.ConditionType{api.ConditionReady, api.ConditionAllMembersUpdated, api.ConditionDataVolumesReady} {
		assert.Equal(t, api.ConditionTrue, condition(etcd, kind), kind)
	}
}

func TestComponentsAreGuardedUntilTheAnnotationSaysOtherwise(t *testing.T) {
	etcd := newEtcd(t, 1)
	sts := &appsv1.StatefulSet{}
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(etcd), sts))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: etcd.Namespace, Name: "main-main-0"}}
	for _, obj := range []client.Object{sts, claim} {
		err := kube.Delete(t.Context(), obj, client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%T: %v", obj, err)
		require.ErrorContains(t, err, api.AnnotationUnprotect)
	}

	// With the annotation, the StatefulSet can be taken from its pod, and only druid makes it again.
	change(t, etcd, annotated(api.AnnotationUnprotect, "true"))
	require.Eventually(t, func() bool {
		return kube.Delete(t.Context(), sts, client.PropagationPolicy(metav1.DeletePropagationOrphan)) == nil
	}, patience, pulse)
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(kube.Get(t.Context(), client.ObjectKeyFromObject(sts), &appsv1.StatefulSet{}))
	}, patience, pulse, "the garbage collector gets through")
	pod := &corev1.Pod{}
	require.NoError(t, kube.Get(t.Context(), client.ObjectKey{Namespace: etcd.Namespace, Name: "main-0"}, pod))
	change(t, etcd, annotated(api.AnnotationOperation, api.OperationValueReconcile))
	until(t, etcd, "the request is done", func(e *api.Etcd) bool { return !e.ReconcileRequested() })
	same := &corev1.Pod{}
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(pod), same))
	assert.Equal(t, pod.UID, same.UID, "the pod is adopted as it is")
}

func TestHibernationTakesASnapshotAndDeletionLeavesTheClaim(t *testing.T) {
	etcd := newEtcd(t, 1)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: etcd.Namespace, Name: etcd.FullSnapshotLeaseName()}}
	require.Eventually(t, func() bool {
		return kube.Get(t.Context(), client.ObjectKeyFromObject(lease), lease) == nil && lease.Spec.RenewTime != nil
	}, patience, pulse, "the first full snapshot is recorded")
	first := lease.Spec.RenewTime.Time
	change(t, etcd, func(e *api.Etcd) {
		annotated(api.AnnotationOperation, api.OperationValueReconcile)(e)
		e.Spec.Replicas = 0
	})
	until(t, etcd, "it is hibernated", func(e *api.Etcd) bool {
		return ptr.Deref(e.Status.ObservedGeneration, 0) == e.Generation && e.Status.CurrentReplicas == 0
	})
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	assert.True(t, lease.Spec.RenewTime.After(first), "another full snapshot was taken before")

	require.NoError(t, kube.Delete(t.Context(), etcd))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(kube.Get(t.Context(), client.ObjectKeyFromObject(etcd), &api.Etcd{}))
	}, patience, pulse)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: etcd.Namespace, Name: "main-main-0"}}
	assert.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
}
