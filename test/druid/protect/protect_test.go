package protect_test

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/protect"
)

const (
	druid  = "system:serviceaccount:druid-system:etcd-druid"
	exempt = "system:serviceaccount:kube-system:generic-garbage-collector"
	member = "system:serviceaccount:shoot:main"
	admin  = "admin"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, api.AddToScheme(s))
	return s
}

func component(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shoot", Name: name, Labels: map[string]string{api.LabelManagedBy: api.ManagedBy, api.LabelPartOf: "main"}}
}

func newEtcd(mods ...func(*api.Etcd)) *api.Etcd {
	etcd := &api.Etcd{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "main"}}
	last(api.OperationReconcile, api.OperationSucceeded)(etcd)
	for _, mod := range mods {
		mod(etcd)
	}
	return etcd
}

func last(operation api.OperationType, state api.OperationState) func(*api.Etcd) {
	return func(e *api.Etcd) { e.Status.LastOperation = &api.LastOperation{Type: operation, State: state} }
}

func unprotected(e *api.Etcd) {
	metav1.SetMetaDataAnnotation(&e.ObjectMeta, api.AnnotationUnprotect, "")
}

func handle(t *testing.T, user string, operation admissionv1.Operation, obj client.Object, world ...client.Object) admission.Response {
	t.Helper()
	s := testScheme(t)
	h := &protect.Handler{Reader: fake.NewClientBuilder().WithScheme(s).WithObjects(world...).Build(), Druid: druid, Exempt: []string{exempt}}
	gvk, err := apiutil.GVKForObject(obj, s)
	require.NoError(t, err)
	raw, err := json.Marshal(obj)
	require.NoError(t, err)
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Operation: operation, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UserInfo: authenticationv1.UserInfo{Username: user},
	}}
	if _, scale := obj.(*autoscalingv1.Scale); scale {
		req.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
		req.SubResource = "scale"
	}
	if operation == admissionv1.Delete {
		req.OldObject.Raw = raw
	} else {
		req.Object.Raw, req.OldObject.Raw = raw, raw
	}
	return h.Handle(t.Context(), req)
}

func TestWhoMayChangeAComponent(t *testing.T) {
	const update, remove = admissionv1.Update, admissionv1.Delete
	sts := &appsv1.StatefulSet{ObjectMeta: component("main")}
	lease := &coordinationv1.Lease{ObjectMeta: component("main-0")}
	terminating := &appsv1.StatefulSet{ObjectMeta: component("main")}
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	foreign := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "main"}}
	reconcile := func(state api.OperationState) *api.Etcd { return newEtcd(last(api.OperationReconcile, state)) }
	deleting := newEtcd(last(api.OperationDelete, api.OperationProcessing))

	for name, tc := range map[string]struct {
		user      string
		operation admissionv1.Operation
		obj       client.Object
		etcd      *api.Etcd
		allowed   bool
	}{
		"druid updates":                          {druid, update, sts, newEtcd(), true},
		"druid deletes while it fails":           {druid, remove, sts, reconcile(api.OperationError), true},
		"admin updates":                          {admin, update, sts, newEtcd(), false},
		"admin deletes":                          {admin, remove, sts, newEtcd(), false},
		"admin creates":                          {admin, admissionv1.Create, sts, newEtcd(), true},
		"admin, protection disabled":             {admin, remove, sts, newEtcd(unprotected), true},
		"admin, not a component":                 {admin, remove, foreign, newEtcd(), true},
		"admin, no such Etcd":                    {admin, remove, sts, nil, true},
		"admin, Etcd being deleted":              {admin, remove, sts, deleting, false},
		"exempt, reconciled":                     {exempt, remove, sts, newEtcd(), true},
		"exempt, processing":                     {exempt, remove, sts, reconcile(api.OperationProcessing), false},
		"exempt, error":                          {exempt, remove, sts, reconcile(api.OperationError), false},
		"exempt, requeue":                        {exempt, remove, sts, reconcile(api.OperationRequeue), false},
		"exempt, error, protection disabled":     {exempt, remove, sts, newEtcd(last(api.OperationReconcile, api.OperationError), unprotected), true},
		"exempt, error, object being deleted":    {exempt, update, terminating, reconcile(api.OperationError), true},
		"exempt, Etcd being deleted":             {exempt, remove, sts, deleting, true},
		"member renews a lease while it fails":   {member, update, lease, reconcile(api.OperationError), true},
		"member changes a StatefulSet":           {member, update, sts, newEtcd(), false},
		"member of another Etcd renews a lease":  {"system:serviceaccount:shoot:other", update, lease, newEtcd(), false},
		"admin, Etcd never reconciled, a delete": {admin, remove, sts, newEtcd(func(e *api.Etcd) { e.Status.LastOperation = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			var world []client.Object
			if tc.etcd != nil {
				world = append(world, tc.etcd)
			}
			resp := handle(t, tc.user, tc.operation, tc.obj, world...)
			assert.Equal(t, tc.allowed, resp.Allowed, resp.Result.Message)
			if !tc.allowed {
				assert.Equal(t, int32(http.StatusForbidden), resp.Result.Code)
				assert.Contains(t, resp.Result.Message, api.AnnotationUnprotect)
			}
		})
	}
}

func TestClaimIsGuardedThroughItsStatefulSet(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: component("main-main-0")}
	bare := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "bare"}}
	sts := &appsv1.StatefulSet{ObjectMeta: component("main")}
	second := &appsv1.StatefulSet{ObjectMeta: component("main2")}

	assert.False(t, handle(t, admin, admissionv1.Delete, claim, newEtcd(), sts).Allowed)
	assert.True(t, handle(t, admin, admissionv1.Delete, claim, newEtcd(unprotected), sts).Allowed)
	assert.True(t, handle(t, admin, admissionv1.Delete, claim, newEtcd()).Allowed, "without StatefulSet nothing guards it")
	assert.Equal(t, int32(http.StatusInternalServerError), handle(t, admin, admissionv1.Delete, claim, newEtcd(), sts, second).Result.Code)
	assert.Equal(t, int32(http.StatusInternalServerError), handle(t, admin, admissionv1.Delete, bare, newEtcd(), sts).Result.Code)
}

func TestScaleIsGuardedThroughItsStatefulSet(t *testing.T) {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "main"}}
	sts := &appsv1.StatefulSet{ObjectMeta: component("main")}
	assert.False(t, handle(t, admin, admissionv1.Update, scale, newEtcd(), sts).Allowed)
	assert.True(t, handle(t, druid, admissionv1.Update, scale, newEtcd(), sts).Allowed)
}

func TestSelfMadeCertificateIsTrustedByItsBundleForItsService(t *testing.T) {
	cert, err := protect.SelfSigned("etcd-druid", "druid-system", time.Now())
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(cert.TLS.Certificate[0])
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(cert.Bundle))
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: "etcd-druid.druid-system.svc", Roots: pool})
	assert.NoError(t, err)
}

func TestBundleIsPutIntoEveryWebhookAndPutBackWhenItIsLost(t *testing.T) {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-druid"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a"}, {Name: "b"}},
	}
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(config).Build()
	keeper := &protect.BundleKeeper{Client: c, Reader: c, Configuration: "etcd-druid", Bundle: []byte("ca")}
	done := make(chan error, 1)
	go func() { done <- keeper.Start(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, <-done) })

	live := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	inPlace := func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(config), live) == nil &&
			string(live.Webhooks[0].ClientConfig.CABundle) == "ca" && string(live.Webhooks[1].ClientConfig.CABundle) == "ca"
	}
	require.Eventually(t, inPlace, 10*time.Second, 10*time.Millisecond)
	live.Webhooks[1].ClientConfig.CABundle = nil
	require.NoError(t, c.Update(t.Context(), live))
	require.Eventually(t, inPlace, 10*time.Second, 10*time.Millisecond)
}
