package plan

import (
	"fmt"
	"time"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Action is what a step does. One action, one write.
type Action string

// Actions. Those from Idle to Abort write nothing but the status.
const (
	Idle      Action = "Idle"      // nothing to do
	Wait      Action = "Wait"      // something must happen first
	Reject    Action = "Reject"    // the stamp is not one that may be acted on
	Finish    Action = "Finish"    // the rollout is complete
	Supersede Action = "Supersede" // a newer rollout takes over
	Abort     Action = "Abort"     // the rollout ends without having done its work

	CreateRollout     Action = "CreateRollout"
	HoldDruid         Action = "HoldDruid"
	ReleaseDruid      Action = "ReleaseDruid"
	TakeSnapshot      Action = "TakeSnapshot"
	RecordStatefulSet Action = "RecordStatefulSet"
	DropRecord        Action = "DropRecord"
	DeleteStatefulSet Action = "DeleteStatefulSet"
	CreateStatefulSet Action = "CreateStatefulSet"
	ProtectVolume     Action = "ProtectVolume"
	MoveLeader        Action = "MoveLeader"
	DeleteClaim       Action = "DeleteClaim"
	EvictPod          Action = "EvictPod"
	KeepVolume        Action = "KeepVolume"    // note until when it is retained
	RestorePolicy     Action = "RestorePolicy" // original policy back, our marks gone
	RemoveFinalizer   Action = "RemoveFinalizer"
)

// Actions lists all of them.
func Actions() []Action {
	return []Action{
		Idle, Wait, Reject, Finish, Supersede, Abort, CreateRollout, HoldDruid, ReleaseDruid, TakeSnapshot, RecordStatefulSet,
		DropRecord, DeleteStatefulSet, CreateStatefulSet, ProtectVolume, MoveLeader, DeleteClaim, EvictPod, KeepVolume, RestorePolicy,
		RemoveFinalizer,
	}
}

// Writes reports whether the action changes anything but the status of the rollout.
func (a Action) Writes() bool {
	switch a {
	case Idle, Wait, Reject, Finish, Supersede, Abort:
		return false
	case CreateRollout, HoldDruid, ReleaseDruid, TakeSnapshot, RecordStatefulSet, DropRecord, DeleteStatefulSet, CreateStatefulSet,
		ProtectVolume, MoveLeader, DeleteClaim, EvictPod, KeepVolume, RestorePolicy, RemoveFinalizer:
		return true
	}
	return true
}

// Reason is the CamelCase name of a step or gate. Reasons are API: they stand in status, conditions and metrics.
type Reason string

// Reasons to wait.
const (
	DoorNotStanding       Reason = "DoorNotStanding"
	SpecDiffersFromStamp  Reason = "SpecDiffersFromStamp"
	StampMissing          Reason = "StampMissing"
	StampInvalid          Reason = "StampInvalid"
	OperationNotSupported Reason = "OperationNotSupported"
	PreviousRolloutGoing  Reason = "PreviousRolloutGoing"
	DruidNotHeld          Reason = "DruidNotHeld"
	DruidBusy             Reason = "DruidBusy"
	ClassMissing          Reason = "ClassMissing"
	ClassDeleting         Reason = "ClassDeleting"
	ProvisionerUnknown    Reason = "ProvisionerUnknown"
	ClaimRefused          Reason = "ClaimRefused"
	ClaimNotConfirmed     Reason = "ClaimNotConfirmed"
	ClaimMissing          Reason = "ClaimMissing"
	ReplicasChanged       Reason = "ReplicasChanged"
	StatefulSetMissing    Reason = "StatefulSetMissing"
	StatefulSetForeign    Reason = "StatefulSetForeign"
	StatefulSetNotSettled Reason = "StatefulSetNotSettled"
	StatefulSetLeaving    Reason = "StatefulSetLeaving"
	PodsNotAdopted        Reason = "PodsNotAdopted"
	MembersNotReady       Reason = "MembersNotReady"
	DatabaseTooLarge      Reason = "DatabaseTooLarge"
	SnapshotFailed        Reason = "SnapshotFailed"
	SnapshotNotProven     Reason = "SnapshotNotProven"
	VolumeMissing         Reason = "VolumeMissing"
	VolumeForeign         Reason = "VolumeForeign"
	EvictionRefused       Reason = "EvictionRefused"
	NoTransferee          Reason = "NoTransferee"
	LeaderUndecided       Reason = "LeaderUndecided"
	PodLeaving            Reason = "PodLeaving"
	ClaimLeaving          Reason = "ClaimLeaving"
	ClaimPending          Reason = "ClaimPending"
	PodPending            Reason = "PodPending"
	Resyncing             Reason = "Resyncing"
	ResyncNotProven       Reason = "ResyncNotProven"
	ForeignCluster        Reason = "ForeignCluster"
	Soaking               Reason = "Soaking"
	PromiseAtRisk         Reason = "PromiseAtRisk"
)

// Target is the object that a step acts on, as it was seen: the write carries UID and resourceVersion.
type Target struct{ Name, UID, ResourceVersion string }

// Step is the one thing that is done in a pass.
type Step struct {
	Action  Action
	Reason  Reason
	Message string // one sentence for people: what is done or waited for
	Rollout string // name of the rollout on whose behalf; "" for none
	Phase   v1alpha1.Phase
	Stalled bool // waited beyond the deadline
	Member  int  // ordinal; -1 for none
	Target  Target
	// Again is when to look again even if nothing is reported; 0: not at all.
	Again time.Duration

	Spec       volume.Spec    // CreateStatefulSet: of the claim template
	From       volume.Spec    // CreateStatefulSet: of the template to be replaced
	Mark       Mark           // ProtectVolume, KeepVolume
	Policy     string         // RestorePolicy
	Transferee uint64         // MoveLeader
	Held       confirm.Held   // HoldDruid, ReleaseDruid: which annotations
	Stamp      *confirm.Stamp // CreateRollout
	Replicas   int            // CreateRollout
	PodUIDs    []string       // RecordStatefulSet
	Generation int64          // RecordStatefulSet: of the StatefulSet that was seen
}

// Refuse is the step to take instead of one that Check has refused: none, and say why.
func Refuse(step Step, err error) Step {
	return Step{
		Action: Wait, Reason: PromiseAtRisk, Message: fmt.Sprintf("%s is not done: %v", step.Action, err), Rollout: step.Rollout,
		Phase: step.Phase, Member: step.Member, Again: lookAgain,
	}
}

// lookAgain is the pace of looking while something is waited for; watches are faster, this catches what has no watch.
const lookAgain = time.Second
