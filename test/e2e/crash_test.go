package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// assassin kills both replicas of the operator, with SIGKILL, the moment it sees the result of each of the operator's writes
// for the first time: before the operator can write the next one, or its status.
type assassin struct {
	*act
	mu    sync.Mutex
	seen  map[string]bool
	kills []string
}

func TestTheOperatorMayBeKilledAtEachStep(t *testing.T) {
	a := begin(t, "killed")
	a.gone = 20 * time.Second // until a replica is up again, has noticed that the dead leader is silent, and leads
	k := &assassin{act: a, seen: map[string]bool{}}
	a.History.Listen(k.see)
	a.changeClass("fast")
	a.ends(1, v1alpha1.Complete, 8*time.Minute)

	k.mu.Lock()
	kills := k.kills
	k.mu.Unlock()
	t.Logf("%d kills: %s", len(kills), strings.Join(kills, ", "))
	for _, step := range append([]string{"rollout", "statefulset deleted", "statefulset created"}, invisible...) {
		assert.Contains(t, kills, step)
	}
	for i := range members {
		for _, step := range []string{"protected", "claim deleted", "pod evicted"} {
			assert.Contains(t, kills, fmt.Sprintf("main-%d %s", i, step))
		}
	}
	a.onClass("fast")
	a.druidFree()
	a.deletesCarryPreconditions()
	require.NoError(t, a.Available(a.within(2*time.Minute), stage.Namespace, stage.Deployment))
}

// see recognises the operator's writes.
func (k *assassin) see(e stage.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	step := k.step(e)
	if step == "" || k.seen[step] {
		return
	}
	k.seen[step] = true
	if k.kill() {
		k.kills = append(k.kills, step)
	}
}

func (k *assassin) step(e stage.Event) string {
	object := e.Object
	mine := object.GetNamespace() == k.namespace || object.GetLabels()[volume.EtcdNamespaceLabel] == k.namespace
	if !mine {
		return ""
	}
	name := strings.TrimPrefix(object.GetName(), k.name+"-"+k.name)
	switch {
	case e.Resource == "volumerollouts" && e.Type == watch.Added:
		return "rollout"
	case e.Resource == "volumerollouts":
		return k.reported(e)
	case e.Resource == "statefulsets" && e.Type == watch.Deleted:
		return "statefulset deleted"
	case e.Resource == "statefulsets" && e.Type == watch.Added && k.seen["statefulset deleted"]:
		return "statefulset created"
	case e.Resource == "persistentvolumes":
		return object.GetLabels()[volume.MemberLabel] + " protected"
	case e.Resource == "persistentvolumeclaims" && object.GetDeletionTimestamp() != nil:
		return k.name + name + " claim deleted"
	case e.Resource == "pods" && object.GetDeletionTimestamp() != nil:
		return object.GetName() + " pod evicted"
	}
	return ""
}

// invisible are the steps that change no object of the history: they are known by what the rollout's status says of them.
var invisible = []string{"StatefulSetRecorded", "LeadershipMoved", "DruidReleased"}

// reported is an invisible step that was done and reported: the next one was not begun.
func (k *assassin) reported(e stage.Event) string {
	status, _ := e.Object.Object["status"].(map[string]any)
	if reason, _ := status["reason"].(string); slices.Contains(invisible, reason) {
		return reason
	}
	return ""
}

// kill reports whether there was somebody to kill.
func (k *assassin) kill() bool {
	var pods corev1.PodList
	if err := k.Client.List(k.t.Context(), &pods, client.InNamespace(stage.Namespace)); err != nil {
		return false
	}
	killed := false
	for _, p := range pods.Items {
		pid, err := k.ContainerPID(p.Namespace, p.Name, p.Spec.Containers[0].Name)
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed = true
		}
	}
	return killed
}
