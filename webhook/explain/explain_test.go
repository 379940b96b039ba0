package explain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/test/golden"
	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/explain"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func spec(class, capacity string) volume.Spec {
	return volume.Spec{Class: class, Capacity: resource.MustParse(capacity), Template: "main"}
}

// refused is the change slow -> fast of three members, objected to by the rules.
func refused(refusals ...verdict.Refusal) verdict.Verdict {
	full, delta := fixture.Now.Add(-26*time.Hour), fixture.Now.Add(-5*time.Minute)
	v := verdict.Verdict{
		Side: verdict.Validating, Outcome: verdict.Refuse, Namespace: "shop", Name: "main", UID: "e",
		Changes:   change.Between(spec("slow", "16Gi"), spec("fast", "16Gi")),
		Operation: confirm.Replace, Reason: verdict.ClassChanged,
		Confirmation: verdict.Confirmation{Annotation: volume.ConfirmAnnotation, Token: "1-9f2c41ab", Generation: 1},
		Refusals:     refusals,
		Plan: verdict.Plan{
			Members: 3, Wanted: spec("fast", "16Gi"), Retain: 24 * time.Hour, Now: fixture.Now, LeaderKnown: true,
			Backup: verdict.Known(verdict.Backup{Store: true, Full: &full, Delta: &delta}),
		},
	}
	for _, i := range []int{1, 2, 0} {
		v.Plan.Steps = append(v.Plan.Steps, step(i))
	}
	v.Plan.Steps[2].Role = verdict.Leader
	return v
}

func step(i int) verdict.Step {
	return verdict.Step{
		Ordinal: i, Member: volume.PodName("main", i), Role: verdict.Follower, Ready: true,
		Claim: verdict.Claim{
			Ordinal: i, Name: volume.ClaimName("main", "main", i), UID: "c", Class: "slow", Capacity: resource.MustParse("16Gi"),
			Volume: fmt.Sprintf("pvc-0000000%d-5ec7-4d3b-9a44-3f1c0c1f7f0e", i), Policy: "Delete",
		},
	}
}

var unconfirmed = verdict.Refusal{Rule: verdict.ConfirmationMissing}

func TestTheRefusalReadsAsItsGoldenFile(t *testing.T) {
	unsupported := func(v verdict.Verdict) verdict.Verdict {
		v.Changes = change.Between(spec("slow", "16Gi"), spec("slow", "20Gi"))
		v.Operation, v.Reason, v.Confirmation, v.Plan = confirm.Expand, verdict.Expandable, verdict.Confirmation{}, verdict.Plan{}
		return v
	}
	tests := map[string]verdict.Verdict{
		"confirmation-missing": refused(unconfirmed),
		"confirmation-missing-one-volume": with(refused(unconfirmed), func(v *verdict.Verdict) {
			v.Plan.Steps = v.Plan.Steps[2:]
			v.Plan.Backup = verdict.Known(verdict.Backup{})
		}),
		"confirmation-missing-no-volume": with(refused(unconfirmed), func(v *verdict.Verdict) {
			v.Reason, v.Plan.Steps = verdict.TemplateOnly, nil
			v.Plan.Backup = verdict.Known(verdict.Backup{Store: true})
		}),
		"confirmation-missing-nine-volumes": with(refused(unconfirmed), func(v *verdict.Verdict) {
			v.Plan.Members, v.Plan.Tolerance, v.Plan.Steps = 9, 3, nil
			for i := range 9 {
				v.Plan.Steps = append(v.Plan.Steps, step(i))
			}
		}),
		"confirmation-missing-unknowns": with(refused(unconfirmed), func(v *verdict.Verdict) {
			v.Plan.LeaderKnown = false
			for i := range v.Plan.Steps {
				v.Plan.Steps[i].Role, v.Plan.Steps[i].Claim.Policy, v.Plan.Steps[i].Claim.Volume = verdict.RoleOpen, "", ""
			}
			v.Plan.Backup = verdict.Unknown[verdict.Backup](errors.New("context deadline exceeded"))
			v.Plan.Unknowns = []string{"who leads: context deadline exceeded", "the age of the newest backup: context deadline exceeded"}
		}),
		"confirmation-stale": refused(verdict.Refusal{Rule: verdict.ConfirmationStale, Detail: "1-00000000"}),
		"confirmation-stale-used": refused(verdict.Refusal{
			Rule: verdict.ConfirmationStale, Detail: "1-00000000", Subjects: []string{"1"},
		}),
		"confirmation-unnoted": refused(verdict.Refusal{Rule: verdict.ConfirmationUnnoted, Detail: "1-9f2c41ab"}),
		"class-missing":        refused(verdict.Refusal{Rule: verdict.ClassMissing, Detail: "fast"}, unconfirmed),
		"class-missing-default": with(refused(verdict.Refusal{Rule: verdict.ClassMissing}, unconfirmed), func(v *verdict.Verdict) {
			v.Changes = change.Between(spec("slow", "16Gi"), spec("", "16Gi"))
			v.Plan.Wanted = spec("", "16Gi")
		}),
		"members-not-ready-one": refused(
			verdict.Refusal{Rule: verdict.MembersNotReady, Subjects: []string{"main-2"}, Detail: "2 of 3"}, unconfirmed),
		"members-not-ready-two": refused(
			verdict.Refusal{Rule: verdict.MembersNotReady, Subjects: []string{"main-1", "main-2"}, Detail: "1 of 3"}, unconfirmed),
		"operation-not-supported": unsupported(refused(verdict.Refusal{Rule: verdict.OperationNotSupported, Detail: "Expand"})),
		"all-else": refused(
			verdict.Refusal{Rule: verdict.LookUpFailed, Subjects: []string{"the volumes: forbidden", "the members: forbidden"}},
			verdict.Refusal{Rule: verdict.EtcdDeleting},
			verdict.Refusal{Rule: verdict.StampUnreadable, Detail: "invalid character"},
			verdict.Refusal{Rule: verdict.ReplicasChanged, Subjects: []string{"3", "5"}},
			verdict.Refusal{Rule: verdict.ScaledToZero},
			verdict.Refusal{Rule: verdict.CapacityNotPositive, Detail: "-1"},
			verdict.Refusal{Rule: verdict.ClassDeleting, Detail: "fast"},
			verdict.Refusal{Rule: verdict.StatefulSetMissing, Subjects: []string{"main"}},
			verdict.Refusal{Rule: verdict.VolumeMissing, Subjects: []string{"main-0"}},
			verdict.Refusal{Rule: verdict.VolumesMoved},
		),
		"stamp-forged": {
			Outcome: verdict.Refuse, Namespace: "shop", Name: "main",
			Refusals: []verdict.Refusal{{Rule: verdict.StampForged, Subjects: []string{volume.StampAnnotation}}},
		},
		"stamp-missing": {
			Outcome: verdict.Refuse, Namespace: "shop", Name: "main",
			Refusals: []verdict.Refusal{{
				Rule: verdict.StampMissing, Subjects: []string{volume.ConfirmedByAnnotation, volume.StampAnnotation},
			}},
		},
		"request-unknown": verdict.Unjudged(verdict.Validating, "shop", "main", "subresource scale"),
		"hostile":         hostile(),
	}
	for name, v := range tests {
		t.Run(name, func(t *testing.T) {
			text := explain.Text(v)

			golden.Equal(t, name+".txt", text)
			assertHarmless(t, text)
		})
	}
	golden.NoStale(t, "*.txt")
}

func with(v verdict.Verdict, mod func(*verdict.Verdict)) verdict.Verdict {
	mod(&v)
	return v
}

// hostile is a refusal full of values that want to be read as something else, and are long.
func hostile() verdict.Verdict {
	evil := "</script><script>alert(1)</script>`` [x](javascript:alert(1)) \x1b[31m\r\n# Confirmed\u202e\u00e9" + strings.Repeat("x", 300)
	v := refused(verdict.Refusal{Rule: verdict.ClassMissing, Detail: evil}, verdict.Refusal{
		Rule: verdict.LookUpFailed, Subjects: slicesRepeat(evil, 30),
	})
	v.Namespace, v.Name = evil, evil
	v.Changes = change.Between(spec(evil, "1Gi"), spec("`", "2Gi"))
	v.Plan.Wanted.Class = evil
	for i := range v.Plan.Steps {
		v.Plan.Steps[i].Member, v.Plan.Steps[i].Claim.Volume, v.Plan.Steps[i].Claim.Class = evil, evil, evil
	}
	return v
}

func slicesRepeat(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func assertHarmless(t *testing.T, text string) {
	t.Helper()
	assert.True(t, strings.HasPrefix(text, "\nRefused: "))
	assert.LessOrEqual(t, len(strings.Split(text, "\n")[1]), 80, "headline")
	assert.LessOrEqual(t, len(text), 4096)
	assert.False(t, strings.ContainsFunc(text, func(c rune) bool {
		return c > unicode.MaxASCII || (unicode.IsControl(c) && c != '\n')
	}), "control characters or beyond ASCII")
}

func TestEachRuleHasWords(t *testing.T) {
	for _, rule := range verdict.Rules() {
		r := verdict.Refusal{Rule: rule, Subjects: []string{"a", "b"}, Detail: "d"}

		got := explain.Sentence(r)

		assert.NotContains(t, got, "No words", rule)
		assert.True(t, strings.HasSuffix(got, "."), "%s: %s", rule, got)
		assert.NotContains(t, got, "\n", rule)
	}
}

func TestTheCommandWorksAsPrinted(t *testing.T) {
	want := "  kubectl -n shop annotate etcd.druid.gardener.cloud main volumes.druid.gardener.cloud/confirm=1-9f2c41ab --overwrite\n"

	assert.Contains(t, explain.Text(refused(unconfirmed)), "\n"+want)
}

func TestTheTokenIsToldOnlyWhereNothingElseIsMissing(t *testing.T) {
	v := refused(verdict.Refusal{Rule: verdict.ClassMissing, Detail: "fast"}, unconfirmed)

	assert.NotContains(t, explain.Text(v), "1-9f2c41ab")
}

func TestHTMLComesFromTheSameSourceAndIsSafe(t *testing.T) {
	page := explain.HTML(refused(unconfirmed))
	assert.Contains(t, page, "<h2>What changed</h2>")
	assert.Contains(t, page, "volumes.druid.gardener.cloud/confirm=1-9f2c41ab")

	evil := explain.HTML(hostile())
	assert.NotContains(t, evil, "<script")
	assert.NotContains(t, evil, "href=\"javascript")
	assert.NotContains(t, evil, "\x1b")
}

func TestAllowedChangesAreToldInShortLines(t *testing.T) {
	v := refused()
	v.Outcome = verdict.Allow
	v.Warnings = []verdict.Warning{
		{Kind: verdict.BindsImmediately, Subject: "fast"},
		{Kind: verdict.DruidKept, Subject: volume.SuspendAnnotation},
		{Kind: verdict.Supersedes, Subject: "main-v1", Detail: "1/3"},
	}

	assert.Equal(t, []string{
		"etcd-volumes: confirmed with 1-9f2c41ab: 3 volumes are replaced, one member at a time, in this order:",
		"etcd-volumes: 1. main-1 (follower): volume pvc-00000001-5ec7-4d3b-9a44-3f1c0c1f7f0e",
		"etcd-volumes: 2. main-2 (follower): volume pvc-00000002-5ec7-4d3b-9a44-3f1c0c1f7f0e",
		"etcd-volumes: 3. main-0 (leader): volume pvc-00000000-5ec7-4d3b-9a44-3f1c0c1f7f0e",
		"etcd-volumes: follow: kubectl -n shop get volumerollouts main-v1",
		"etcd-volumes: class fast binds at once: a new volume may land in a zone where its member can not run",
		"etcd-volumes: druid.gardener.cloud/suspend-etcd-spec-reconcile was set already: it is kept after the rollout",
		"etcd-volumes: supersedes rollout main-v1 (done: 1/3); it finishes the member in flight first",
	}, explain.Warnings(v))
}

func TestTheMutatingWebhookWarnsOfWhatOnlyItKnows(t *testing.T) {
	v := verdict.Verdict{Side: verdict.Mutating, Outcome: verdict.Allow, Warnings: []verdict.Warning{
		{Kind: verdict.CRDForbids, Subject: "spec.storageClass", Detail: "spec.storageClass: self == oldSelf"},
		{Kind: verdict.CRDUnknown, Detail: "forbidden"},
		{Kind: verdict.MarksRestored, Subject: volume.StampAnnotation},
	}}

	assert.Equal(t, []string{
		"etcd-volumes: the CRD of etcd-druid forbids this change of spec.storageClass: it can not pass",
		"etcd-volumes: the way out: etcd-volumes relax-crd (or kubectl apply -f deploy/relax-crd.yaml). It removes this rule:",
		"etcd-volumes: spec.storageClass: self == oldSelf",
		"etcd-volumes: whether the CRD forbids this change is not known: forbidden",
		"etcd-volumes: annotation volumes.druid.gardener.cloud/stamp is kept: it is our record",
	}, explain.Warnings(v))
}

func TestNoWarningIsTooLongOrHoldsAControlCharacter(t *testing.T) {
	v := hostile()
	v.Outcome = verdict.Allow
	evil := v.Name
	for _, kind := range []verdict.WarningKind{
		verdict.BindsImmediately, verdict.DruidKept, verdict.Supersedes, verdict.CRDForbids, verdict.CRDUnknown, verdict.MarksRestored,
		verdict.ConfirmationIdle,
	} {
		v.Warnings = append(v.Warnings, verdict.Warning{Kind: kind, Subject: evil, Detail: evil})
	}

	for _, line := range explain.Warnings(v) {
		assert.LessOrEqual(t, len(line), 120, line)
		assert.NotRegexp(t, `[^ -~]`, line)
	}
}

// FuzzAnyValueIsHarmless puts any text in each place where a user's text can stand.
func FuzzAnyValueIsHarmless(f *testing.F) {
	f.Add("main", "``` \n# x\n```` <b>", "[a](javascript:b)")
	f.Add("\x1b[2J", "- \n\n1. ", "~~~\n")
	f.Fuzz(func(t *testing.T, name, class, detail string) {
		v := refused(verdict.Refusal{Rule: verdict.ClassMissing, Detail: detail}, verdict.Refusal{
			Rule: verdict.MembersNotReady, Subjects: []string{detail}, Detail: class,
		})
		v.Name, v.Plan.Wanted.Class, v.Plan.Steps[0].Claim.Volume = name, class, detail

		assertHarmless(t, explain.Text(v))
		page := explain.HTML(v)
		assert.NotContains(t, strings.ToLower(page), "<script")
		assert.NotContains(t, strings.ToLower(page), "href=\"javascript")
		for _, heading := range []string{"\nWhat changed\n", "\nWhy it is refused\n", "\nWhat would happen\n", "\nMore\n"} {
			assert.Equal(t, 1, strings.Count(explain.Text(v), heading), heading)
		}
	})
}
