package verdict

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// The rules, by name.
const (
	RequestUnknown        Rule = "request-unknown"
	LookUpFailed          Rule = "look-up-failed"
	EtcdDeleting          Rule = "etcd-deleting"
	StampUnreadable       Rule = "stamp-unreadable"
	OperationNotSupported Rule = "operation-not-supported"
	ReplicasChanged       Rule = "replicas-changed"
	ScaledToZero          Rule = "scaled-to-zero"
	CapacityNotPositive   Rule = "capacity-not-positive"
	ClassMissing          Rule = "class-missing"
	ClassDeleting         Rule = "class-deleting"
	StatefulSetMissing    Rule = "statefulset-missing"
	VolumeMissing         Rule = "volume-missing"
	MembersNotReady       Rule = "members-not-ready"
	ConfirmationMissing   Rule = "confirmation-missing"
	ConfirmationStale     Rule = "confirmation-stale"
	ConfirmationUnnoted   Rule = "confirmation-unnoted"
	StampForged           Rule = "stamp-forged"
	VolumesMoved          Rule = "volumes-moved"
	StampMissing          Rule = "stamp-missing"
)

// Rules returns the names of all rules in the order in which they speak.
func Rules() []Rule {
	names := []Rule{RequestUnknown}
	for _, r := range slices.Concat(changeRules, markRules) {
		names = append(names, r.name)
	}
	return names
}

type rule struct {
	name  Rule
	speak func(*judged) *Refusal // nil = no objection
}

// changeRules judge the change. All are heard, in this order.
var changeRules = []rule{
	{LookUpFailed, lookUpFailed},
	{EtcdDeleting, etcdDeleting},
	{StampUnreadable, stampUnreadable},
	{OperationNotSupported, operationNotSupported},
	{ReplicasChanged, replicasChanged},
	{ScaledToZero, scaledToZero},
	{CapacityNotPositive, capacityNotPositive},
	{ClassMissing, classMissing},
	{ClassDeleting, classDeleting},
	{StatefulSetMissing, statefulSetMissing},
	{VolumeMissing, volumeMissing},
	{MembersNotReady, membersNotReady},
	{ConfirmationMissing, confirmationMissing},
	{ConfirmationStale, confirmationStale},
	{ConfirmationUnnoted, confirmationUnnoted},
}

// markRules judge our annotations on the object that is about to be stored. They are heard after the others, by the validating webhook
// alone: what must be written depends on whether the change itself is allowed.
var markRules = []rule{
	{StampForged, stampForged},
	{VolumesMoved, volumesMoved},
	{StampMissing, stampMissing},
}

// A failed look-up never allows. What is merely told (who leads, the age of backups) is not needed to decide.
func lookUpFailed(c *judged) *Refusal {
	if c.operation == "" {
		return nil
	}
	var failed []string
	for _, f := range []struct{ what, why string }{
		{"the StatefulSet", c.StatefulSet.Unknown},
		{"the volumes", c.Claims.Unknown},
		{"the storage class", c.Class.Unknown},
		{"the members", c.Members.Unknown},
		{"the running rollout", c.Rollout.Unknown},
	} {
		if f.why != "" {
			failed = append(failed, f.what+": "+f.why)
		}
	}
	if failed == nil {
		return nil
	}
	return &Refusal{Subjects: failed}
}

// The volumes go anyway, and nobody would finish the rollout.
func etcdDeleting(c *judged) *Refusal {
	if c.operation == "" || c.Before.DeletionTimestamp == nil {
		return nil
	}
	return &Refusal{Field: "metadata.deletionTimestamp"}
}

// The next volume generation, and so the token, follows from the stamp.
func stampUnreadable(c *judged) *Refusal {
	if c.operation == "" || c.stampErr == nil {
		return nil
	}
	return &Refusal{Field: annotationField(volume.StampAnnotation), Detail: c.stampErr.Error()}
}

// Each operation is recognised, so that none slips through as another one; those without an engine are refused.
func operationNotSupported(c *judged) *Refusal {
	if c.operation == "" || c.supported() {
		return nil
	}
	return &Refusal{Field: c.operationField(), Detail: string(c.operation)}
}

// Two changes of members at a time can not be ordered against each other, and the plan would be for another number of members.
func replicasChanged(c *judged) *Refusal {
	if c.operation == "" || c.operation == confirm.Release || c.Before.Spec.Replicas == c.After.Spec.Replicas {
		return nil
	}
	return &Refusal{
		Field:    "spec.replicas",
		Subjects: []string{strconv.Itoa(int(c.Before.Spec.Replicas)), strconv.Itoa(int(c.After.Spec.Replicas))},
	}
}

// Nothing can be proven about a stopped member: neither what it acknowledged last nor that another one has it too.
func scaledToZero(c *judged) *Refusal {
	if c.operation == "" || c.operation == confirm.Expand || c.operation == confirm.Release || c.Before.Spec.Replicas > 0 {
		return nil
	}
	return &Refusal{Field: "spec.replicas", Subjects: names(c.Claims.Value)}
}

func capacityNotPositive(c *judged) *Refusal {
	if c.operation == "" || c.changes.Empty() || c.changes.After.Capacity.Sign() > 0 {
		return nil
	}
	return &Refusal{Field: string(change.StorageCapacity), Detail: c.changes.After.Capacity.String()}
}

// The new volume of the first member would wait for its class for ever, with the member out.
func classMissing(c *judged) *Refusal {
	if c.operation == "" || !c.Class.OK() || c.Class.Value != nil {
		return nil
	}
	return &Refusal{Field: string(change.StorageClass), Detail: c.changes.After.Class}
}

func classDeleting(c *judged) *Refusal {
	if c.operation == "" || !c.Class.OK() || c.Class.Value == nil || !c.Class.Value.Deleting {
		return nil
	}
	return &Refusal{Field: string(change.StorageClass), Detail: c.Class.Value.Name}
}

// The StatefulSet is recreated from the live one: without it there is nothing to recreate, and nobody to make the new volume's pod.
func statefulSetMissing(c *judged) *Refusal {
	if c.operation == "" || !c.StatefulSet.OK() || (c.StatefulSet.Value != nil && !c.StatefulSet.Value.Deleting) {
		return nil
	}
	return &Refusal{Subjects: []string{c.Before.Name}}
}

// A claim that is on its way out or in has no UID that could be confirmed.
func volumeMissing(c *judged) *Refusal {
	if c.operation == "" || !c.Claims.OK() {
		return nil
	}
	var missing []string
	for i := range c.replicas() {
		lives := func(claim Claim) bool { return claim.Ordinal == i && !claim.Deleting }
		if !slices.ContainsFunc(c.Claims.Value, lives) {
			missing = append(missing, volume.PodName(c.Before.Name, i))
		}
	}
	if missing == nil {
		return nil
	}
	return &Refusal{Subjects: missing}
}

// With a member out already, taking out another one costs the majority. While a rollout runs one may be out: see doc.go.
func membersNotReady(c *judged) *Refusal {
	if c.operation == "" || c.operation == confirm.Recover || !c.Members.OK() {
		return nil
	}
	var sick []string
	for i := range c.replicas() {
		if !c.ready(i) {
			sick = append(sick, volume.PodName(c.Before.Name, i))
		}
	}
	if sick == nil || (len(sick) == 1 && c.rolloutRuns()) {
		return nil
	}
	return &Refusal{Subjects: sick, Detail: fmt.Sprintf("%d of %d", c.replicas()-len(sick), c.replicas())}
}

func confirmationMissing(c *judged) *Refusal {
	if c.ask == nil || c.given != "" {
		return nil
	}
	return &Refusal{Field: annotationField(volume.ConfirmAnnotation), Detail: c.token()}
}

// It was used, was given for another change, or for other volumes, or was copied from another Etcd.
func confirmationStale(c *judged) *Refusal {
	if c.ask == nil || c.given == "" || c.given == c.token() {
		return nil
	}
	refusal := &Refusal{Field: annotationField(volume.ConfirmAnnotation), Detail: c.given}
	if c.stamp != nil && c.stamp.Token == c.given {
		refusal.Subjects = []string{strconv.FormatInt(c.stamp.Generation, 10)} // used for this volume generation
	}
	return refusal
}

// Somebody said yes, and nobody knows who: the mutating webhook did not see it.
func confirmationUnnoted(c *judged) *Refusal {
	if c.ask == nil || c.given == "" || c.given != c.token() || c.by != "" {
		return nil
	}
	return &Refusal{Field: annotationField(volume.ConfirmedByAnnotation), Detail: c.given}
}

// Neither the stamp nor the note may be written, altered or taken away by anybody but the mutating webhook.
func stampForged(c *judged) *Refusal {
	var forged []string
	if c.noteState() == markForged {
		forged = append(forged, volume.ConfirmedByAnnotation)
	}
	if c.stampState() == markForged {
		forged = append(forged, volume.StampAnnotation)
	}
	if forged == nil {
		return nil
	}
	return &Refusal{Field: annotationField(forged[0]), Subjects: forged}
}

// The two webhooks look one after the other; a claim may be replaced in between.
func volumesMoved(c *judged) *Refusal {
	if c.stampState() != markMoved {
		return nil
	}
	return &Refusal{Field: annotationField(volume.StampAnnotation)}
}

// The mutating webhook is asked with failurePolicy Ignore: where it did not answer, its marks are missing.
func stampMissing(c *judged) *Refusal {
	var missing []string
	if c.noteState() == markMissing {
		missing = append(missing, volume.ConfirmedByAnnotation)
	}
	if c.stampState() == markMissing {
		missing = append(missing, volume.StampAnnotation)
	}
	missing = append(missing, c.unheld()...)
	if missing == nil {
		return nil
	}
	return &Refusal{Field: annotationField(missing[0]), Subjects: missing}
}

// operationField is where the user asked for the operation.
func (c *judged) operationField() string {
	switch c.operation {
	case confirm.Recover:
		return annotationField(volume.RecoverAnnotation)
	case confirm.Release:
		return annotationField(volume.ReleaseAnnotation)
	case confirm.Recreate:
		return annotationField(volume.RecreateAnnotation)
	case confirm.Expand, confirm.Replace:
	}
	if len(c.changes.Changes) == 0 {
		return "spec"
	}
	return string(c.changes.Changes[0].Field)
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

func names(claims []Claim) []string {
	var all []string
	for _, claim := range claims {
		all = append(all, claim.Name)
	}
	return all
}
