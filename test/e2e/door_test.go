package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/druid"
	"github.com/etcd-volumes/etcd-volumes/test/golden"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// What differs from run to run in a refusal.
var (
	anyVolume = regexp.MustCompile(`pvc-[0-9a-f]{8}-[0-9a-f-]{27}`)
	anyToken  = regexp.MustCompile(`\b1-[0-9a-f]{8}\b`)
	anyAge    = regexp.MustCompile(`\b\d+ (s|min) old`)
	anyTime   = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?`)
)

func TestWhatIsNotConfirmedOrCanNotWorkIsRefused(t *testing.T) {
	a := begin(t, "refused")
	t.Run("an unconfirmed change, with a text that kubectl prints whole", func(t *testing.T) { a.in(t).explained() })
	t.Run("a class that does not exist", func(t *testing.T) { a.in(t).missingClass() })
	t.Run("a stamp or a note written by hand", func(t *testing.T) { a.in(t).forged() })
	t.Run("any change, by etcd-druid's CEL rules, until they are relaxed", func(t *testing.T) { a.in(t).pinned() })
	t.Run("another change than the confirmed one, and the confirmed one a second time", func(t *testing.T) { a.in(t).oneChangeOnly() })
}

// in is the same act for a subtest.
func (a *act) in(t *testing.T) *act {
	t.Helper()
	b := *a
	b.t = t
	return &b
}

func (a *act) explained() {
	_, err := a.until(func() (string, bool) { return "", a.holds("main-full-snap", "") && a.leads() })
	require.NoError(a.t, err, "no backup and no leader is on record")
	out, err := a.tryClass("fast")
	require.Error(a.t, err)
	text := anyVolume.ReplaceAllString(out, "pvc-VOLUME")
	text = anyToken.ReplaceAllString(text, "1-TOKEN")
	text = anyTime.ReplaceAllString(text, "TIME")
	text = anyAge.ReplaceAllString(text, "AGE old")
	golden.Equal(a.t, "refusal.txt", leaderLast(text))

	etcd, err := a.Etcd(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	assert.Equal(a.t, "slow", *etcd.Spec.StorageClass, "a refused change is not stored")
	assert.NotContains(a.t, etcd.Annotations, volume.StampAnnotation)
}

// holds reports whether the lease has a holder that ends so.
func (a *act) holds(lease, suffix string) bool {
	var l coordinationv1.Lease
	err := a.Client.Get(a.within(time.Minute), types.NamespacedName{Namespace: a.namespace, Name: lease}, &l)
	return err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" && strings.HasSuffix(*l.Spec.HolderIdentity, suffix)
}

// leads reports whether any member's lease says that it leads.
func (a *act) leads() bool {
	return a.holds("main-0", ":Leader") || a.holds("main-1", ":Leader") || a.holds("main-2", ":Leader")
}

// leaderLast numbers the members by their place in the plan: who leads is chance.
func leaderLast(text string) string {
	order := regexp.MustCompile(`(?m)^\s*\d+\. .*?\bmain-(\d)\b`).FindAllStringSubmatch(text, -1)
	place := strings.NewReplacer()
	var pairs []string
	for i, m := range order {
		pairs = append(pairs, "main-"+m[1], "main-"+string("abc"[i%3]))
	}
	if len(pairs) > 0 {
		place = strings.NewReplacer(pairs...)
	}
	return place.Replace(text)
}

func (a *act) missingClass() {
	out, err := a.tryClass("no-such-class")
	require.Error(a.t, err)
	assert.Contains(a.t, out, "no-such-class does not exist")
	assert.NotRegexp(a.t, printedCommand, out, "what can not work is not offered for confirmation")
}

func (a *act) forged() {
	etcd, err := a.Etcd(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	claims, err := a.Claims(a.within(time.Minute), a.namespace, a.name)
	require.NoError(a.t, err)
	to := volume.Of(etcd)
	to.Class = "fast"
	ask := confirm.Ask{EtcdUID: string(etcd.UID), Generation: 1, Operation: confirm.Replace, From: volume.Of(etcd), To: to}
	for i, c := range claims {
		ask.Claims = append(ask.Claims, confirm.Claim{Ordinal: i, Name: c.Name, UID: string(c.UID)})
	}
	forged := confirm.StampOf(ask, "intruder", "intruder", confirm.Held{}).String()
	note := confirm.Note{Token: "1-00000000", User: "intruder"}.String()
	for _, annotation := range []string{volume.StampAnnotation + "=" + forged, volume.ConfirmedByAnnotation + "=" + note} {
		out, err := a.kubectl("-n", a.namespace, "annotate", "etcd", a.name, annotation)
		require.Error(a.t, err, "went through: %s", out)
		assert.Contains(a.t, out, "is written by etcd-volumes alone")
	}
	manifest := strings.Replace(a.Manifest(stage.Etcd{Namespace: a.namespace, Name: "born-stamped"}), "  name: born-stamped\n",
		fmt.Sprintf("  name: born-stamped\n  annotations: {%q: %q}\n", volume.StampAnnotation, forged), 1)
	err = a.Apply(a.within(time.Minute), manifest)
	require.ErrorContains(a.t, err, "is written by etcd-volumes alone", "an Etcd is not created with a stamp")

	out, err := a.kubectl("-n", a.namespace, "get", "vr", "-o", "name")
	require.NoError(a.t, err)
	assert.Empty(a.t, strings.TrimSpace(out))
	a.onClass("slow")
}

func (a *act) pinned() {
	require.NoError(a.t, a.Apply(a.within(time.Minute), string(druid.CRD(true))))
	refusal, err := a.until(func() (string, bool) {
		out, err := a.tryClass("fast")
		return out, err != nil && strings.Contains(out, "is invalid: spec.storageClass")
	})
	require.NoError(a.t, err, refusal)
	assert.Contains(a.t, refusal, "Warning:")
	assert.Contains(a.t, refusal, "relax-crd", "the way out is named")

	// The way out, as installing us includes it.
	out, err := exec.CommandContext(a.within(time.Minute), cluster.ProgramPath("etcd-volumes"), "relax-crd", "--kubeconfig", a.Kubeconfig).CombinedOutput()
	require.NoError(a.t, err, string(out))
	refusal, err = a.until(func() (string, bool) {
		out, err := a.tryClass("fast")
		return out, err != nil && printedCommand.MatchString(out)
	})
	require.NoError(a.t, err, refusal)
}

func (a *act) oneChangeOnly() {
	refusal, err := a.tryClass("fast")
	require.Error(a.t, err)
	a.confirm(refusal)
	out, err := a.tryClass("fixed")
	require.Error(a.t, err, "a confirmation of another change went through: %s", out)
	assert.Regexp(a.t, printedCommand, out)

	out, err = a.tryClass("fast")
	require.NoError(a.t, err, out)
	a.ends(1, v1alpha1.Complete, 4*time.Minute)
	out, err = a.tryClass("slow")
	require.Error(a.t, err, "a used confirmation went through again: %s", out)
	a.onClass("fast")
}
