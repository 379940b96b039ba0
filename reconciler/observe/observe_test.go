package observe

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/test/fixture"
)

func entry(mods ...func(*admissionv1.ValidatingWebhook)) *admissionv1.ValidatingWebhookConfiguration {
	w := admissionv1.ValidatingWebhook{
		Name: DoorEntry, FailurePolicy: ptr.To(admissionv1.Fail), ClientConfig: admissionv1.WebhookClientConfig{CABundle: []byte("ca")},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"druid.gardener.cloud"}, APIVersions: []string{"*"}, Resources: []string{"etcds"}},
		}},
	}
	for _, mod := range mods {
		mod(&w)
	}
	return &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{w}}
}

func named(operator metav1.LabelSelectorOperator, names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: operator, Values: names}}}
}

func TestTheDoorStandsWhereItsSelectorsLetEveryEtcdThrough(t *testing.T) {
	assert.True(t, doorOf(entry(func(w *admissionv1.ValidatingWebhook) {
		w.ObjectSelector, w.NamespaceSelector = &metav1.LabelSelector{}, named(metav1.LabelSelectorOpNotIn, "etcd-volumes-system")
		w.MatchConditions = []admissionv1.MatchCondition{{Name: "volumes-or-their-annotations"}}
	}), "shop").Stands)
	assert.True(t, doorOf(entry(func(w *admissionv1.ValidatingWebhook) { w.NamespaceSelector = &metav1.LabelSelector{} }), "shop").Stands)
}

// noting is a reader that remembers what was read, in order.
type noting struct {
	client.Reader
	read []string
}

func (n *noting) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	n.read = append(n.read, fmt.Sprintf("%T", obj))
	return n.Reader.Get(ctx, key, obj, opts...)
}

func TestAClaimThatIsGoingIsLookedAtAgainAfterThePodThatMayLiveOnItsSuccessor(t *testing.T) {
	etcd := fixture.Etcd()
	sim := fixture.NewSimulation(t, etcd, fixture.World(etcd)...)
	live := sim.Claims()[0]
	stale := claimOf(&live, "etcd")
	stale.UID, stale.Deleting, stale.VolumeName = "predecessor", true, "pvc-of-the-predecessor"
	m := plan.Member{Name: "main-0", PodName: "main-0", Claim: stale}
	reader := &noting{Reader: sim.Client}
	require.NoError(t, Observer{Reader: reader}.memberParts(t.Context(), fixture.Namespace, &m))
	assert.Equal(t, []string{"*v1.Pod", "*v1.PersistentVolumeClaim", "*v1.PersistentVolume", "*v1.Lease"}, reader.read)
	assert.Equal(t, string(live.UID), m.Claim.UID)
	assert.Equal(t, stale.Spec, m.Claim.Spec)
	require.NotNil(t, m.Volume)
	assert.Equal(t, string(live.UID), m.Volume.BoundClaimUID)

	stale.Name = "gone"
	m = plan.Member{Name: "main-0", PodName: "main-0", Claim: stale}
	require.NoError(t, Observer{Reader: sim.Client}.memberParts(t.Context(), fixture.Namespace, &m))
	assert.Nil(t, m.Claim)
	assert.Nil(t, m.Volume)
}

func TestTheDoorStandsOnlyIfItFailsClosedAndSeesUpdates(t *testing.T) {
	assert.Equal(t, plan.Door{Stands: true}, doorOf(entry(), "shop"))
	for name, mod := range map[string]func(*admissionv1.ValidatingWebhook){
		"fails open":   func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = ptr.To(admissionv1.Ignore) },
		"no policy":    func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = nil },
		"no CA":        func(w *admissionv1.ValidatingWebhook) { w.ClientConfig.CABundle = nil },
		"no update":    func(w *admissionv1.ValidatingWebhook) { w.Rules[0].Operations = w.Rules[0].Operations[:1] },
		"other things": func(w *admissionv1.ValidatingWebhook) { w.Rules[0].Resources = []string{"etcds/status"} },
		"some objects": func(w *admissionv1.ValidatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"volumes": "guarded"}}
		},
		"other conditions": func(w *admissionv1.ValidatingWebhook) {
			w.MatchConditions = []admissionv1.MatchCondition{{Name: "volumes-or-their-annotations"}, {Name: "only-on-sundays"}}
		},
		"not this namespace": func(w *admissionv1.ValidatingWebhook) {
			w.NamespaceSelector = named(metav1.LabelSelectorOpNotIn, "shop")
		},
		"other namespaces": func(w *admissionv1.ValidatingWebhook) {
			w.NamespaceSelector = named(metav1.LabelSelectorOpIn, "kitchen")
		},
		"labelled namespaces": func(w *admissionv1.ValidatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"volumes": "guarded"}}
		},
		"selector that can not be read": func(w *admissionv1.ValidatingWebhook) { w.NamespaceSelector = named("Resembles", "shop") },
		"another entry":                 func(w *admissionv1.ValidatingWebhook) { w.Name = "other" },
	} {
		door := doorOf(entry(mod), "shop")
		assert.False(t, door.Stands, name)
		assert.NotEmpty(t, door.Fault, name)
	}
}

func TestALeaseNamesItsMemberOrNobody(t *testing.T) {
	at := &metav1.MicroTime{Time: fixture.Now}
	for holder, want := range map[string]plan.Lease{
		"a1:c1:Leader":   {MemberID: "a1", ClusterID: "c1", Renewed: fixture.Now},
		"00a1:00c1:":     {MemberID: "a1", ClusterID: "c1", Renewed: fixture.Now},
		"a1":             {Renewed: fixture.Now},
		"none:c1:Member": {Renewed: fixture.Now},
		"":               {Renewed: fixture.Now},
	} {
		got := leaseOf(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: at}})
		assert.Equal(t, &want, got, holder)
	}
	assert.Equal(t, &plan.Lease{}, leaseOf(&coordinationv1.Lease{}))
}

func TestAPodTellsWhyItDoesNotRun(t *testing.T) {
	pod := fixture.Pod(fixture.Etcd(), 0, fixture.NotReady)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "etcd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
	}}
	got := podOf(pod)
	assert.False(t, got.Running)
	assert.Equal(t, "container etcd: CrashLoopBackOff back-off 10s", got.Message)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"})
	pod.Spec.NodeName = ""
	assert.Equal(t, "0/3 nodes are available", podOf(pod).Message)
	pod.Spec.NodeName = "node-1"
	assert.Equal(t, "container etcd: CrashLoopBackOff back-off 10s", podOf(pod).Message, "it was scheduled since")
}

func TestWithoutAClassTheYoungestDefaultOneCounts(t *testing.T) {
	etcd := fixture.Etcd(fixture.Class(""))
	older, younger := fixture.StorageClass("older"), fixture.StorageClass("younger")
	sim := fixture.NewSimulation(t, etcd, older, younger, fixture.StorageClass("other"))
	for i, name := range []string{"older", "younger"} {
		class := fixture.StorageClass(name)
		require.NoError(t, sim.Client.Get(t.Context(), client.ObjectKey{Name: name}, class))
		class.Annotations = map[string]string{defaultClassAnnotation: "true"}
		class.CreationTimestamp = metav1.NewTime(fixture.Now.Add(time.Duration(i) * time.Hour))
		require.NoError(t, sim.Client.Update(t.Context(), class))
	}
	s := plan.Snapshot{Etcd: &plan.Etcd{}}
	require.NoError(t, Observer{Reader: sim.Client}.class(t.Context(), &s))
	assert.Equal(t, "younger", s.Class.Name)
	assert.True(t, s.Class.Exists)
}

func TestTheNewestWarningIsTold(t *testing.T) {
	event := func(kind, text string, at time.Time) corev1.Event {
		return corev1.Event{Type: kind, Message: text, LastTimestamp: metav1.NewTime(at)}
	}
	assert.Equal(t, "newer", newestWarning([]corev1.Event{
		event("Warning", "newer", fixture.Now), event("Warning", "older", fixture.Now.Add(-time.Hour)), event("Normal", "newest", fixture.Now.Add(time.Hour)),
	}))
	assert.Empty(t, newestWarning(nil))
}
