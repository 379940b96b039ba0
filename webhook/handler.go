package webhook

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Handler is one of the two webhooks.
type Handler struct {
	side verdict.Side
	// cached serves explanations; live serves what is allowed.
	cached, live client.Reader
	deadline     time.Duration
	retain       time.Duration
	now          func() time.Time
	metrics      *decisions
}

// Handle judges one request.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	start := h.now()
	ctx, cancel := context.WithTimeout(ctx, h.deadline)
	defer cancel()

	asked, err := decode(h.side, req)
	v := h.judge(ctx, req, asked, err)
	h.metrics.count(req, v, h.now().Sub(start))
	logDecision(ctx, req, v)
	return respond(v, asked)
}

// decode reads the request; an error says why it is not understood.
func decode(side verdict.Side, req admission.Request) (verdict.Request, error) {
	asked := verdict.Request{Side: side, User: req.UserInfo.Username}
	if err := understood(req); err != nil {
		return asked, err
	}
	after, err := decodeEtcd(req.Object.Raw, req)
	if err != nil {
		return asked, fmt.Errorf("read the object: %w", err)
	}
	asked.After = after
	if req.Operation == admissionv1.Create {
		return asked, nil
	}
	before, err := decodeEtcd(req.OldObject.Raw, req)
	if err != nil {
		return asked, fmt.Errorf("read the old object: %w", err)
	}
	asked.Before = before
	return asked, nil
}

func understood(req admission.Request) error {
	switch {
	case req.Kind.Group != volume.GroupVersion.Group || req.Kind.Version != volume.GroupVersion.Version || req.Kind.Kind != "Etcd":
		return fmt.Errorf("kind %s/%s %s", req.Kind.Group, req.Kind.Version, req.Kind.Kind)
	case req.SubResource != "":
		return fmt.Errorf("subresource %s", req.SubResource)
	case req.Operation != admissionv1.Create && req.Operation != admissionv1.Update:
		return fmt.Errorf("operation %s", req.Operation)
	default:
		return nil
	}
}

func decodeEtcd(raw []byte, req admission.Request) (*volume.Etcd, error) {
	e := &volume.Etcd{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, e); err != nil {
		return nil, err
	}
	// What the API server says of the request counts; a create may lack both in the object.
	e.Namespace, e.Name = req.Namespace, req.Name
	return e, nil
}

func (h *Handler) judge(ctx context.Context, req admission.Request, asked verdict.Request, err error) verdict.Verdict {
	switch {
	case err != nil:
		return verdict.Unjudged(h.side, req.Namespace, req.Name, err.Error())
	case !verdict.Concerns(asked):
		return verdict.Of(asked, verdict.Facts{})
	case verdict.Confirmed(asked):
		return verdict.Of(asked, h.lookUp(ctx, h.live, asked))
	}
	if v := verdict.Of(asked, h.lookUp(ctx, h.cached, asked)); v.Outcome == verdict.Refuse {
		return v
	}
	return verdict.Of(asked, h.lookUp(ctx, h.live, asked))
}

func logDecision(ctx context.Context, req admission.Request, v verdict.Verdict) {
	logf.FromContext(ctx).Info("judged",
		"webhook", v.Side, "uid", req.UID, "namespace", req.Namespace, "name", req.Name, "user", req.UserInfo.Username,
		"request", req.Operation, "dryRun", dryRun(req), "decision", v.Outcome, "rules", ruleNames(v), "change", v.Changes.String(),
		"operation", v.Operation, "token", v.Confirmation.Token)
}

func dryRun(req admission.Request) bool { return req.DryRun != nil && *req.DryRun }
