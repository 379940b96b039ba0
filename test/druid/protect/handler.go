package protect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// Path is where the webhook is served.
const Path = "/webhooks/etcdcomponents"

var (
	errNoLabels  = errors.New("the claim has no labels to find its StatefulSet by")
	errAmbiguous = errors.New("more than one StatefulSet has the labels of the claim")
)

// Handler judges changes of components.
type Handler struct {
	// Reader reads Etcds and StatefulSets.
	Reader client.Reader
	// Druid is the user name of druid's own account, Exempt are those of the accounts that are let through.
	Druid  string
	Exempt []string
}

var (
	leaseKind = schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}
	claimKind = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	scaleKind = schema.GroupKind{Group: "autoscaling", Kind: "Scale"}
	guarded   = map[schema.GroupKind]bool{
		{Kind: "ServiceAccount"}: true,
		{Kind: "Service"}:        true,
		{Kind: "ConfigMap"}:      true,
		{Group: "rbac.authorization.k8s.io", Kind: "Role"}:        true,
		{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: true,
		{Group: "apps", Kind: "StatefulSet"}:                      true,
		{Group: "policy", Kind: "PodDisruptionBudget"}:            true,
		leaseKind: true,
	}
)

// Handle answers one request.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Update && req.Operation != admissionv1.Delete {
		return admission.Allowed("only updates and deletions are judged")
	}
	guard, err := h.guardOf(ctx, req)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if guard == nil || guard.Labels[api.LabelManagedBy] != api.ManagedBy {
		return admission.Allowed("not a component of an Etcd")
	}
	etcd := &api.Etcd{}
	err = h.Reader.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: guard.Labels[api.LabelPartOf]}, etcd)
	if apierrors.IsNotFound(err) {
		return admission.Allowed("there is no such Etcd").WithWarnings(fmt.Sprintf("no Etcd found for %s", req.Name))
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("get Etcd of %s/%s: %w", req.Namespace, req.Name, err))
	}
	return h.judge(req, etcd, guard)
}

// guardOf is the metadata that decides about the request: those of the object or, of a claim and of a scale, those of
// the StatefulSet. It is nil where nothing decides.
func (h *Handler) guardOf(ctx context.Context, req admission.Request) (*metav1.ObjectMeta, error) {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	switch {
	case guarded[kind]:
		return metaOf(req)
	case kind == claimKind:
		claim, err := metaOf(req)
		if err != nil {
			return nil, err
		}
		return h.statefulSetOfClaim(ctx, claim)
	case kind == scaleKind && req.Resource.Group == appsv1.GroupName && req.Resource.Resource == "statefulsets":
		sts := &appsv1.StatefulSet{}
		if err := h.Reader.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: req.Name}, sts); err != nil {
			return nil, fmt.Errorf("get StatefulSet %s/%s: %w", req.Namespace, req.Name, err)
		}
		return &sts.ObjectMeta, nil
	}
	return nil, nil
}

// metaOf is the metadata of the object as it would be, or as it was when it is to be deleted.
func metaOf(req admission.Request) (*metav1.ObjectMeta, error) {
	raw := req.Object.Raw
	if req.Operation == admissionv1.Delete {
		raw = req.OldObject.Raw
	}
	obj := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, obj); err != nil {
		return nil, fmt.Errorf("decode %s %s/%s: %w", req.Kind.Kind, req.Namespace, req.Name, err)
	}
	return &obj.ObjectMeta, nil
}

func (h *Handler) statefulSetOfClaim(ctx context.Context, claim *metav1.ObjectMeta) (*metav1.ObjectMeta, error) {
	if len(claim.Labels) == 0 {
		return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, errNoLabels)
	}
	sets := &appsv1.StatefulSetList{}
	if err := h.Reader.List(ctx, sets, client.InNamespace(claim.Namespace), client.MatchingLabels(claim.Labels)); err != nil {
		return nil, fmt.Errorf("list StatefulSets of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	switch len(sets.Items) {
	case 0:
		return nil, nil
	case 1:
		return &sets.Items[0].ObjectMeta, nil
	}
	return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, errAmbiguous)
}

func (h *Handler) judge(req admission.Request, etcd *api.Etcd, guard *metav1.ObjectMeta) admission.Response {
	user := req.UserInfo.Username
	if !etcd.Protected() {
		return admission.Allowed("the Etcd has its protection disabled")
	}
	if user == h.Druid {
		return admission.Allowed("druid may change its own components")
	}
	if isLease(req) && user == AccountName(etcd.Namespace, etcd.Name) && !deletedWithEtcd(req, etcd) {
		return admission.Allowed("members may write leases")
	}
	if slices.Contains(h.Exempt, user) {
		return judgeExempt(req, etcd, guard)
	}
	if deletedWithEtcd(req, etcd) {
		return denied(req, etcd, "the Etcd is being deleted, and only etcd-druid may delete its components then")
	}
	return denied(req, etcd, "it is a component of the Etcd and may be changed by etcd-druid only")
}

func judgeExempt(req admission.Request, etcd *api.Etcd, guard *metav1.ObjectMeta) admission.Response {
	if deletedWithEtcd(req, etcd) || !etcd.ReconciliationInProgress() || guard.DeletionTimestamp != nil {
		return admission.Allowed("the account is exempt")
	}
	return denied(req, etcd, "the account is exempt, but not while the Etcd's last operation has not succeeded")
}

// deletedWithEtcd says whether a component is to be deleted while its Etcd is being deleted.
func deletedWithEtcd(req admission.Request, etcd *api.Etcd) bool {
	return req.Operation == admissionv1.Delete && etcd.DeletionInProgress()
}

// AccountName is the user name of a service account.
func AccountName(namespace, name string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name)
}

func isLease(req admission.Request) bool {
	return schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind} == leaseKind
}

func denied(req admission.Request, etcd *api.Etcd, why string) admission.Response {
	return admission.Denied(fmt.Sprintf("%s of %s %s/%s by %s refused: %s; the annotation %s on Etcd %s switches this off",
		req.Operation, req.Kind.Kind, req.Namespace, req.Name, req.UserInfo.Username, why, api.AnnotationUnprotect, etcd.Name))
}
