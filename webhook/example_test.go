package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// A change of the storage class is refused and explained. The same request with the token is marked by the mutating webhook.
func Example() {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	options := webhook.Options{Now: func() time.Time { return fixture.Now }, Registerer: prometheus.NewRegistry()}
	validating, _ := webhook.NewHandler(verdict.Validating, cluster, cluster, options)
	mutating, _ := webhook.NewHandler(verdict.Mutating, cluster, cluster, options)
	ctx := context.Background()

	refused := validating.Handle(ctx, update(fixture.Etcd(fixture.Class("fast"))))
	token := refused.Result.Details.Causes[1].Message
	fmt.Println("allowed:", refused.Allowed)
	fmt.Println(strings.Split(refused.Result.Message, "\n")[1])

	marked := mutating.Handle(ctx, update(fixture.Etcd(fixture.Class("fast"), fixture.Annotation(volume.ConfirmAnnotation, token))))
	for _, op := range marked.Patches {
		fmt.Println(op.Operation, op.Path)
	}

	// Output:
	// allowed: false
	// Refused: volume change not confirmed for Etcd shop/main
	// add /metadata/annotations/druid.gardener.cloud~1disable-etcd-component-protection
	// add /metadata/annotations/druid.gardener.cloud~1suspend-etcd-spec-reconcile
	// add /metadata/annotations/volumes.druid.gardener.cloud~1confirmed-by
	// add /metadata/annotations/volumes.druid.gardener.cloud~1stamp
}

// update is the admin's request to make the default Etcd like this one.
func update(after *volume.Etcd) admission.Request {
	encode := func(e *volume.Etcd) runtime.RawExtension {
		b, _ := json.Marshal(e) //nolint:errchkjson // plain values
		return runtime.RawExtension{Raw: b}
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Group: "druid.gardener.cloud", Version: "v1alpha1", Kind: "Etcd"},
		Name: after.Name, Namespace: after.Namespace, Operation: admissionv1.Update,
		UserInfo:  authenticationv1.UserInfo{Username: "admin"},
		OldObject: encode(fixture.Etcd()), Object: encode(after),
	}}
}
