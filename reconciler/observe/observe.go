package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/members"
	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Asker asks members of an Etcd about themselves and their cluster.
type Asker interface {
	Ask(ctx context.Context, etcd *volume.Etcd, ordinals []int) members.Answer
}

// Observer reads the cluster.
type Observer struct {
	Reader  client.Reader // uncached
	Trial   client.Client // used for dry runs alone
	Members Asker
	Options plan.Options
}

// New returns an Observer whose trials can change nothing, whatever is asked of them.
func New(reader client.Reader, c client.Client, asker Asker, options plan.Options) Observer {
	return Observer{Reader: reader, Trial: client.NewDryRunClient(c), Members: asker, Options: options}
}

// rounds is how many questions one pass may put: a claim and an eviction, and once more to see that none is left.
const rounds = 3

// Cluster returns all that is known of the Etcd.
func (o Observer) Cluster(ctx context.Context, key types.NamespacedName, now time.Time) (plan.Snapshot, error) {
	s := plan.Snapshot{Namespace: key.Namespace, Name: key.Name, Options: o.Options}
	etcd, err := o.base(ctx, key, &s)
	if err != nil {
		return s, err
	}
	if err := o.members(ctx, etcd, &s); err != nil {
		return s, err
	}
	if err := o.volumes(ctx, &s); err != nil {
		return s, err
	}
	if !s.Active() {
		return s, nil
	}
	if err := o.surroundings(ctx, &s); err != nil {
		return s, err
	}
	if etcd != nil {
		o.askMembers(ctx, etcd, &s)
	}
	return s, o.answer(ctx, &s, now)
}

// find is a Get for which absence is an outcome.
func (o Observer) find(ctx context.Context, namespace, name string, obj client.Object) (bool, error) {
	err := o.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get %T %s/%s: %w", obj, namespace, name, err)
	}
	return true, nil
}

// base reads the Etcd, its rollouts and its StatefulSet.
func (o Observer) base(ctx context.Context, key types.NamespacedName, s *plan.Snapshot) (*volume.Etcd, error) {
	var etcd volume.Etcd
	found, err := o.find(ctx, key.Namespace, key.Name, &etcd)
	if err != nil {
		return nil, err
	}
	if found {
		s.Etcd = etcdOf(&etcd)
		if s.Stamp, err = confirm.Read(etcd.Annotations); err != nil {
			s.StampError = err.Error()
		}
	}
	if s.Rollouts, err = o.rollouts(ctx, key); err != nil {
		return nil, err
	}
	var set appsv1.StatefulSet
	exists, err := o.find(ctx, key.Namespace, key.Name, &set)
	if err != nil {
		return nil, err
	}
	if exists {
		s.StatefulSet = statefulSetOf(&set)
	}
	if !found {
		return nil, nil
	}
	return &etcd, nil
}

func (o Observer) rollouts(ctx context.Context, key types.NamespacedName) ([]plan.Rollout, error) {
	var list v1alpha1.VolumeRolloutList
	if err := o.Reader.List(ctx, &list, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("list rollouts in %s: %w", key.Namespace, err)
	}
	var rollouts []plan.Rollout
	for i := range list.Items {
		if list.Items[i].Spec.Etcd.Name == key.Name {
			rollouts = append(rollouts, rolloutOf(&list.Items[i]))
		}
	}
	slices.SortFunc(rollouts, func(a, b plan.Rollout) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Name, b.Name))
	})
	return rollouts, nil
}

// members reads claims; while there is work also volumes, pods and leases.
func (o Observer) members(ctx context.Context, etcd *volume.Etcd, s *plan.Snapshot) error {
	count, template := shape(*s)
	for i := range count {
		m := plan.Member{Ordinal: i, Name: volume.PodName(s.Name, i), PodName: volume.PodName(s.Name, i)}
		if etcd != nil {
			m.Name = volume.MemberName(etcd, i)
		}
		var claim corev1.PersistentVolumeClaim
		found, err := o.find(ctx, s.Namespace, volume.ClaimName(template, s.Name, i), &claim)
		if err != nil {
			return err
		}
		if found {
			m.Claim = claimOf(&claim, template)
		}
		s.Members = append(s.Members, m)
	}
	if !s.Active() {
		return nil
	}
	for i := range s.Members {
		if err := o.memberParts(ctx, s.Namespace, &s.Members[i]); err != nil {
			return err
		}
	}
	return nil
}

// shape is the number of members and the name of their claim template: from the Etcd, or from its last rollout where it is gone.
func shape(s plan.Snapshot) (int, string) {
	if s.Etcd != nil {
		return s.Etcd.Replicas, s.Etcd.Wanted.Template
	}
	if n := len(s.Rollouts); n > 0 {
		return s.Rollouts[n-1].Replicas, s.Rollouts[n-1].To.Template
	}
	return 0, ""
}

// memberParts reads what belongs to a member: its pod first, as a claim that is being deleted is looked at again after it.
func (o Observer) memberParts(ctx context.Context, namespace string, m *plan.Member) error {
	var pod corev1.Pod
	found, err := o.find(ctx, namespace, m.PodName, &pod)
	if err != nil {
		return err
	}
	if found {
		m.Pod = podOf(&pod)
	}
	if err := o.claimAgain(ctx, namespace, m); err != nil {
		return err
	}
	if err := o.claimedVolume(ctx, m); err != nil {
		return err
	}
	var lease coordinationv1.Lease
	found, err = o.find(ctx, namespace, m.Name, &lease)
	if err != nil {
		return err
	}
	if found {
		m.Lease = leaseOf(&lease)
	}
	o.warning(ctx, namespace, m.Claim)
	return nil
}

// claimAgain looks again at a claim that was being deleted. Were it read before the pod alone, the pod could be the next one, which lives on
// the claim's successor and must not be evicted.
func (o Observer) claimAgain(ctx context.Context, namespace string, m *plan.Member) error {
	before := m.Claim
	if before == nil || !before.Deleting {
		return nil
	}
	var claim corev1.PersistentVolumeClaim
	found, err := o.find(ctx, namespace, before.Name, &claim)
	if err != nil {
		return err
	}
	m.Claim = nil
	if found {
		m.Claim = claimOf(&claim, before.Spec.Template)
	}
	return nil
}

// claimedVolume reads the volume of the member's claim.
func (o Observer) claimedVolume(ctx context.Context, m *plan.Member) error {
	if m.Claim == nil || m.Claim.VolumeName == "" {
		return nil
	}
	var pv corev1.PersistentVolume
	found, err := o.find(ctx, "", m.Claim.VolumeName, &pv)
	if err != nil {
		return err
	}
	if found {
		m.Volume = volumeOf(&pv)
	}
	return nil
}

// warning reads what the provisioner or scheduler says of a claim that has no volume yet. Words only: no decision rests on
// them, so that they can not be read is no reason to stop.
func (o Observer) warning(ctx context.Context, namespace string, claim *plan.Claim) {
	if claim == nil || claim.Bound {
		return
	}
	var events corev1.EventList
	if err := o.Reader.List(ctx, &events, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": claim.UID}); err != nil {
		claim.Warning = "its events can not be read"
		return
	}
	claim.Warning = newestWarning(events.Items)
}

// volumes reads the volumes that bear our labels for this Etcd, and whether their claims live.
func (o Observer) volumes(ctx context.Context, s *plan.Snapshot) error {
	var list corev1.PersistentVolumeList
	if err := o.Reader.List(ctx, &list, client.MatchingLabels{volume.EtcdNamespaceLabel: s.Namespace, volume.EtcdLabel: s.Name}); err != nil {
		return fmt.Errorf("list volumes of %s/%s: %w", s.Namespace, s.Name, err)
	}
	for i := range list.Items {
		v := volumeOf(&list.Items[i])
		if v.ClaimName != "" {
			var claim corev1.PersistentVolumeClaim
			found, err := o.find(ctx, v.ClaimNamespace, v.ClaimName, &claim)
			if err != nil {
				return err
			}
			v.ClaimLives = found && claim.DeletionTimestamp.IsZero() && string(claim.UID) == v.Mark.ClaimUID
		}
		s.Volumes = append(s.Volumes, *v)
	}
	slices.SortFunc(s.Volumes, func(a, b plan.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// surroundings reads door, records, class and backup.
func (o Observer) surroundings(ctx context.Context, s *plan.Snapshot) error {
	var door admissionv1.ValidatingWebhookConfiguration
	found, err := o.find(ctx, "", DoorName, &door)
	if err != nil {
		return err
	}
	s.Door = plan.Door{Fault: "the validating webhook configuration " + DoorName + " does not exist"}
	if found {
		s.Door = doorOf(&door, s.Namespace)
	}
	if s.Records, err = o.records(ctx, *s); err != nil {
		return err
	}
	if err := o.class(ctx, s); err != nil {
		return err
	}
	var lease coordinationv1.Lease
	found, err = o.find(ctx, s.Namespace, s.Name+"-full-snap", &lease)
	if err != nil {
		return err
	}
	if found {
		s.Backup = backupOf(&lease)
	}
	return nil
}

func (o Observer) records(ctx context.Context, s plan.Snapshot) ([]plan.Record, error) {
	var records []plan.Record
	for _, r := range s.Rollouts {
		var rev appsv1.ControllerRevision
		found, err := o.find(ctx, s.Namespace, plan.RecordName(r.Name), &rev)
		if err != nil {
			return nil, err
		}
		if !found || !ownedBy(&rev, r.UID) {
			continue
		}
		rec, err := recordOf(&rev)
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	slices.SortFunc(records, func(a, b plan.Record) int { return cmp.Compare(a.Name, b.Name) })
	return records, nil
}

func ownedBy(obj metav1.Object, uid string) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return string(ref.UID) == uid })
}

// class reads the class that is wanted, or the cluster's default one where none is.
func (o Observer) class(ctx context.Context, s *plan.Snapshot) error {
	if s.Etcd == nil {
		return nil
	}
	if s.Etcd.Wanted.Class == "" {
		return o.defaultClass(ctx, s)
	}
	var class storagev1.StorageClass
	found, err := o.find(ctx, "", s.Etcd.Wanted.Class, &class)
	if err == nil && found {
		s.Class = classOf(&class)
	}
	return err
}

// defaultClass picks as the API server does: of several default classes the youngest.
func (o Observer) defaultClass(ctx context.Context, s *plan.Snapshot) error {
	var list storagev1.StorageClassList
	if err := o.Reader.List(ctx, &list); err != nil {
		return fmt.Errorf("list storage classes: %w", err)
	}
	var youngest *storagev1.StorageClass
	for i := range list.Items {
		c := &list.Items[i]
		if c.Annotations[defaultClassAnnotation] != "true" {
			continue
		}
		if youngest == nil || youngest.CreationTimestamp.Before(&c.CreationTimestamp) {
			youngest = c
		}
	}
	if youngest != nil {
		s.Class = classOf(youngest)
	}
	return nil
}

// askMembers asks those whose etcd runs; the others can not answer, and waiting for them would slow every pass.
func (o Observer) askMembers(ctx context.Context, etcd *volume.Etcd, s *plan.Snapshot) {
	var ordinals []int
	for _, m := range s.Members {
		if m.Pod != nil && m.Pod.Running && !m.Pod.Deleting {
			ordinals = append(ordinals, m.Ordinal)
		}
	}
	answer := o.Members.Ask(ctx, etcd, ordinals)
	s.Cluster = plan.Cluster{Alarms: answer.Alarms, Trouble: answer.Trouble}
	for _, l := range answer.Listed {
		s.Cluster.Listed = append(s.Cluster.Listed, plan.Listed(l))
	}
	for _, v := range answer.Views {
		if v.Ordinal < len(s.Members) {
			s.Members[v.Ordinal].View = plan.View{
				Reached: v.Reached, Error: v.Error, MemberID: v.MemberID, ClusterID: v.ClusterID, Leader: v.Leader, Learner: v.Learner,
				Applied: v.Applied, Index: v.Index, DBSize: v.DBSize, Reads: v.Reads,
			}
		}
	}
}
