package verdict

import (
	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// warnings are told by the webhook that knows them: what the mutating one did or what speaks after it, all else by the validating one.
func (c *judged) warnings() []Warning {
	if c.Before == nil {
		return nil
	}
	if c.Side == Mutating {
		return append(c.restored(), c.frozen()...)
	}
	var all []Warning
	if !c.allowed {
		return c.idle()
	}
	if c.Class.Value != nil && c.Class.Value.Immediate {
		all = append(all, Warning{Kind: BindsImmediately, Subject: c.Class.Value.Name})
	}
	held := c.held()
	if !held.Suspend {
		all = append(all, Warning{Kind: DruidKept, Subject: volume.SuspendAnnotation})
	}
	if !held.Protection {
		all = append(all, Warning{Kind: DruidKept, Subject: volume.DisableProtectionAnnotation})
	}
	if c.rolloutRuns() {
		all = append(all, Warning{Kind: Supersedes, Subject: c.Rollout.Value.Name, Detail: c.Rollout.Value.Progress})
	}
	return all
}

// idle: a volume change that destroys nothing needs no confirmation; one that is set in the same request stays unused.
func (c *judged) idle() []Warning {
	if c.operation != "" || c.changes.Empty() || c.given == "" || c.by == "" || (c.stamp != nil && c.stamp.Token == c.given) {
		return nil
	}
	return []Warning{{Kind: ConfirmationIdle, Subject: c.given}}
}

func (c *judged) restored() []Warning {
	var all []Warning
	for _, mark := range []struct {
		annotation string
		want       *string
	}{{volume.StampAnnotation, c.keptStamp()}, {volume.ConfirmedByAnnotation, c.note()}} {
		dropped := has(c.Before, mark.annotation) && !has(c.After, mark.annotation)
		if dropped && same(mark.want, value(c.Before, mark.annotation)) {
			all = append(all, Warning{Kind: MarksRestored, Subject: mark.annotation})
		}
	}
	return all
}

// frozen: the CRD's CEL rules run after the mutating webhook and before the validating one, so they must be told of here or never.
func (c *judged) frozen() []Warning {
	if c.operation == "" {
		return nil
	}
	if !c.Freezes.OK() {
		return []Warning{{Kind: CRDUnknown, Detail: c.Freezes.Unknown}}
	}
	var all []Warning
	for _, f := range c.Freezes.Value {
		if c.bites(f) {
			all = append(all, Warning{Kind: CRDForbids, Subject: string(f.Field), Detail: f.At + ": " + f.Rule})
		}
	}
	return all
}

// bites reports whether the rule speaks against this request: one at the field compares values where both are set, one at a parent
// compares whether the field is set.
func (c *judged) bites(f Freeze) bool {
	before, after := rawField(c.Before, f.Field), rawField(c.After, f.Field)
	if f.At == string(f.Field) {
		return before != nil && after != nil && *before != *after
	}
	return (before == nil) != (after == nil)
}

func rawField(e *volume.Etcd, field change.Field) *string {
	switch field {
	case change.StorageClass:
		return e.Spec.StorageClass
	case change.VolumeClaimTemplate:
		return e.Spec.VolumeClaimTemplate
	case change.StorageCapacity:
		if e.Spec.StorageCapacity == nil {
			return nil
		}
		text := e.Spec.StorageCapacity.String()
		return &text
	default:
		return nil
	}
}
