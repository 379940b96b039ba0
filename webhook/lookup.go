package webhook

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// defaultClassAnnotation marks the class that claims without a class get.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

var errNoClaimTemplate = errors.New("it has no claim template")

// lookUp gathers the facts about one Etcd, all at once. Each look-up that fails makes its fact unknown, and no other one.
func (h *Handler) lookUp(ctx context.Context, reader client.Reader, asked verdict.Request) verdict.Facts {
	look := look{reader: reader, live: h.live, etcd: asked.Before}
	f := verdict.Facts{Now: h.now(), Retain: h.retain}
	var wg sync.WaitGroup
	wg.Go(func() {
		f.StatefulSet = fact(look.statefulSet(ctx))
		f.Claims = fact(look.claims(ctx, f.StatefulSet.Value))
	})
	wg.Go(func() { f.Class = fact(look.class(ctx, volume.Of(asked.After).Class)) })
	wg.Go(func() { f.Members = fact(look.members(ctx)) })
	wg.Go(func() { f.Leases = fact(look.leases(ctx)) })
	wg.Go(func() { f.Backup = fact(look.backup(ctx)) })
	wg.Go(func() { f.Rollout = fact(look.rollout(ctx)) })
	if h.side == verdict.Mutating && frozenFieldChanged(asked) {
		wg.Go(func() { f.Freezes = fact(freezes(ctx, h.live)) })
	}
	wg.Wait()
	return f
}

func frozenFieldChanged(asked verdict.Request) bool {
	set := change.Between(volume.Of(asked.Before), volume.Of(asked.After))
	return set.Has(change.Reclass) || set.Has(change.Retemplate)
}

func fact[T any](value T, err error) verdict.Fact[T] {
	if err != nil {
		return verdict.Unknown[T](err)
	}
	return verdict.Known(value)
}

// look reads what is live of one Etcd. Missing is nil or left out; only a failed look is an error.
type look struct {
	reader client.Reader
	live   client.Reader // for pods and leases, see doc.go
	etcd   *volume.Etcd
}

func (l look) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: l.etcd.Namespace, Name: name}
}

func (l look) replicas() int { return min(int(l.etcd.Spec.Replicas), verdict.MostMembers) }

func (l look) statefulSet(ctx context.Context) (*verdict.StatefulSet, error) {
	var set appsv1.StatefulSet
	err := l.reader.Get(ctx, l.key(l.etcd.Name), &set)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // missing is nil
	}
	if err != nil {
		return nil, err
	}
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil, errNoClaimTemplate
	}
	s := &verdict.StatefulSet{UID: string(set.UID), Deleting: set.DeletionTimestamp != nil, Replicas: 1}
	if set.Spec.Replicas != nil {
		s.Replicas = *set.Spec.Replicas
	}
	template := set.Spec.VolumeClaimTemplates[0]
	s.Template = volume.Spec{Class: classOf(template.Spec), Capacity: *template.Spec.Resources.Requests.Storage(), Template: template.Name}
	return s, nil
}

func classOf(spec corev1.PersistentVolumeClaimSpec) string {
	if spec.StorageClassName == nil {
		return ""
	}
	return *spec.StorageClassName
}

// claims are found by their names, whatever their labels: that is how the StatefulSet finds them.
func (l look) claims(ctx context.Context, set *verdict.StatefulSet) ([]verdict.Claim, error) {
	template := volume.Of(l.etcd).Template
	if set != nil {
		template = set.Template.Template
	}
	named := regexp.MustCompile("^" + regexp.QuoteMeta(template+"-"+l.etcd.Name) + "-([0-9]{1,4})$")
	var list corev1.PersistentVolumeClaimList
	if err := l.reader.List(ctx, &list, client.InNamespace(l.etcd.Namespace)); err != nil {
		return nil, err
	}
	var claims []verdict.Claim
	for i := range list.Items {
		pvc := &list.Items[i]
		match := named.FindStringSubmatch(pvc.Name)
		if match == nil || l.ofAnother(pvc) {
			continue
		}
		ordinal, err := strconv.Atoi(match[1])
		if err != nil {
			return nil, fmt.Errorf("read the ordinal of claim %s: %w", pvc.Name, err)
		}
		claims = append(claims, verdict.Claim{
			Ordinal: ordinal, Name: pvc.Name, UID: string(pvc.UID), Class: classOf(pvc.Spec),
			Capacity: *pvc.Spec.Resources.Requests.Storage(), Volume: pvc.Spec.VolumeName,
			Policy: l.policy(ctx, pvc.Spec.VolumeName), Deleting: pvc.DeletionTimestamp != nil,
		})
	}
	slices.SortFunc(claims, func(a, b verdict.Claim) int { return a.Ordinal - b.Ordinal })
	return claims, nil
}

// ofAnother: the names of two Etcds can meet (template a-b of Etcd c, template a of Etcd b-c); the label that claims inherit tells them
// apart where it is set.
func (l look) ofAnother(pvc *corev1.PersistentVolumeClaim) bool {
	owner, labelled := pvc.Labels[volume.PartOfLabel]
	return labelled && owner != l.etcd.Name
}

// policy is told, not judged: "" where it is not known.
func (l look) policy(ctx context.Context, name string) string {
	var pv corev1.PersistentVolume
	if name == "" || l.reader.Get(ctx, types.NamespacedName{Name: name}, &pv) != nil {
		return ""
	}
	return string(pv.Spec.PersistentVolumeReclaimPolicy)
}

func (l look) class(ctx context.Context, name string) (*verdict.Class, error) {
	if name == "" {
		return l.defaultClass(ctx)
	}
	var sc storagev1.StorageClass
	err := l.reader.Get(ctx, types.NamespacedName{Name: name}, &sc)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // missing is nil
	}
	if err != nil {
		return nil, err
	}
	return classFact(&sc), nil
}

// defaultClass is the newest of the classes that say they are the default, as the API server chooses it.
func (l look) defaultClass(ctx context.Context) (*verdict.Class, error) {
	var list storagev1.StorageClassList
	if err := l.reader.List(ctx, &list); err != nil {
		return nil, err
	}
	var newest *storagev1.StorageClass
	for i := range list.Items {
		sc := &list.Items[i]
		if sc.Annotations[defaultClassAnnotation] != "true" {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&sc.CreationTimestamp) ||
			(newest.CreationTimestamp.Equal(&sc.CreationTimestamp) && sc.Name < newest.Name) {
			newest = sc
		}
	}
	if newest == nil {
		return nil, nil //nolint:nilnil // missing is nil
	}
	return classFact(newest), nil
}

func classFact(sc *storagev1.StorageClass) *verdict.Class {
	return &verdict.Class{
		Name: sc.Name, Provisioner: sc.Provisioner, Deleting: sc.DeletionTimestamp != nil,
		Immediate:  sc.VolumeBindingMode == nil || *sc.VolumeBindingMode == storagev1.VolumeBindingImmediate,
		Expandable: sc.AllowVolumeExpansion != nil && *sc.AllowVolumeExpansion,
	}
}

func (l look) members(ctx context.Context) ([]verdict.Member, error) {
	var members []verdict.Member
	for i := range l.replicas() {
		name := volume.PodName(l.etcd.Name, i)
		var pod corev1.Pod
		err := l.live.Get(ctx, l.key(name), &pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		members = append(members, verdict.Member{Ordinal: i, Name: name, Ready: err == nil && ready(&pod)})
	}
	return members, nil
}

func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// leases read what each member says of itself: "memberID:clusterID:role".
func (l look) leases(ctx context.Context) ([]verdict.Lease, error) {
	var leases []verdict.Lease
	for i := range l.replicas() {
		lease, err := l.lease(ctx, volume.MemberName(l.etcd, i))
		if err != nil {
			return nil, err
		}
		if lease == nil || lease.Spec.HolderIdentity == nil {
			continue
		}
		fact := verdict.Lease{Ordinal: i, Leader: strings.HasSuffix(*lease.Spec.HolderIdentity, ":Leader")}
		if lease.Spec.RenewTime != nil {
			fact.Renewed = lease.Spec.RenewTime.Time
		}
		leases = append(leases, fact)
	}
	return leases, nil
}

// backup reads when the sidecar noted its newest snapshots.
func (l look) backup(ctx context.Context) (verdict.Backup, error) {
	b := verdict.Backup{Store: l.etcd.HasStore()}
	if !b.Store {
		return b, nil
	}
	for _, of := range []struct {
		lease string
		time  **time.Time
	}{{l.etcd.Name + "-full-snap", &b.Full}, {l.etcd.Name + "-delta-snap", &b.Delta}} {
		lease, err := l.lease(ctx, of.lease)
		if err != nil {
			return verdict.Backup{}, err
		}
		if lease != nil && lease.Spec.RenewTime != nil {
			*of.time = &lease.Spec.RenewTime.Time
		}
	}
	return b, nil
}

func (l look) lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	err := l.live.Get(ctx, l.key(name), &lease)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // missing is nil
	}
	if err != nil {
		return nil, err
	}
	return &lease, nil
}

// rollout is the newest one of this Etcd, not of an earlier one of the same name.
func (l look) rollout(ctx context.Context) (*verdict.Rollout, error) {
	var list v1alpha1.VolumeRolloutList
	if err := l.reader.List(ctx, &list, client.InNamespace(l.etcd.Namespace)); err != nil {
		return nil, err
	}
	var newest *verdict.Rollout
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.Etcd.UID != l.etcd.UID || (newest != nil && newest.Generation >= r.Spec.VolumeGeneration) {
			continue
		}
		newest = &verdict.Rollout{
			Name: r.Name, Generation: r.Spec.VolumeGeneration, Phase: string(r.Status.Phase), Progress: r.Status.Progress,
			Final: final(r.Status.Phase),
		}
	}
	return newest, nil
}

// final: an unknown phase is taken for one that still runs.
func final(p v1alpha1.Phase) bool {
	return p == v1alpha1.Complete || p == v1alpha1.Superseded || p == v1alpha1.Aborted
}
