package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

// members of every Etcd here.
const members = 3

// act is one test's Etcd under a writer.
type act struct {
	*stage.Stage
	t               *testing.T
	namespace, name string
	writer          *stage.Writer
	gone            time.Duration // how long the StatefulSet may be away
	clusterID       uint64
}

// begin makes an Etcd on class slow and starts to write; when the test ends, the data and the promises are judged.
func begin(t *testing.T, namespace string) *act {
	t.Helper()
	a := &act{Stage: theStage, t: t, namespace: namespace, name: "main", gone: stage.SecondsAtMost}
	require.NoError(t, a.CreateEtcd(a.within(2*time.Minute), stage.Etcd{Namespace: namespace, Name: a.name, Members: members, Backup: true}))
	m, err := stage.Ask(a.within(time.Minute), a.endpoints()[0], stage.Dial)
	require.NoError(t, err)
	a.clusterID = m.ClusterID
	a.writer, err = a.Write(context.WithoutCancel(t.Context()), namespace, a.name, members)
	require.NoError(t, err)
	t.Cleanup(a.judge)
	return a
}

func (a *act) endpoints() []string { return stage.Endpoints(a.namespace, a.name, members) }

// within is a deadline that survives the end of the test, so that cleanups can use it too.
func (a *act) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.t.Context()), d)
	a.t.Cleanup(cancel)
	return ctx
}

// judge reads everything back and has the promises judged. An Etcd that the test deleted has nobody left to ask.
func (a *act) judge() {
	acks := a.writer.Stop()
	assert.NotEmpty(a.t, acks)
	for _, broken := range stage.Judge(a.History.Events(), a.namespace, a.name, a.gone) {
		a.t.Error(broken)
	}
	etcd, err := a.Etcd(a.within(time.Minute), a.namespace, a.name)
	if err != nil || etcd.DeletionTimestamp != nil {
		return
	}
	require.NoError(a.t, a.MembersReady(a.within(time.Minute), a.namespace, a.name, members))
	for i, endpoint := range a.endpoints() {
		lost, err := stage.Lost(a.within(time.Minute), endpoint, stage.Dial, acks)
		require.NoError(a.t, err)
		assert.Emptyf(a.t, lost, "acknowledged writes that member %d lost", i)
		m, err := stage.Ask(a.within(time.Minute), endpoint, stage.Dial)
		require.NoError(a.t, err)
		assert.Equal(a.t, a.clusterID, m.ClusterID, "cluster ID of member %d", i)
	}
}

// tryClass asks for another storage class as a user would; it returns what kubectl printed.
func (a *act) tryClass(class string) (string, error) {
	a.t.Helper()
	return a.kubectl("-n", a.namespace, "patch", "etcd", a.name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"storageClass":%q}}`, class))
}

func (a *act) kubectl(args ...string) (string, error) {
	stdout, stderr, err := a.Kubectl(a.within(time.Minute), args...)
	return stdout + stderr, err
}

var printedCommand = regexp.MustCompile(`(?m)^\s*kubectl (-n \S+ annotate \S+ \S+ volumes\.druid\.gardener\.cloud/confirm=\S+ --overwrite)\s*$`)

// confirm types the command that the refusal printed.
func (a *act) confirm(refusal string) {
	a.t.Helper()
	command := printedCommand.FindStringSubmatch(refusal)
	require.NotNil(a.t, command, "the refusal prints no command that confirms:\n%s", refusal)
	out, err := a.kubectl(strings.Fields(command[1])...)
	require.NoError(a.t, err, out)
}

// changeClass is refused, confirmed as told, and repeated: again and again where the Etcd's volumes change in between, since a
// confirmation fits the volumes that it was given for. It returns what kubectl printed at last.
func (a *act) changeClass(class string) string {
	a.t.Helper()
	answer, err := a.until(func() (string, bool) {
		answer, err := a.tryClass(class)
		if err == nil {
			return answer, true
		}
		if printedCommand.MatchString(answer) {
			a.confirm(answer)
		}
		return answer, false
	})
	require.NoError(a.t, err, "the change was never allowed: %s", answer)
	return answer
}

// ends waits until the rollout of a generation has ended in the phase.
func (a *act) ends(generation int, phase v1alpha1.Phase, d time.Duration) *v1alpha1.VolumeRollout {
	a.t.Helper()
	r, err := a.WaitRollout(a.within(d), a.namespace, a.name, generation, stage.InPhase(v1alpha1.Complete, v1alpha1.Aborted, v1alpha1.Superseded))
	require.NoError(a.t, err)
	require.Equal(a.t, phase, r.Status.Phase, r.Status.Message)
	return r
}

// onClass asserts that every claim of a member is bound on the class.
func (a *act) onClass(class string) {
	a.t.Helper()
	claims, err := a.Claims(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	got := map[string]string{}
	want := map[string]string{}
	for i := range members {
		want[fmt.Sprintf("%[1]s-%[1]s-%[2]d", a.name, i)] = class + " Bound"
	}
	for _, c := range claims {
		got[c.Name] = *c.Spec.StorageClassName + " " + string(c.Status.Phase)
	}
	assert.Equal(a.t, want, got)
}

// druidFree asserts that nothing of ours is left on the Etcd that holds etcd-druid.
func (a *act) druidFree() {
	a.t.Helper()
	etcd, err := a.Etcd(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	for key := range etcd.Annotations {
		assert.NotContains(a.t, key, "druid.gardener.cloud/suspend")
		assert.NotContains(a.t, key, "druid.gardener.cloud/disable")
	}
}

// until repeats a question every 200 ms, for half a minute at most.
func (a *act) until(ask func() (string, bool)) (last string, err error) {
	err = wait.PollUntilContextTimeout(a.within(time.Minute), 200*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		var ok bool
		last, ok = ask()
		return ok, nil
	})
	return last, err
}
