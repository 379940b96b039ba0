package webhook

import (
	"net/http"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/webhook/explain"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// TokenCause is the type of the cause whose message is the token that would confirm the change.
const TokenCause metav1.CauseType = "ConfirmationToken"

// respond turns the verdict into the answer. The mutating webhook allows all, and marks; the validating one decides.
func respond(v verdict.Verdict, asked verdict.Request) admission.Response {
	resp := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed:          true,
		Result:           &metav1.Status{Code: http.StatusOK},
		AuditAnnotations: auditAnnotations(v),
		Warnings:         explain.Warnings(v),
	}}
	if v.Side == verdict.Mutating {
		resp.Patches = patches(asked, v.Marks)
		return resp
	}
	if v.Outcome == verdict.Refuse {
		resp.Allowed, resp.Result = false, refusal(v)
	}
	return resp
}

// refusal is always 403 Forbidden: kubectl edit hides the text of a 422, and kubectl scale retries a 409 for ever.
func refusal(v verdict.Verdict) *metav1.Status {
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: explain.Text(v),
		Details: &metav1.StatusDetails{
			Group: volume.GroupVersion.Group, Kind: "Etcd", Name: v.Name, UID: types.UID(v.UID), Causes: causes(v),
		},
	}
}

func causes(v verdict.Verdict) []metav1.StatusCause {
	var all []metav1.StatusCause
	for _, r := range v.Refusals {
		all = append(all, metav1.StatusCause{Type: metav1.CauseType(r.Rule.Cause()), Field: r.Field, Message: explain.Sentence(r)})
	}
	if v.Confirmable() {
		all = append(all, metav1.StatusCause{
			Type: TokenCause, Field: "metadata.annotations[" + v.Confirmation.Annotation + "]", Message: v.Confirmation.Token,
		})
	}
	return all
}

// auditAnnotations are the same facts for the audit log, where the API server puts the webhook's name before each key. It drops keys that
// are no qualified names without a word.
func auditAnnotations(v verdict.Verdict) map[string]string {
	all := map[string]string{"decision": string(v.Outcome)}
	for key, value := range map[string]string{
		"rules":        strings.Join(ruleNames(v), ","),
		"change":       v.Changes.String(),
		"operation":    string(v.Operation),
		"token":        v.Confirmation.Token,
		"confirmed-by": v.Confirmation.By,
	} {
		if value != "" {
			all[key] = value
		}
	}
	if v.Confirmation.Generation > 0 {
		all["generation"] = strconv.FormatInt(v.Confirmation.Generation, 10)
	}
	return all
}

func ruleNames(v verdict.Verdict) []string {
	names := make([]string, 0, len(v.Refusals))
	for _, r := range v.Refusals {
		names = append(names, string(r.Rule))
	}
	return names
}
