package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func TestAConfirmedClassChangeReplacesEveryVolumeAndLosesNothing(t *testing.T) {
	t.Parallel()
	a := begin(t, "class-change")
	before, err := a.Pods(t.Context(), a.namespace, a.name)
	require.NoError(t, err)

	answer := a.changeClass("fast")
	assert.Contains(t, answer, "Warning:", "the plan is told in warnings")
	r := a.ends(1, v1alpha1.Complete, 4*time.Minute)

	a.onClass("fast")
	a.druidFree()
	assert.Equal(t, "3/3", r.Status.Progress)
	assert.True(t, apimeta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionComplete))
	for i, m := range r.Status.Members {
		require.NotNil(t, m.Old, m.Name)
		require.NotNil(t, m.New, m.Name)
		assert.Equal(t, v1alpha1.MemberReplaced, m.Phase)
		assert.NotEqual(t, m.Old.ClaimUID, m.New.ClaimUID)
		assert.NotEqual(t, m.Old.VolumeName, m.New.VolumeName)
		assert.NotEqual(t, m.Old.MemberID, m.New.MemberID)
		assert.Equal(t, m.Old.ClusterID, m.New.ClusterID)
		assert.Equal(t, before[i].UID, m.Old.PodUID)
		assert.NotEmpty(t, m.Evidence)
	}
	a.oldVolumesAreKept(r)
	a.deletesCarryPreconditions()
	a.whoDidItIsOnRecord(r)
	a.druidIsContent()
	a.theRolloutIsARecord()
}

// oldVolumesAreKept: each old volume survives with Retain and our labels, and is listed.
func (a *act) oldVolumesAreKept(r *v1alpha1.VolumeRollout) {
	a.t.Helper()
	retained, err := a.Retained(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	names := map[string]bool{}
	for _, pv := range retained {
		names[pv.Name] = true
		assert.Equal(a.t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy)
		assert.Equal(a.t, "Delete", pv.Labels[volume.OriginalPolicyLabel])
		assert.Equal(a.t, r.Name, pv.Labels[volume.RolloutLabel])
	}
	assert.Len(a.t, names, members)
	listed := map[string]bool{}
	for _, v := range r.Status.RetainedVolumes {
		listed[v.Name] = true
		assert.NotNil(a.t, v.Until, "%s is listed without its time", v.Name)
	}
	assert.Equal(a.t, names, listed)
}

func (a *act) deletesCarryPreconditions() {
	a.t.Helper()
	events := a.audit()
	broken, seen := stage.JudgeDeletes(events)
	assert.Empty(a.t, broken)
	assert.GreaterOrEqual(a.t, seen, 1+2*members, "one StatefulSet, and claim and pod of each member")
}

func (a *act) audit() []auditv1.Event {
	a.t.Helper()
	events, err := stage.AuditEvents(a.AuditLog)
	require.NoError(a.t, err)
	var mine []auditv1.Event
	for _, e := range events {
		if e.ObjectRef != nil && e.ObjectRef.Namespace == a.namespace {
			mine = append(mine, e)
		}
	}
	return mine
}

// whoDidItIsOnRecord: in the stamp, in the rollout, and in the audit log of the API server.
func (a *act) whoDidItIsOnRecord(r *v1alpha1.VolumeRollout) {
	a.t.Helper()
	etcd, err := a.Etcd(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	stamp, err := confirm.Read(etcd.Annotations)
	require.NoError(a.t, err)
	require.NotNil(a.t, stamp)
	assert.NotEmpty(a.t, stamp.ConfirmedBy)
	assert.Equal(a.t, stamp.ConfirmedBy, r.Spec.ConfirmedBy)
	assert.Equal(a.t, stamp.RequestedBy, r.Spec.RequestedBy)
	decisions := map[string]int{}
	for _, e := range a.audit() {
		for key, value := range e.Annotations {
			if strings.HasPrefix(key, "validate.volumes.druid.gardener.cloud/") && strings.HasSuffix(key, "decision") {
				decisions[strings.ToLower(value)]++
			}
		}
	}
	assert.NotEmpty(a.t, decisions, "the audit log holds the decisions")
	assert.Greater(a.t, len(decisions), 1, "a refusal and an approval: %v", decisions)
}

// druidIsContent: once let go, etcd-druid reconciles without an error, for its template equals ours.
func (a *act) druidIsContent() {
	a.t.Helper()
	out, err := a.kubectl("-n", a.namespace, "annotate", "etcd", a.name, "druid.gardener.cloud/operation=reconcile")
	require.NoError(a.t, err, out)
	_, err = a.until(func() (string, bool) {
		etcd, err := a.Etcd(a.within(time.Minute), a.namespace, a.name)
		if err != nil || etcd.Status.LastOperation == nil {
			return "", false
		}
		_, pending := etcd.Annotations["druid.gardener.cloud/operation"]
		return "", !pending && etcd.Status.LastOperation.State == "Succeeded" && *etcd.Status.ObservedGeneration == etcd.Generation
	})
	require.NoError(a.t, err, "etcd-druid does not reconcile the Etcd after the rollout")
}

// theRolloutIsARecord: its spec never changes, and kubectl shows it as documented.
func (a *act) theRolloutIsARecord() {
	a.t.Helper()
	out, err := a.kubectl("-n", a.namespace, "patch", "vr", "main-v1", "--type=merge", "-p", `{"spec":{"operation":"Recreate"}}`)
	require.Error(a.t, err)
	assert.Contains(a.t, out, "never changes")

	out, err = a.kubectl("-n", a.namespace, "get", "vr")
	require.NoError(a.t, err)
	lines := strings.Split(out, "\n")
	assert.Equal(a.t, []string{"NAME", "ETCD", "OPERATION", "PHASE", "PROGRESS", "AGE"}, strings.Fields(lines[0]))
	assert.Equal(a.t, []string{"main-v1", "main", "Replace", "Complete", "3/3"}, strings.Fields(lines[1])[:5])
	out, err = a.kubectl("-n", a.namespace, "wait", "--for=condition=Complete", "vr/main-v1", "--timeout=10s")
	require.NoError(a.t, err, out)
}
