package health_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/health"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func newEtcd(mods ...func(*api.Etcd)) *api.Etcd {
	etcd := &api.Etcd{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "main", Generation: 1}, Spec: api.EtcdSpec{Replicas: 3}}
	for _, mod := range mods {
		mod(etcd)
	}
	return etcd
}

func lease(name, holder string, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-age)))},
	}
}

func world(leases ...*coordinationv1.Lease) health.World {
	w := health.World{Now: now, Leases: map[string]health.Found[coordinationv1.Lease]{}, ContainersReady: map[string]health.Found[bool]{}}
	for _, l := range leases {
		w.Leases[l.Name] = health.Found[coordinationv1.Lease]{Value: l}
	}
	return w
}

func healthy() health.World {
	w := world(lease("main-0", "1:c:Leader", time.Second), lease("main-1", "2:c:Member", time.Second), lease("main-2", "3:c:Member", time.Second))
	w.StatefulSet.Value = &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "main", Generation: 4},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(3))},
		Status: appsv1.StatefulSetStatus{
			ObservedGeneration: 4, Replicas: 3, ReadyReplicas: 3, CurrentReplicas: 3, UpdatedReplicas: 3, CurrentRevision: "r", UpdateRevision: "r",
		},
	}
	w.VolumeWarnings.Value = ptr.To("")
	return w
}

func TestMemberIsJudgedByTheAgeOfItsLeaseAndThenByItsPod(t *testing.T) {
	yes, no := health.Found[bool]{Value: ptr.To(true)}, health.Found[bool]{Value: ptr.To(false)}
	broken := health.Found[bool]{Err: errors.New("no answer")}
	gone := health.Found[bool]{}
	for name, tc := range map[string]struct {
		age    time.Duration
		pod    health.Found[bool]
		state  api.MemberState
		reason string
	}{
		"fresh lease, pod gone":            {59 * time.Second, gone, api.MemberReady, "LeaseSucceeded"},
		"lease at the threshold, pod gone": {time.Minute, gone, api.MemberReady, "LeaseSucceeded"},
		"old lease, pod gone":              {61 * time.Second, gone, api.MemberNotReady, "ContainersNotReady"},
		"old lease, pod not ready":         {61 * time.Second, no, api.MemberNotReady, "ContainersNotReady"},
		"old lease, pod ready":             {61 * time.Second, yes, api.MemberUnknown, "LeaseExpired"},
		"old lease, pod cannot be read":    {61 * time.Second, broken, api.MemberUnknown, "LeaseExpired"},
		"very old lease, pod ready":        {6*time.Minute + time.Second, yes, api.MemberNotReady, "UnknownGracePeriodExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(lease("main-0", "1:c:Leader", tc.age))
			if tc.pod != gone {
				w.ContainersReady["main-0"] = tc.pod
			}
			assert.Equal(t, []api.MemberStatus{{
				Name: "main-0", ID: ptr.To("1"), Role: ptr.To(api.RoleLeader), Status: tc.state, Reason: tc.reason, LastTransitionTime: metav1.NewTime(now),
			}}, health.Members(newEtcd(), w, health.DefaultThresholds))
		})
	}
}

func TestALeaseThatSaysNothingIsNoMember(t *testing.T) {
	never := lease("main-1", "2:c:Member", 0)
	never.Spec.RenewTime = nil
	nobody := lease("main-2", "", 0)
	nobody.Spec.HolderIdentity = nil
	members := health.Members(newEtcd(), world(lease("main-0", "1:Leader", 0), never, nobody), health.DefaultThresholds)
	require.Len(t, members, 1, "only the lease with holder and renewal is one; the older form of holder counts")
	assert.Equal(t, "1", *members[0].ID)
}

func TestMemberOfPrefixedNameIsFoundByItsPod(t *testing.T) {
	etcd := newEtcd(func(e *api.Etcd) { e.Spec.MemberNamePrefix, e.Spec.Replicas = ptr.To("east"), 1 })
	w := world(lease("east-main-0", "1:c:Leader", 2*time.Minute))
	w.ContainersReady["main-0"] = health.Found[bool]{Value: ptr.To(true)}
	members := health.Members(etcd, w, health.DefaultThresholds)
	require.Len(t, members, 1)
	assert.Equal(t, api.MemberUnknown, members[0].Status)
}

func TestTransitionTimeStaysWhileTheStateStays(t *testing.T) {
	earlier := metav1.NewTime(now.Add(-time.Hour))
	etcd := newEtcd(func(e *api.Etcd) {
		e.Status.Members = []api.MemberStatus{{Name: "main-0", Status: api.MemberReady, LastTransitionTime: earlier}, {Name: "main-1", Status: api.MemberUnknown, LastTransitionTime: earlier}}
	})
	members := health.Members(etcd, world(lease("main-0", "1:c:Leader", 0), lease("main-1", "2:c:Member", 0)), health.DefaultThresholds)
	assert.Equal(t, earlier, members[0].LastTransitionTime)
	assert.Equal(t, metav1.NewTime(now), members[1].LastTransitionTime)
}

func TestConditionsOfMembersFollowTheRealRules(t *testing.T) {
	for name, tc := range map[string]struct {
		states     []api.MemberState
		ready, all string
	}{
		"none":                    {nil, "Unknown/NoMembersInStatus", "Unknown/NoMembersInStatus"},
		"all ready":               {[]api.MemberState{api.MemberReady, api.MemberReady, api.MemberReady}, "True/Quorate", "True/AllMembersReady"},
		"one not registered":      {[]api.MemberState{api.MemberReady, api.MemberReady}, "True/Quorate", "False/NotAllMembersReady"},
		"one not ready":           {[]api.MemberState{api.MemberReady, api.MemberReady, api.MemberNotReady}, "True/Quorate", "False/NotAllMembersReady"},
		"two unknown count ready": {[]api.MemberState{api.MemberReady, api.MemberUnknown, api.MemberUnknown}, "True/Quorate", "False/NotAllMembersReady"},
		"two not ready":           {[]api.MemberState{api.MemberReady, api.MemberNotReady, api.MemberNotReady}, "False/QuorumLost", "False/NotAllMembersReady"},
		"quorum of those known":   {[]api.MemberState{api.MemberReady}, "True/Quorate", "False/NotAllMembersReady"},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := newEtcd(func(e *api.Etcd) {
				for _, s := range tc.states {
					e.Status.Members = append(e.Status.Members, api.MemberStatus{Status: s})
				}
			})
			conditions := short(health.Conditions(etcd, world()))
			assert.Equal(t, tc.ready, conditions["Ready"])
			assert.Equal(t, tc.all, conditions["AllMembersReady"])
		})
	}
}

func TestConditionsOfTheStatefulSetFollowTheRealRules(t *testing.T) {
	for name, tc := range map[string]struct {
		mod              func(*health.World)
		updated, volumes string
	}{
		"settled":          {func(*health.World) {}, "True/AllMembersUpdated", "True/NoWarningsFoundForDataVolumes"},
		"missing":          {func(w *health.World) { w.StatefulSet.Value = nil }, "Unknown/StatefulSetNotFound", "Unknown/StatefulSetNotFound"},
		"not observed":     {func(w *health.World) { w.StatefulSet.Value.Generation = 5 }, "False/NotAllMembersUpdated", "True/NoWarningsFoundForDataVolumes"},
		"rolling":          {func(w *health.World) { w.StatefulSet.Value.Status.UpdateRevision = "new" }, "False/NotAllMembersUpdated", "True/NoWarningsFoundForDataVolumes"},
		"warning":          {func(w *health.World) { w.VolumeWarnings.Value = ptr.To("no such class") }, "True/AllMembersUpdated", "False/FoundWarningsForDataVolumes"},
		"events forbidden": {func(w *health.World) { w.VolumeWarnings.Err = errors.New("forbidden") }, "True/AllMembersUpdated", "Unknown/UnableToFetchWarningEventsForDataVolumes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy()
			tc.mod(&w)
			conditions := short(health.Conditions(newEtcd(), w))
			assert.Equal(t, tc.updated, conditions["AllMembersUpdated"])
			assert.Equal(t, tc.volumes, conditions["DataVolumesReady"])
		})
	}
}

func TestClusterIDMismatchSeesTwoClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		mod  func(*health.World)
		want string
	}{
		"same cluster": {func(*health.World) {}, "False/NoClusterIDMismatchDetected"},
		"two clusters": {func(w *health.World) { put(w, lease("main-2", "3:d:Member", 0)) }, "True/MultipleClusterIDsDetected"},
		"nonsense":     {func(w *health.World) { put(w, lease("main-2", "x", 0)) }, "Unknown/UnableToParseLeaseHolderIdentity"},
		"not readable": {func(w *health.World) {
			w.Leases["main-1"] = health.Found[coordinationv1.Lease]{Err: errors.New("no answer")}
		}, "Unknown/UnableToFetchLease"},
		"older sidecar": {func(w *health.World) { *w = world(lease("main-0", "1:Leader", 0)) }, "Unknown/NoClusterIDDetected"},
		"unknown member is not asked": {func(w *health.World) {
			put(w, lease("main-2", "3:d:Member", 2*time.Minute))
			w.ContainersReady["main-2"] = health.Found[bool]{Value: ptr.To(true)}
		}, "False/NoClusterIDMismatchDetected"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy()
			tc.mod(&w)
			etcd := newEtcd()
			health.Apply(etcd, w, health.DefaultThresholds)
			assert.Equal(t, tc.want, short(etcd.Status.Conditions)["ClusterIDMismatch"])
		})
	}
}

func TestBackupReadyFollowsTheSnapshotLeases(t *testing.T) {
	const period = time.Minute
	snap := func(name string, age time.Duration) *coordinationv1.Lease { return lease(name, "100", age) }
	never := func(name string) *coordinationv1.Lease {
		l := lease(name, "", 0)
		l.Spec.HolderIdentity, l.Spec.RenewTime = nil, nil
		return l
	}
	for name, tc := range map[string]struct {
		leases []*coordinationv1.Lease
		before api.ConditionStatus
		want   string
	}{
		"both in time":                    {[]*coordinationv1.Lease{snap("main-full-snap", time.Hour), snap("main-delta-snap", period)}, "", "True/BackupSucceeded"},
		"no leases":                       {nil, "", "Unknown/Unknown"},
		"never renewed":                   {[]*coordinationv1.Lease{never("main-full-snap"), never("main-delta-snap")}, "", "Unknown/Unknown"},
		"deltas only, young lease":        {[]*coordinationv1.Lease{never("main-full-snap"), snap("main-delta-snap", period)}, "", "True/BackupSucceeded"},
		"full only":                       {[]*coordinationv1.Lease{snap("main-full-snap", time.Hour), never("main-delta-snap")}, "", "Unknown/Unknown"},
		"full too old":                    {[]*coordinationv1.Lease{snap("main-full-snap", 25*time.Hour), snap("main-delta-snap", period)}, "True", "Unknown/Unknown"},
		"deltas late, was true":           {[]*coordinationv1.Lease{snap("main-full-snap", time.Hour), snap("main-delta-snap", 4*period)}, "True", "Unknown/Unknown"},
		"deltas late, was unknown":        {[]*coordinationv1.Lease{snap("main-full-snap", time.Hour), snap("main-delta-snap", 4*period)}, "Unknown", "False/BackupFailed"},
		"deltas a little late, was false": {[]*coordinationv1.Lease{snap("main-full-snap", time.Hour), snap("main-delta-snap", 5*period/2)}, "False", "Unknown/Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := newEtcd(withStore(period))
			if tc.before != "" {
				etcd.Status.Conditions = []api.Condition{{Type: api.ConditionBackupReady, Status: tc.before}}
			}
			assert.Equal(t, tc.want, short(health.Conditions(etcd, world(tc.leases...)))["BackupReady"])
		})
	}
}

func TestWithoutStoreThereIsNoBackupReady(t *testing.T) {
	etcd := newEtcd(func(e *api.Etcd) {
		e.Status.Conditions = []api.Condition{{Type: api.ConditionBackupReady, Status: api.ConditionTrue}}
	})
	assert.NotContains(t, short(health.Conditions(etcd, world())), "BackupReady", "it also goes when there was one")
}

func TestFullSnapshotsMayBeAsOldAsTheirScheduleSays(t *testing.T) {
	etcd := newEtcd(withStore(time.Minute), func(e *api.Etcd) { e.Spec.Backup.FullSnapshotSchedule = ptr.To("0 */2 * * *") })
	w := func(age time.Duration) health.World {
		return world(lease("main-full-snap", "1", age), lease("main-delta-snap", "1", time.Second))
	}
	assert.Equal(t, "True/BackupSucceeded", short(health.Conditions(etcd, w(119*time.Minute)))["BackupReady"])
	assert.Equal(t, "Unknown/Unknown", short(health.Conditions(etcd, w(121*time.Minute)))["BackupReady"])
}

func TestConditionsOfOthersAreKeptAndTheListIsSorted(t *testing.T) {
	foreign := api.Condition{Type: "VolumesChanging", Status: api.ConditionTrue, Reason: "R", Message: "m", LastTransitionTime: metav1.NewTime(now), LastUpdateTime: metav1.NewTime(now)}
	etcd := newEtcd(func(e *api.Etcd) { e.Status.Conditions = []api.Condition{foreign} })
	conditions := health.Conditions(etcd, healthy())
	assert.Contains(t, conditions, foreign)
	assert.IsIncreasing(t, kinds(conditions))
}

func TestHibernatedClusterKeepsTheStatusOfItsConditions(t *testing.T) {
	earlier := metav1.NewTime(now.Add(-time.Hour))
	etcd := newEtcd(func(e *api.Etcd) {
		e.Spec.Replicas = 0
		e.Status.Conditions = []api.Condition{{Type: api.ConditionReady, Status: api.ConditionTrue, LastTransitionTime: earlier}}
	})
	conditions := short(health.Conditions(etcd, healthy()))
	assert.Equal(t, "True/NotChecked", conditions["Ready"])
	assert.Equal(t, "Unknown/NotChecked", conditions["AllMembersReady"])
}

func TestReadyLooksAtTheStatefulSetsOwnReplicasWhileTheSpecIsPending(t *testing.T) {
	for name, tc := range map[string]struct {
		observed *int64
		want     bool
	}{
		"spec reconciled": {ptr.To(int64(1)), false},
		"spec pending":    {ptr.To(int64(0)), true},
		"never":           {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := newEtcd(func(e *api.Etcd) { e.Spec.Replicas, e.Status.ObservedGeneration = 5, tc.observed })
			health.Apply(etcd, healthy(), health.DefaultThresholds)
			assert.Equal(t, tc.want, *etcd.Status.Ready)
		})
	}
}

func TestWithoutStatefulSetNothingIsReadyButTheReplicasStay(t *testing.T) {
	etcd := newEtcd()
	health.Apply(etcd, healthy(), health.DefaultThresholds)
	require.True(t, *etcd.Status.Ready)
	gone := healthy()
	gone.StatefulSet.Value = nil
	health.Apply(etcd, gone, health.DefaultThresholds)
	assert.False(t, *etcd.Status.Ready)
	assert.Zero(t, etcd.Status.ReadyReplicas)
	assert.Equal(t, int32(3), etcd.Status.Replicas)
	assert.Equal(t, "app.kubernetes.io/managed-by=etcd-druid,app.kubernetes.io/part-of=main", *etcd.Status.Selector)
}

func withStore(period time.Duration) func(*api.Etcd) {
	return func(e *api.Etcd) {
		e.Spec.Backup = api.BackupSpec{Store: &api.StoreSpec{Provider: ptr.To("Local")}, DeltaSnapshotPeriod: &metav1.Duration{Duration: period}}
	}
}

func put(w *health.World, l *coordinationv1.Lease) {
	w.Leases[l.Name] = health.Found[coordinationv1.Lease]{Value: l}
}

// short is status/reason by type.
func short(conditions []api.Condition) map[string]string {
	out := map[string]string{}
	for _, c := range conditions {
		out[string(c.Type)] = string(c.Status) + "/" + c.Reason
	}
	return out
}

func kinds(conditions []api.Condition) []string {
	out := make([]string, 0, len(conditions))
	for _, c := range conditions {
		out = append(out, string(c.Type))
	}
	return out
}
