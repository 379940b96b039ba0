package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/test/golden"
	"github.com/etcd-volumes/etcd-volumes/webhook"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// door is both webhooks before the same cluster, asked one after the other as the API server does.
type door struct {
	t                    testing.TB
	mutating, validating *webhook.Handler
	registry             *prometheus.Registry
}

func newDoor(tb testing.TB, cached, live client.Reader) *door {
	tb.Helper()
	d := &door{t: tb, registry: prometheus.NewRegistry()}
	options := webhook.Options{Now: func() time.Time { return fixture.Now }, Registerer: d.registry}
	var err error
	d.mutating, err = webhook.NewHandler(verdict.Mutating, cached, live, options)
	require.NoError(tb, err)
	d.validating, err = webhook.NewHandler(verdict.Validating, cached, live, options)
	require.NoError(tb, err)
	return d
}

func newCluster(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(fixture.Scheme()).WithObjects(objects...).Build()
}

// ask sends the update through both webhooks and returns the validating answer and the object as it would be stored.
func (d *door) ask(user string, before, after *volume.Etcd) (admission.Response, *volume.Etcd) {
	d.t.Helper()
	sent := request(d.t, user, before, after)
	mutated := d.mutating.Handle(d.t.Context(), sent)
	require.True(d.t, mutated.Allowed, "the mutating webhook never refuses")
	stored := applied(d.t, sent.Object.Raw, mutated)
	sent.Object.Raw = stored
	response := d.validating.Handle(d.t.Context(), sent)
	etcd := &volume.Etcd{}
	require.NoError(d.t, json.Unmarshal(stored, etcd))
	return response, etcd
}

func request(tb testing.TB, user string, before, after *volume.Etcd) admission.Request {
	tb.Helper()
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:  "11111111-2222-4333-8444-555555555555",
		Kind: metav1.GroupVersionKind{Group: "druid.gardener.cloud", Version: "v1alpha1", Kind: "Etcd"},
		Name: after.Name, Namespace: after.Namespace, Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: user}, Object: raw(tb, after),
	}}
	if before != nil {
		req.Operation, req.OldObject = admissionv1.Update, raw(tb, before)
	}
	return req
}

func raw(tb testing.TB, e *volume.Etcd) runtime.RawExtension {
	tb.Helper()
	b, err := json.Marshal(e)
	require.NoError(tb, err)
	return runtime.RawExtension{Raw: b}
}

func applied(tb testing.TB, object []byte, response admission.Response) []byte {
	tb.Helper()
	if len(response.Patches) == 0 {
		return object
	}
	ops, err := json.Marshal(response.Patches)
	require.NoError(tb, err)
	patch, err := jsonpatch.DecodePatch(ops)
	require.NoError(tb, err)
	patched, err := patch.Apply(object)
	require.NoError(tb, err)
	return patched
}

// tokenOf is the token that the refusal offers.
func tokenOf(response admission.Response) string {
	for _, cause := range response.Result.Details.Causes {
		if cause.Type == webhook.TokenCause {
			return cause.Message
		}
	}
	return ""
}

func causeTypes(response admission.Response) []string {
	if response.Result.Details == nil {
		return nil
	}
	var types []string
	for _, cause := range response.Result.Details.Causes {
		types = append(types, string(cause.Type))
	}
	return types
}

func TestAnUnconfirmedChangeIsRefusedAndExplained(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)

	response, stored := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))

	assert.False(t, response.Allowed)
	assert.EqualValues(t, http.StatusForbidden, response.Result.Code)
	assert.Equal(t, metav1.StatusReasonForbidden, response.Result.Reason)
	golden.Equal(t, "refusal.txt", response.Result.Message)
	golden.NoStale(t, "*.txt")
	token := tokenOf(response)
	assert.Equal(t, &metav1.StatusDetails{
		Group: "druid.gardener.cloud", Kind: "Etcd", Name: "main", UID: fixture.EtcdUID,
		Causes: []metav1.StatusCause{
			{
				Type: "ConfirmationMissing", Field: "metadata.annotations[volumes.druid.gardener.cloud/confirm]",
				Message: "The change is not confirmed.",
			},
			{Type: "ConfirmationToken", Field: "metadata.annotations[volumes.druid.gardener.cloud/confirm]", Message: token},
		},
	}, response.Result.Details)
	assert.Equal(t, map[string]string{
		"decision": "refuse", "rules": "confirmation-missing", "change": "Reclass", "operation": "Replace", "token": token,
		"generation": "1",
	}, response.AuditAnnotations)
	assert.Empty(t, stored.Annotations)
}

func TestAConfirmationBeforeTheChangeAllowsItOnce(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	refused, _ := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	token := tokenOf(refused)

	// The admin confirms; nothing else happens.
	response, confirmed := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Annotation(volume.ConfirmAnnotation, token)))
	require.True(t, response.Allowed)
	assert.Equal(t, map[string]string{
		volume.ConfirmAnnotation:     token,
		volume.ConfirmedByAnnotation: fmt.Sprintf(`{"token":%q,"user":"admin"}`, token),
	}, confirmed.Annotations)

	// A controller makes the change.
	changed := confirmed.DeepCopy()
	fixture.Class("fast")(changed)
	response, stamped := d.ask("gitops", confirmed, changed)
	require.True(t, response.Allowed, "%v", response.Result)
	stamp, err := confirm.Read(stamped.Annotations)
	require.NoError(t, err)
	require.NotNil(t, stamp)
	assert.Equal(t, "admin", stamp.ConfirmedBy)
	assert.Equal(t, "gitops", stamp.RequestedBy)
	assert.Len(t, stamp.Claims, 3)
	assert.Contains(t, stamped.Annotations, volume.SuspendAnnotation)
	assert.Contains(t, stamped.Annotations, volume.DisableProtectionAnnotation)
	assert.Equal(t, []string{
		"etcd-volumes: confirmed with " + token + ": 3 volumes are replaced, one member at a time, in this order:",
		"etcd-volumes: 1. main-1 (follower): volume pvc-1",
		"etcd-volumes: 2. main-2 (follower): volume pvc-2",
		"etcd-volumes: 3. main-0 (leader): volume pvc-0",
		"etcd-volumes: follow: kubectl -n shop get volumerollouts main-v1",
	}, response.Warnings)
	assert.Equal(t, map[string]string{
		"decision": "allow", "change": "Reclass", "operation": "Replace", "token": token, "generation": "1", "confirmed-by": "admin",
	}, response.AuditAnnotations)

	// The same token says nothing about another change.
	again := stamped.DeepCopy()
	fixture.Class("slower")(again)
	response, _ = d.ask("gitops", stamped, again)
	assert.False(t, response.Allowed)
	assert.Contains(t, causeTypes(response), "ConfirmationStale")
}

func TestAConfirmationInTheSameRequestAllowsIt(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	refused, _ := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))

	response, stored := d.ask("colleague", fixture.Etcd(),
		fixture.Etcd(fixture.Class("fast"), fixture.Annotation(volume.ConfirmAnnotation, tokenOf(refused))))

	require.True(t, response.Allowed, "%v", response.Result)
	stamp, err := confirm.Read(stored.Annotations)
	require.NoError(t, err)
	assert.Equal(t, "colleague", stamp.ConfirmedBy)
}

func TestTheMutatingWebhookTouchesAnnotationsOnlyAndMayRunTwice(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	refused, _ := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	sent := request(t, "admin", fixture.Etcd(),
		fixture.Etcd(fixture.Class("fast"), fixture.Annotation(volume.ConfirmAnnotation, tokenOf(refused))))

	first := d.mutating.Handle(t.Context(), sent)
	sent.Object.Raw = applied(t, sent.Object.Raw, first)
	second := d.mutating.Handle(t.Context(), sent)

	require.Len(t, first.Patches, 4)
	for _, op := range first.Patches {
		assert.True(t, strings.HasPrefix(op.Path, "/metadata/annotations/"), op.Path)
	}
	assert.Empty(t, second.Patches)
	assert.True(t, d.validating.Handle(t.Context(), sent).Allowed)
}

// A PUT of a manifest from Git that knows none of our annotations.
func TestAPlainPutKeepsOurMarks(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	_, stamped := d.replace("admin")

	response, stored := d.ask("gitops", stamped, fixture.Etcd(fixture.Class("fast")))

	require.True(t, response.Allowed, "%v", response.Result)
	assert.Equal(t, stamped.Annotations[volume.StampAnnotation], stored.Annotations[volume.StampAnnotation])
	assert.Contains(t, stored.Annotations, volume.SuspendAnnotation)
	assert.NotContains(t, stored.Annotations, volume.ConfirmedByAnnotation, "its confirmation was taken away")
}

// replace makes the confirmed change slow -> fast.
func (d *door) replace(user string) (admission.Response, *volume.Etcd) {
	refused, _ := d.ask(user, fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	response, stored := d.ask(user, fixture.Etcd(),
		fixture.Etcd(fixture.Class("fast"), fixture.Annotation(volume.ConfirmAnnotation, tokenOf(refused))))
	require.True(d.t, response.Allowed)
	return response, stored
}

func TestAHandWrittenStampIsRefusedWithOrWithoutAChange(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	forged := fixture.Annotation(volume.StampAnnotation, confirm.StampOf(confirm.Ask{
		EtcdUID: string(fixture.EtcdUID), Generation: 1, Operation: confirm.Replace, From: volume.Of(fixture.Etcd()),
		To: volume.Of(fixture.Etcd(fixture.Class("fast"))),
	}, "root", "root", confirm.Held{}).String())

	for name, after := range map[string]*volume.Etcd{
		"alone":         fixture.Etcd(forged),
		"with a change": fixture.Etcd(forged, fixture.Class("fast")),
	} {
		response, _ := d.ask("intruder", fixture.Etcd(), after)

		assert.False(t, response.Allowed, name)
		assert.Contains(t, causeTypes(response), "StampForged", name)
	}
}

func TestWithoutTheMutatingWebhookAConfirmedChangeIsRefused(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	refused, _ := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	sent := request(t, "admin", fixture.Etcd(),
		fixture.Etcd(fixture.Class("fast"), fixture.Annotation(volume.ConfirmAnnotation, tokenOf(refused))))

	response := d.validating.Handle(t.Context(), sent)

	assert.False(t, response.Allowed)
	assert.Equal(t, []string{"StampMissing"}, causeTypes(response))
}

func TestAFieldOfAnotherCaseDoesNotHideAChange(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	sent := request(t, "intruder", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	sent.Object.Raw = []byte(strings.Replace(string(sent.Object.Raw), `"spec":{`, `"Spec":{"storageClass":"slow"},"spec":{"StorageClass":"slow",`, 1))

	response := d.validating.Handle(t.Context(), sent)

	assert.False(t, response.Allowed)
	assert.Equal(t, []string{"ConfirmationMissing", "ConfirmationToken"}, causeTypes(response))
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	cluster := newCluster()
	d := newDoor(t, cluster, cluster)
	tests := map[string]func(*admission.Request){
		"another kind":      func(r *admission.Request) { r.Kind.Kind = "Scale" },
		"another version":   func(r *admission.Request) { r.Kind.Version = "v1" },
		"a subresource":     func(r *admission.Request) { r.SubResource = "scale" },
		"a deletion":        func(r *admission.Request) { r.Operation = admissionv1.Delete },
		"no operation":      func(r *admission.Request) { r.Operation = "" },
		"no object":         func(r *admission.Request) { r.Object.Raw = nil },
		"no old object":     func(r *admission.Request) { r.OldObject.Raw = nil },
		"a broken object":   func(r *admission.Request) { r.Object.Raw = []byte(`{"spec":{"storageCapacity":"lots"}}`) },
		"an unusual object": func(r *admission.Request) { r.Object.Raw = []byte(`[]`) },
	}
	for name, mod := range tests {
		t.Run(name, func(t *testing.T) {
			sent := request(t, "admin", fixture.Etcd(), fixture.Etcd())
			mod(&sent)

			assert.True(t, d.mutating.Handle(t.Context(), sent).Allowed)
			response := d.validating.Handle(t.Context(), sent)

			assert.False(t, response.Allowed)
			assert.Equal(t, []string{"RequestUnknown"}, causeTypes(response))
		})
	}
}

func TestACreateOrAnUpdateThatIsNoneOfOursPassesWithoutALookUp(t *testing.T) {
	broken := interceptor.NewClient(newCluster(), failing(errors.New("must not be asked")))
	d := newDoor(t, broken, broken)
	renamed := fixture.Etcd()
	renamed.Labels["app"] = "other"

	for name, before := range map[string]*volume.Etcd{"create": nil, "update": fixture.Etcd()} {
		response, _ := d.ask("admin", before, renamed)

		assert.True(t, response.Allowed, name)
	}
}

func failing(err error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return err
		},
	}
}

func TestEachFailedLookUpRefusesAConfirmedChange(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	_, stamped := newDoor(t, cluster, cluster).replace("admin")
	confirmed := request(t, "admin", fixture.Etcd(), stamped)
	forbidden := errors.New("forbidden")
	kinds := map[string]bool{ // whether a failure to read the kind refuses
		"*v1.StatefulSet": true, "*v1.PersistentVolumeClaimList": true, "*v1.StorageClass": true, "*v1.Pod": true,
		"*v1alpha1.VolumeRolloutList": true, "*v1.Lease": false, "*v1.PersistentVolume": false,
	}
	for kind, refuses := range kinds {
		t.Run(kind, func(t *testing.T) {
			live := interceptor.NewClient(cluster, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if fmt.Sprintf("%T", o) == kind {
						return forbidden
					}
					return c.Get(ctx, key, o, opts...)
				},
				List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
					if fmt.Sprintf("%T", o) == kind {
						return forbidden
					}
					return c.List(ctx, o, opts...)
				},
			})

			response := newDoor(t, cluster, live).validating.Handle(t.Context(), confirmed)

			assert.Equal(t, !refuses, response.Allowed)
			if refuses {
				assert.Contains(t, causeTypes(response), "LookUpFailed")
			}
		})
	}
}

func TestASlowLookUpYieldsOurOwnRefusalInTime(t *testing.T) {
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	slow := interceptor.NewClient(newCluster(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return waits(ctx)
		},
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			return waits(ctx)
		},
	})
	h, err := webhook.NewHandler(verdict.Validating, slow, slow, webhook.Options{
		ValidatingDeadline: 10 * time.Millisecond, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)

	response := h.Handle(t.Context(), request(t, "admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast"))))

	assert.False(t, response.Allowed)
	assert.Contains(t, causeTypes(response), "LookUpFailed")
	assert.Contains(t, response.Result.Message, "context deadline exceeded")
}

func TestWhatWouldPassIsCheckedAgainstTheClusterItself(t *testing.T) {
	staleCache, live := newCluster(fixture.StorageClass("fast")), newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, staleCache, live)

	response, _ := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))

	assert.False(t, response.Allowed, "the cache says that nothing is live, and is wrong")
}

func TestAChangeWhileNothingIsLivePasses(t *testing.T) {
	cluster := newCluster(fixture.StorageClass("fast"))
	d := newDoor(t, cluster, cluster)

	response, stored := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))

	assert.True(t, response.Allowed)
	assert.Empty(t, stored.Annotations)
}

func TestWhatIsLiveIsFoundOut(t *testing.T) {
	tests := map[string]struct {
		world func() []client.Object
		after *volume.Etcd
		want  []string
	}{
		"a missing class": {
			func() []client.Object { return fixture.World(fixture.Etcd()) }, fixture.Etcd(fixture.Class("fastt")),
			[]string{"ClassMissing", "ConfirmationMissing"},
		},
		"no default class": {
			func() []client.Object { return fixture.World(fixture.Etcd()) }, fixture.Etcd(fixture.Class("")),
			[]string{"ClassMissing", "ConfirmationMissing"},
		},
		"the default class": {
			func() []client.Object {
				return append(fixture.World(fixture.Etcd()), fixture.StorageClass("standard", func(sc *storagev1.StorageClass) {
					sc.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
				}))
			}, fixture.Etcd(fixture.Class("")),
			[]string{"ConfirmationMissing", "ConfirmationToken"},
		},
		"a member that is not ready": {
			func() []client.Object {
				return replaced(fixture.World(fixture.Etcd()), fixture.Pod(fixture.Etcd(), 1, fixture.NotReady))
			}, fixture.Etcd(fixture.Class("fast")),
			[]string{"MembersNotReady", "ConfirmationMissing"},
		},
		"a volume that is missing": {
			func() []client.Object { return without(fixture.World(fixture.Etcd()), "main-main-2") }, fixture.Etcd(fixture.Class("fast")),
			[]string{"VolumeMissing", "ConfirmationMissing"},
		},
		"a claim of another Etcd with the same name": {
			func() []client.Object {
				foreign := fixture.Claim(fixture.Etcd(), 2, func(pvc *corev1.PersistentVolumeClaim) {
					pvc.Labels[volume.PartOfLabel] = "other"
				})
				return replaced(fixture.World(fixture.Etcd()), foreign)
			}, fixture.Etcd(fixture.Class("fast")),
			[]string{"VolumeMissing", "ConfirmationMissing"},
		},
		"a StatefulSet that is missing": {
			func() []client.Object { return without(fixture.World(fixture.Etcd()), "main") }, fixture.Etcd(fixture.Class("fast")),
			[]string{"StatefulsetMissing", "ConfirmationMissing"},
		},
		"an operation that is not carried out": {
			func() []client.Object { return fixture.World(fixture.Etcd()) }, fixture.Etcd(fixture.Capacity("20Gi")),
			[]string{"OperationNotSupported"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(tt.world()...)

			response, _ := newDoor(t, cluster, cluster).ask("admin", fixture.Etcd(), tt.after)

			assert.Equal(t, tt.want, causeTypes(response))
		})
	}
}

func without(objects []client.Object, name string) []client.Object {
	var rest []client.Object
	for _, o := range objects {
		if o.GetName() != name {
			rest = append(rest, o)
		}
	}
	return rest
}

func replaced(objects []client.Object, by client.Object) []client.Object {
	var all []client.Object
	for _, o := range objects {
		if fmt.Sprintf("%T", o) != fmt.Sprintf("%T", by) || o.GetName() != by.GetName() {
			all = append(all, o)
		}
	}
	return append(all, by)
}

func TestARunningRolloutOfThisEtcdIsSuperseded(t *testing.T) {
	rollout := func(name, uid string, generation int64, phase v1alpha1.Phase) *v1alpha1.VolumeRollout {
		return &v1alpha1.VolumeRollout{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: v1alpha1.VolumeRolloutSpec{
				Etcd: v1alpha1.ObjectReference{Name: "main", UID: fixture.Etcd().UID}, VolumeGeneration: generation,
			},
			Status: v1alpha1.VolumeRolloutStatus{Phase: phase, Progress: uid},
		}
	}
	foreign := rollout("main-v9", "3/3", 9, v1alpha1.Complete)
	foreign.Spec.Etcd.UID = "another main"
	cluster := newCluster(append(fixture.World(fixture.Etcd()),
		rollout("main-v1", "3/3", 1, v1alpha1.Complete), rollout("main-v2", "1/3", 2, v1alpha1.Replacing), foreign)...)

	response, _ := newDoor(t, cluster, cluster).replace("admin")

	assert.Contains(t, response.Warnings,
		"etcd-volumes: supersedes rollout main-v2 (done: 1/3); it finishes the member in flight first")
	assert.Equal(t, "3", response.AuditAnnotations["generation"])
}

func TestTheMutatingWebhookWarnsOfACRDThatForbidsTheChange(t *testing.T) {
	crd := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": {"name": "etcds.druid.gardener.cloud"},
		"spec": {"versions": [
			{"name": "v1alpha0"},
			{"name": "v1alpha1", "schema": {"openAPIV3Schema": {"properties": {"spec": {
				"x-kubernetes-validations": [
					{"rule": "has(oldSelf.storageClass) == has(self.storageClass)"},
					{"rule": "has(oldSelf.memberNamePrefix) == has(self.memberNamePrefix)"}
				],
				"properties": {
					"replicas": {"x-kubernetes-validations": [{"rule": "self < oldSelf ? false : true"}]},
					"storageCapacity": {"x-kubernetes-validations": [{"rule": "quantity(self) > quantity('0')"}]},
					"storageClass": {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
				}}}}}}
		]}}`), crd))
	cluster := newCluster(append(fixture.World(fixture.Etcd()), crd)...)
	d := newDoor(t, cluster, cluster)
	warnings := func(after *volume.Etcd) []string {
		return d.mutating.Handle(t.Context(), request(t, "admin", fixture.Etcd(), after)).Warnings
	}

	assert.Equal(t, []string{
		"etcd-volumes: the CRD of etcd-druid forbids this change of spec.storageClass: it can not pass",
		"etcd-volumes: the way out: etcd-volumes relax-crd (or kubectl apply -f deploy/relax-crd.yaml). It removes this rule:",
		"etcd-volumes: spec.storageClass: self == oldSelf",
	}, warnings(fixture.Etcd(fixture.Class("fast"))))
	assert.Contains(t, warnings(fixture.Etcd(fixture.Class(""))),
		"etcd-volumes: spec: has(oldSelf.storageClass) == has(self.storageClass)")
	assert.Empty(t, warnings(fixture.Etcd(fixture.Capacity("8Gi"))))
}

func TestAuditAnnotationKeysAreQualifiedNames(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	refused, _ := d.ask("admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	allowed, _ := d.replace("admin")

	for _, response := range []admission.Response{refused, allowed} {
		for key := range response.AuditAnnotations {
			assert.Empty(t, validation.IsQualifiedName("validate.volumes.druid.gardener.cloud/"+key), key)
		}
	}
}

func TestDecisionsAreCounted(t *testing.T) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(t, cluster, cluster)
	sent := request(t, "admin", fixture.Etcd(), fixture.Etcd(fixture.Class("fast")))
	dryRun := true
	sent.DryRun = &dryRun

	d.validating.Handle(t.Context(), sent)
	sent.Operation = "EXPLODE"
	d.validating.Handle(t.Context(), sent)

	require.NoError(t, testutil.GatherAndCompare(d.registry, strings.NewReader(`
# HELP etcd_volumes_admission_decisions_total Requests judged: by webhook, operation of the request, decision, first rule that spoke, and whether it was a dry run.
# TYPE etcd_volumes_admission_decisions_total counter
etcd_volumes_admission_decisions_total{decision="refuse",dry_run="true",operation="UPDATE",rule="confirmation-missing",webhook="validating"} 1
etcd_volumes_admission_decisions_total{decision="refuse",dry_run="true",operation="other",rule="request-unknown",webhook="validating"} 1
`), "etcd_volumes_admission_decisions_total"))
	count, err := testutil.GatherAndCount(d.registry, "etcd_volumes_admission_duration_seconds")
	require.NoError(t, err)
	assert.Equal(t, 1, count)
}
