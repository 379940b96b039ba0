package stage

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// SecondsAtMost is how long the StatefulSet may be away (promise 6) while the operator lives.
const SecondsAtMost = 5 * time.Second

// Judge replays the history of one Etcd and returns every promise of the design that was broken, in words. Promises that
// can not be read off the history (7: preconditions, 10: the data) are judged by JudgeDeletes and by reading the keys back.
// The StatefulSet may be gone for so long: SecondsAtMost, and where the operator is killed the time until another one leads.
func Judge(events []Event, namespace, name string, gone time.Duration) []string {
	j := &judge{
		namespace: namespace, name: name, goneAtMost: gone,
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}, pods: map[string]*corev1.Pod{},
	}
	for _, e := range events {
		j.see(e)
	}
	if j.gone != nil && !j.leaving() {
		j.broken("6", "the StatefulSet was deleted and did not come back")
	}
	return j.verdict
}

type judge struct {
	namespace, name string
	goneAtMost      time.Duration
	etcd            *volume.Etcd
	set, gone       *appsv1.StatefulSet
	goneAt          time.Time
	gonePods        map[string]types.UID
	claims          map[string]*corev1.PersistentVolumeClaim
	volumes         map[string]*corev1.PersistentVolume
	pods            map[string]*corev1.Pod
	verdict         []string
}

func (j *judge) broken(promise, format string, args ...any) {
	j.verdict = append(j.verdict, "promise "+promise+": "+fmt.Sprintf(format, args...))
}

func (j *judge) see(e Event) {
	if !j.concerned(e) {
		return
	}
	switch e.Resource {
	case "etcds":
		j.etcd = convert[volume.Etcd](e)
	case "statefulsets":
		j.seeSet(e)
	case "persistentvolumes":
		j.volumes[e.Object.GetName()] = keep[corev1.PersistentVolume](e)
	case "persistentvolumeclaims":
		j.seeClaim(e)
	case "pods":
		j.seePod(e)
	}
}

// concerned reports whether the event is about the Etcd or what belongs to it. Volumes are kept all: which of them belong
// to it is known by their claims.
func (j *judge) concerned(e Event) bool {
	switch e.Resource {
	case "persistentvolumes":
		return true
	case "etcds", "statefulsets":
		return e.Object.GetNamespace() == j.namespace && e.Object.GetName() == j.name
	}
	return e.Object.GetNamespace() == j.namespace && e.Object.GetLabels()[volume.PartOfLabel] == j.name
}

// keep returns nil for an object that was deleted.
func keep[T any](e Event) *T {
	if e.Type == watch.Deleted {
		return nil
	}
	return convert[T](e)
}

func convert[T any](e Event) *T {
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.Object.Object, into); err != nil {
		panic(fmt.Sprintf("convert %s %s: %v", e.Resource, e.Object.GetName(), err))
	}
	return into
}

func (j *judge) seeSet(e Event) {
	set := keep[appsv1.StatefulSet](e)
	switch {
	case set == nil && j.leaving():
	case set == nil:
		j.gone, j.goneAt, j.gonePods = j.set, e.At, j.podUIDs()
	case j.gone != nil && set.UID != j.gone.UID:
		j.seeSetBack(set, e.At)
		j.gone = nil
	}
	j.set = set
}

// seeSetBack judges promise 6.
func (j *judge) seeSetBack(set *appsv1.StatefulSet, at time.Time) {
	if away := at.Sub(j.goneAt); away > j.goneAtMost {
		j.broken("6", "the StatefulSet was gone for %s", away.Round(time.Millisecond))
	}
	if now := j.podUIDs(); !maps.Equal(j.gonePods, now) {
		j.broken("6", "pods changed while the StatefulSet was recreated: %v -> %v", j.gonePods, now)
	}
	before, after := j.gone.DeepCopy(), set.DeepCopy()
	before.Spec.VolumeClaimTemplates, after.Spec.VolumeClaimTemplates = nil, nil
	if !reflect.DeepEqual(before.Spec, after.Spec) {
		j.broken("6", "the StatefulSet came back with another spec:\n%s\n%s", text(before.Spec), text(after.Spec))
	}
	if !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) || !reflect.DeepEqual(before.OwnerReferences, after.OwnerReferences) {
		j.broken("6", "the StatefulSet came back with other labels, annotations or owners")
	}
}

func (j *judge) podUIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for name, p := range j.pods {
		uids[name] = p.UID
	}
	return uids
}

func (j *judge) seeClaim(e Event) {
	name, claim := e.Object.GetName(), convert[corev1.PersistentVolumeClaim](e)
	before := j.claims[name]
	fresh := claim.DeletionTimestamp != nil && before != nil && before.UID == claim.UID && before.DeletionTimestamp == nil
	if e.Type == watch.Deleted {
		delete(j.claims, name)
	} else {
		j.claims[name] = claim
	}
	if fresh {
		j.judgeClaimDeletion(claim)
	}
}

// judgeClaimDeletion judges promises 1 to 4 at the moment in which a claim's deletion began.
func (j *judge) judgeClaimDeletion(claim *corev1.PersistentVolumeClaim) {
	stamp := j.stamp()
	if stamp == nil || !slices.ContainsFunc(stamp.Claims, func(c confirm.Claim) bool { return c.UID == string(claim.UID) }) {
		j.broken("1", "claim %s (%s) was deleted and no stamp names it", claim.Name, claim.UID)
	}
	j.judgeVolume(claim)
	for other, c := range j.claims {
		if other != claim.Name && c.DeletionTimestamp != nil {
			j.broken("3", "claim %s was deleted while claim %s was being deleted", claim.Name, other)
		}
	}
	j.judgeTemplate(claim, stamp)
}

// judgeVolume judges promise 2.
func (j *judge) judgeVolume(claim *corev1.PersistentVolumeClaim) {
	pv := j.volumes[claim.Spec.VolumeName]
	switch {
	case claim.Spec.VolumeName == "": // it never got a volume: there is nothing to keep
	case pv == nil:
		j.broken("2", "claim %s was deleted and its volume %s was not there", claim.Name, claim.Spec.VolumeName)
	case pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		j.broken("2", "claim %s was deleted while its volume had reclaim policy %s", claim.Name, pv.Spec.PersistentVolumeReclaimPolicy)
	case pv.Labels[volume.EtcdLabel] != j.name || pv.Labels[volume.MemberLabel] == "" || pv.Labels[volume.RolloutLabel] == "" || pv.Labels[volume.OriginalPolicyLabel] == "":
		j.broken("2", "claim %s was deleted and its volume lacks our labels: %v", claim.Name, pv.Labels)
	}
}

// judgeTemplate judges promise 4.
func (j *judge) judgeTemplate(claim *corev1.PersistentVolumeClaim, stamp *confirm.Stamp) {
	switch {
	case j.set == nil:
		j.broken("4", "claim %s was deleted while there was no StatefulSet", claim.Name)
	case stamp == nil || len(j.set.Spec.VolumeClaimTemplates) != 1 || !templateFits(j.set.Spec.VolumeClaimTemplates[0], stamp.To):
		j.broken("4", "claim %s was deleted while the StatefulSet had another claim template", claim.Name)
	}
}

func (j *judge) stamp() *confirm.Stamp {
	if j.etcd == nil {
		return nil
	}
	stamp, err := confirm.Read(j.etcd.Annotations)
	if err != nil {
		j.broken("1", "the stamp can not be read: %v", err)
		return nil
	}
	return stamp
}

func templateFits(c corev1.PersistentVolumeClaim, want volume.Spec) bool {
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	return volume.Spec{Class: class, Capacity: c.Spec.Resources.Requests[corev1.ResourceStorage], Template: c.Name}.Equal(want)
}

// seePod judges promise 3: when a pod is taken out, every other one is ready.
func (j *judge) seePod(e Event) {
	name, pod := e.Object.GetName(), convert[corev1.Pod](e)
	before := j.pods[name]
	leaving := pod.DeletionTimestamp != nil && before != nil && before.UID == pod.UID && before.DeletionTimestamp == nil
	if e.Type == watch.Deleted {
		delete(j.pods, name)
	} else {
		j.pods[name] = pod
	}
	if !leaving || j.leaving() {
		return
	}
	for other, p := range j.pods {
		if other != name && (!ready(p) || p.DeletionTimestamp != nil) {
			j.broken("3", "pod %s was taken out while pod %s was not ready", name, other)
		}
	}
}

// leaving reports whether the Etcd is being deleted, and its members with it.
func (j *judge) leaving() bool { return j.etcd != nil && j.etcd.DeletionTimestamp != nil }

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func text(v any) string {
	b, _ := json.Marshal(v) //nolint:errchkjson // an API type, for a message
	return string(b)
}
