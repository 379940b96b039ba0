package verdict_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

var errLook = errors.New("context deadline exceeded")

// scene is one request and what is live; the default is the change slow -> fast of three healthy members, not confirmed.
type scene struct {
	verdict.Request
	verdict.Facts
}

func newScene(mods ...func(*scene)) scene {
	s := scene{
		verdict.Request{
			Side: verdict.Validating, Before: fixture.Etcd(), After: fixture.Etcd(fixture.Class("fast")), User: "admin",
		},
		facts(fixture.Etcd()),
	}
	for _, mod := range mods {
		mod(&s)
	}
	return s
}

// facts are those of a healthy Etcd of which all is live.
func facts(e *volume.Etcd) verdict.Facts {
	full, delta := fixture.Now.Add(-26*time.Hour), fixture.Now.Add(-5*time.Minute)
	spec := volume.Of(e)
	f := verdict.Facts{
		Now: fixture.Now, Retain: 24 * time.Hour,
		StatefulSet: verdict.Known(&verdict.StatefulSet{UID: "s", Replicas: e.Spec.Replicas, Template: spec}),
		Class:       verdict.Known(&verdict.Class{Name: "fast", Provisioner: "p", Expandable: true}),
		Backup:      verdict.Known(verdict.Backup{Store: true, Full: &full, Delta: &delta}),
	}
	for i := range int(e.Spec.Replicas) {
		f.Claims.Value = append(f.Claims.Value, verdict.Claim{
			Ordinal: i, Name: volume.ClaimName(spec.Template, e.Name, i), UID: string(fixture.ClaimUID(i)), Class: spec.Class,
			Capacity: spec.Capacity, Volume: fixture.VolumeName(i), Policy: "Delete",
		})
		f.Members.Value = append(f.Members.Value, verdict.Member{Ordinal: i, Name: volume.PodName(e.Name, i), Ready: true})
		f.Leases.Value = append(f.Leases.Value, verdict.Lease{Ordinal: i, Leader: i == 0, Renewed: fixture.Now})
	}
	return f
}

func (s *scene) of() verdict.Verdict { return verdict.Of(s.Request, s.Facts) }

// token is the one that fits.
func (s *scene) token() string {
	v := s.of()
	return v.Confirmation.Token
}

// confirm sets the fitting token in the request itself.
func (s *scene) confirm() {
	metav1.SetMetaDataAnnotation(&s.After.ObjectMeta, volume.ConfirmAnnotation, s.token())
}

// mutate does what the mutating webhook does with its verdict.
func (s *scene) mutate() {
	mutating := s.Request
	mutating.Side = verdict.Mutating
	m := verdict.Of(mutating, s.Facts).Marks
	set := func(key string, value *string) {
		if value == nil {
			delete(s.After.Annotations, key)
			return
		}
		metav1.SetMetaDataAnnotation(&s.After.ObjectMeta, key, *value)
	}
	set(volume.StampAnnotation, m.Stamp)
	set(volume.ConfirmedByAnnotation, m.Note)
	if m.Hold {
		for _, key := range []string{volume.SuspendAnnotation, volume.DisableProtectionAnnotation} {
			if _, ok := s.After.Annotations[key]; !ok {
				metav1.SetMetaDataAnnotation(&s.After.ObjectMeta, key, "true")
			}
		}
	}
}

// ready confirms and mutates: the scene is allowed unless something else is wrong with it.
func (s *scene) ready() {
	s.confirm()
	s.mutate()
}

func (s *scene) annotate(key, value string) {
	metav1.SetMetaDataAnnotation(&s.After.ObjectMeta, key, value)
}

// stamped makes both sides carry the stamp of an earlier change to the spec before.
func (s *scene) stamped(held confirm.Held) confirm.Stamp {
	spec := volume.Of(s.Before)
	stamp := confirm.StampOf(confirm.Ask{
		EtcdUID: string(s.Before.UID), Generation: 1, Operation: confirm.Replace,
		From: volume.Spec{Class: "old", Capacity: spec.Capacity, Template: spec.Template}, To: spec,
	}, "admin", "admin", held)
	for _, e := range []*volume.Etcd{s.Before, s.After} {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, volume.StampAnnotation, stamp.String())
	}
	return stamp
}

func rulesOf(v verdict.Verdict) []verdict.Rule {
	var rules []verdict.Rule
	for _, r := range v.Refusals {
		rules = append(rules, r.Rule)
	}
	return rules
}

// example is a request on which the rule speaks, and one, as near as possible, on which it is silent.
type example struct {
	speaks func(*scene)
	want   verdict.Refusal // Rule is filled in
	silent func(*scene)
}

var examples = map[verdict.Rule]example{
	verdict.LookUpFailed: {
		speaks: func(s *scene) { s.Claims = verdict.Unknown[[]verdict.Claim](errLook) },
		want:   verdict.Refusal{Subjects: []string{"the volumes: context deadline exceeded"}},
		silent: func(s *scene) { s.Leases = verdict.Unknown[[]verdict.Lease](errLook) },
	},
	verdict.EtcdDeleting: {
		speaks: func(s *scene) { s.Before.DeletionTimestamp = &metav1.Time{Time: fixture.Now} },
		want:   verdict.Refusal{Field: "metadata.deletionTimestamp"},
		silent: func(s *scene) {
			s.Before.DeletionTimestamp, s.After = &metav1.Time{Time: fixture.Now}, s.Before
		},
	},
	verdict.StampUnreadable: {
		speaks: func(s *scene) {
			for _, e := range []*volume.Etcd{s.Before, s.After} {
				metav1.SetMetaDataAnnotation(&e.ObjectMeta, volume.StampAnnotation, `{"generation":1,"token":"1-00000000"}`)
			}
		},
		want: verdict.Refusal{
			Field:  "metadata.annotations[volumes.druid.gardener.cloud/stamp]",
			Detail: `annotation volumes.druid.gardener.cloud/stamp does not hold together: its token "1-00000000" does not fit its content`,
		},
		silent: func(s *scene) { s.stamped(confirm.Held{}) },
	},
	verdict.OperationNotSupported: {
		speaks: func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("20Gi")) },
		want:   verdict.Refusal{Field: "spec.storageCapacity", Detail: "Expand"},
		silent: func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("8Gi")) },
	},
	verdict.ReplicasChanged: {
		speaks: func(s *scene) { s.After.Spec.Replicas = 5 },
		want:   verdict.Refusal{Field: "spec.replicas", Subjects: []string{"3", "5"}},
		silent: func(s *scene) { s.After = fixture.Etcd(fixture.Replicas(5)) },
	},
	verdict.ScaledToZero: {
		speaks: func(s *scene) { s.Before.Spec.Replicas, s.After.Spec.Replicas = 0, 0 },
		want:   verdict.Refusal{Field: "spec.replicas", Subjects: []string{"main-main-0", "main-main-1", "main-main-2"}},
		silent: func(s *scene) {
			s.Before.Spec.Replicas, s.After.Spec.Replicas = 0, 0
			s.After.Spec.StorageClass = s.Before.Spec.StorageClass
		},
	},
	verdict.CapacityNotPositive: {
		speaks: func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("0")) },
		want:   verdict.Refusal{Field: "spec.storageCapacity", Detail: "0"},
		silent: func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("1")) },
	},
	verdict.ClassMissing: {
		speaks: func(s *scene) { s.Class = verdict.Known[*verdict.Class](nil) },
		want:   verdict.Refusal{Field: "spec.storageClass", Detail: "fast"},
		silent: func(s *scene) { s.Class = verdict.Unknown[*verdict.Class](errLook) }, // another rule speaks
	},
	verdict.ClassDeleting: {
		speaks: func(s *scene) { s.Class.Value.Deleting = true },
		want:   verdict.Refusal{Field: "spec.storageClass", Detail: "fast"},
		silent: func(*scene) {},
	},
	verdict.StatefulSetMissing: {
		speaks: func(s *scene) { s.StatefulSet.Value = nil },
		want:   verdict.Refusal{Subjects: []string{"main"}},
		silent: func(s *scene) { s.StatefulSet.Value, s.Claims.Value = nil, nil }, // nothing is live: passes
	},
	verdict.VolumeMissing: {
		speaks: func(s *scene) { s.Claims.Value[1].Deleting = true },
		want:   verdict.Refusal{Subjects: []string{"main-1"}},
		silent: func(s *scene) { // left over from a larger Etcd
			s.Claims.Value = append(s.Claims.Value, verdict.Claim{Ordinal: 3, Name: "main-main-3", UID: "x", Deleting: true})
		},
	},
	verdict.MembersNotReady: {
		speaks: func(s *scene) { s.Members.Value[2].Ready = false },
		want:   verdict.Refusal{Subjects: []string{"main-2"}, Detail: "2 of 3"},
		silent: func(s *scene) {
			s.Members.Value[2].Ready = false
			s.Rollout.Value = &verdict.Rollout{Name: "main-v1", Generation: 1, Phase: "Stalled"}
		},
	},
	verdict.ConfirmationMissing: {
		speaks: func(*scene) {},
		want:   verdict.Refusal{Field: "metadata.annotations[volumes.druid.gardener.cloud/confirm]", Detail: "1-8783d41f"},
		silent: func(s *scene) { s.ready() },
	},
	verdict.ConfirmationStale: {
		speaks: func(s *scene) { s.annotate(volume.ConfirmAnnotation, "1-00000000"); s.mutate() },
		want:   verdict.Refusal{Field: "metadata.annotations[volumes.druid.gardener.cloud/confirm]", Detail: "1-00000000"},
		silent: func(s *scene) { s.ready() },
	},
	verdict.ConfirmationUnnoted: {
		speaks: func(s *scene) {
			s.confirm()
			s.Before.Annotations = map[string]string{volume.ConfirmAnnotation: s.After.Annotations[volume.ConfirmAnnotation]}
		},
		want: verdict.Refusal{
			Field: "metadata.annotations[volumes.druid.gardener.cloud/confirmed-by]", Detail: "1-8783d41f",
		},
		silent: func(s *scene) {
			s.confirm()
			token := s.After.Annotations[volume.ConfirmAnnotation]
			for _, e := range []*volume.Etcd{s.Before, s.After} {
				metav1.SetMetaDataAnnotation(&e.ObjectMeta, volume.ConfirmAnnotation, token)
				metav1.SetMetaDataAnnotation(&e.ObjectMeta, volume.ConfirmedByAnnotation, confirm.Note{Token: token, User: "colleague"}.String())
			}
		},
	},
	verdict.StampForged: {
		speaks: func(s *scene) { s.annotate(volume.StampAnnotation, `{"generation":7}`) },
		want: verdict.Refusal{
			Field:    "metadata.annotations[volumes.druid.gardener.cloud/stamp]",
			Subjects: []string{"volumes.druid.gardener.cloud/stamp"},
		},
		silent: func(s *scene) { s.ready() },
	},
	verdict.VolumesMoved: {
		speaks: func(s *scene) { s.ready(); s.Claims.Value[1].UID = "new" },
		want:   verdict.Refusal{Field: "metadata.annotations[volumes.druid.gardener.cloud/stamp]"},
		silent: func(s *scene) { s.ready() },
	},
	verdict.StampMissing: {
		speaks: func(s *scene) { s.confirm() },
		want: verdict.Refusal{
			Field: "metadata.annotations[volumes.druid.gardener.cloud/confirmed-by]",
			Subjects: []string{
				"volumes.druid.gardener.cloud/confirmed-by", "volumes.druid.gardener.cloud/stamp",
				"druid.gardener.cloud/suspend-etcd-spec-reconcile", "druid.gardener.cloud/disable-etcd-component-protection",
			},
		},
		silent: func(s *scene) { s.ready() },
	},
}

func TestEachRuleSpeaksOnItsExampleAndIsSilentOnTheNextBestOne(t *testing.T) {
	for name, ex := range examples {
		t.Run(string(name), func(t *testing.T) {
			speaks, silent := newScene(ex.speaks), newScene(ex.silent)
			want := ex.want
			want.Rule = name

			assert.Contains(t, speaks.of().Refusals, want)
			assert.NotContains(t, rulesOf(silent.of()), name)
		})
	}
}

func TestEveryRuleOwnsAnExample(t *testing.T) {
	for _, rule := range verdict.Rules() {
		if rule == verdict.RequestUnknown {
			continue // speaks before there is anything to judge: Unjudged
		}
		assert.Contains(t, examples, rule)
	}
	assert.Len(t, examples, len(verdict.Rules())-1)
}

func TestARequestThatIsNotUnderstoodIsRefused(t *testing.T) {
	v := verdict.Unjudged(verdict.Validating, "shop", "main", "subresource scale")

	assert.Equal(t, verdict.Refuse, v.Outcome)
	assert.Equal(t, []verdict.Refusal{{Rule: verdict.RequestUnknown, Detail: "subresource scale"}}, v.Refusals)
}

func TestAConfirmedChangeIsAllowedAndStamped(t *testing.T) {
	s := newScene((*scene).ready)

	v := s.of()

	require.Empty(t, v.Refusals)
	assert.Equal(t, verdict.Allow, v.Outcome)
	stamp, err := confirm.Read(s.After.Annotations)
	require.NoError(t, err)
	assert.Equal(t, &confirm.Stamp{
		Generation: 1, EtcdUID: string(fixture.EtcdUID), Token: s.token(), Operation: confirm.Replace,
		From: parsed(volume.Of(s.Before)), To: parsed(volume.Of(s.After)),
		Claims: []confirm.Claim{
			{Ordinal: 0, Name: "main-main-0", UID: string(fixture.ClaimUID(0))},
			{Ordinal: 1, Name: "main-main-1", UID: string(fixture.ClaimUID(1))},
			{Ordinal: 2, Name: "main-main-2", UID: string(fixture.ClaimUID(2))},
		},
		ConfirmedBy: "admin", RequestedBy: "admin", Held: confirm.Held{Suspend: true, Protection: true},
	}, stamp)
	assert.Equal(t, confirm.Note{Token: s.token(), User: "admin"}, confirm.NoteOf(s.After.Annotations))
}

// parsed is the spec as it comes out of JSON.
func parsed(s volume.Spec) volume.Spec {
	s.Capacity = resource.MustParse(s.Capacity.String())
	return s
}

func TestAnAllowedChangeNeedsNoFurtherRequestAndFitsOnce(t *testing.T) {
	s := newScene((*scene).ready)
	used := s.After.Annotations[volume.ConfirmAnnotation]
	s.Before, s.After = s.After, fixture.Etcd(fixture.Class("slow"), fixture.Annotation(volume.ConfirmAnnotation, used))
	s.Facts = facts(fixture.Etcd(fixture.Class("fast")))
	s.mutate()

	v := s.of()

	assert.Equal(t, []verdict.Refusal{{
		Rule: verdict.ConfirmationStale, Field: "metadata.annotations[volumes.druid.gardener.cloud/confirm]", Detail: used,
		Subjects: []string{"1"},
	}}, v.Refusals)
	assert.Regexp(t, "^2-", v.Confirmation.Token)
}

func TestWhoConfirmedAndWhoChangedAreBothRecorded(t *testing.T) {
	s := newScene()
	token := s.token()
	note := confirm.Note{Token: token, User: "admin"}.String()
	for _, e := range []*volume.Etcd{s.Before, s.After} {
		e.Annotations = map[string]string{volume.ConfirmAnnotation: token, volume.ConfirmedByAnnotation: note}
	}
	s.User = "system:serviceaccount:flux:gitops"
	s.mutate()

	v := s.of()

	require.Equal(t, verdict.Allow, v.Outcome, v.Refusals)
	stamp, err := confirm.Read(s.After.Annotations)
	require.NoError(t, err)
	assert.Equal(t, "admin", stamp.ConfirmedBy)
	assert.Equal(t, "system:serviceaccount:flux:gitops", stamp.RequestedBy)
}

func TestAConfirmationThatTheChangingRequestDropsStillCounts(t *testing.T) {
	s := newScene()
	token := s.token()
	s.Before.Annotations = map[string]string{
		volume.ConfirmAnnotation:     token,
		volume.ConfirmedByAnnotation: confirm.Note{Token: token, User: "admin"}.String(),
	}
	s.mutate()

	v := s.of()

	require.Equal(t, verdict.Allow, v.Outcome, v.Refusals)
	assert.Equal(t, "admin", v.Confirmation.By)
	assert.NotContains(t, s.After.Annotations, volume.ConfirmedByAnnotation, "the note goes with its confirmation")
}

func TestANoteForAnotherTokenNamesNobody(t *testing.T) {
	s := newScene()
	token := s.token()
	for _, e := range []*volume.Etcd{s.Before, s.After} {
		e.Annotations = map[string]string{
			volume.ConfirmAnnotation:     token,
			volume.ConfirmedByAnnotation: confirm.Note{Token: "1-00000000", User: "admin"}.String(),
		}
	}

	assert.Equal(t, []verdict.Rule{verdict.ConfirmationUnnoted}, rulesOf(s.of()))
}

func TestWhatPassesWithoutAConfirmation(t *testing.T) {
	tests := map[string]func(*scene){
		"no change":                             func(s *scene) { s.After = fixture.Etcd() },
		"another notation of the same capacity": func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("16384Mi")) },
		"a default spelled out":                 func(s *scene) { s.After = fixture.Etcd(fixture.Template("main")) },
		"a change while nothing is live":        func(s *scene) { s.StatefulSet.Value, s.Claims.Value = nil, nil },
		"a change back to what is live everywhere": func(s *scene) {
			s.Facts = facts(fixture.Etcd(fixture.Class("fast")))
		},
		"a confirmation for later": func(s *scene) {
			s.After = fixture.Etcd(fixture.Annotation(volume.ConfirmAnnotation, "1-12345678"))
			s.mutate()
		},
		"a request annotation taken away": func(s *scene) {
			s.Before = fixture.Etcd(fixture.Annotation(volume.RecreateAnnotation, "all"))
			s.After = fixture.Etcd()
		},
		"a create": func(s *scene) { s.Before = nil },
	}
	for name, mod := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(mod)

			v := s.of()

			assert.Equal(t, verdict.Pass, v.Outcome, v.Refusals)
		})
	}
}

func TestAFailedLookUpNeverPassesAsNothingLive(t *testing.T) {
	s := newScene((*scene).ready)
	s.StatefulSet = verdict.Unknown[*verdict.StatefulSet](errLook)
	s.Claims.Value = nil

	assert.Equal(t, verdict.Refuse, s.of().Outcome)
}

func TestACreateMayNotCarryOurMarks(t *testing.T) {
	for _, key := range []string{volume.StampAnnotation, volume.ConfirmedByAnnotation} {
		s := newScene(func(s *scene) { s.Before, s.After = nil, fixture.Etcd(fixture.Annotation(key, "{}")) })

		assert.Equal(t, []verdict.Rule{verdict.StampForged}, rulesOf(s.of()), key)
	}
}

func TestTheTranslatorPicksTheLeastDestructiveOperation(t *testing.T) {
	type want struct {
		operation confirm.Operation
		reason    verdict.Reason
		doomed    int
	}
	tests := map[string]struct {
		mod  func(*scene)
		want want
	}{
		"another class": {func(*scene) {}, want{confirm.Replace, verdict.ClassChanged, 3}},
		"less capacity": {
			func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("1Gi")) }, want{confirm.Replace, verdict.Smaller, 3},
		},
		"more capacity of a class that can expand": {
			func(s *scene) { s.After = fixture.Etcd(fixture.Capacity("17Gi")) }, want{confirm.Expand, verdict.Expandable, 0},
		},
		"more capacity of a class that can not": {
			func(s *scene) { s.After, s.Class.Value.Expandable = fixture.Etcd(fixture.Capacity("17Gi")), false },
			want{confirm.Replace, verdict.NotExpandable, 3},
		},
		"another template name": {
			func(s *scene) { s.After = fixture.Etcd(fixture.Template("data")) }, want{confirm.Replace, verdict.Renamed, 0},
		},
		"fresh volumes": {
			func(s *scene) { s.After = fixture.Etcd(fixture.Annotation(volume.RecreateAnnotation, "all")) },
			want{confirm.Recreate, verdict.Requested, 0},
		},
		"the disk given back": {
			func(s *scene) {
				s.After = fixture.Etcd(fixture.Replicas(0), fixture.Annotation(volume.ReleaseAnnotation, "yes"))
			},
			want{confirm.Release, verdict.Requested, 0},
		},
		"a restore": {
			func(s *scene) { s.After = fixture.Etcd(fixture.Annotation(volume.RecoverAnnotation, "yes")) },
			want{confirm.Recover, verdict.Requested, 0},
		},
		"a half-finished rollout taken back": {
			func(s *scene) {
				s.Before, s.After = s.After, s.Before
				s.StatefulSet.Value.Template.Class = "fast"
				s.Claims.Value[1].Class = "fast"
				s.Class.Value.Name = "slow"
			},
			want{confirm.Replace, verdict.ClassChanged, 1},
		},
		"a rollout taken back before its first member": {
			func(s *scene) {
				s.Before, s.After = s.After, s.Before
				s.StatefulSet.Value.Template.Class = "fast"
			},
			want{confirm.Replace, verdict.TemplateOnly, 0},
		},
		"the class left to the cluster, whose default it is already": {
			func(s *scene) { s.After, s.Class.Value.Name = fixture.Etcd(fixture.Class("")), "slow" },
			want{confirm.Replace, verdict.TemplateOnly, 0},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(tt.mod)

			v := s.of()

			got := want{v.Operation, v.Reason, len(v.Plan.Steps)}
			if tt.want.reason == verdict.Renamed {
				got.doomed = 0 // all, but none that we carry out
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestOnlyReplacesAmongThreeOrMoreMembersAreCarriedOut(t *testing.T) {
	for replicas, supported := range map[int32]bool{1: false, 2: false, 3: true, 5: true, 64: true, 65: false} {
		s := newScene(func(s *scene) {
			s.Before.Spec.Replicas, s.After.Spec.Replicas = replicas, replicas
			s.Facts = facts(s.Before)
		})

		assert.Equal(t, supported, s.token() != "", "%d replicas", replicas)
	}
}

func TestThePlanTakesTheSickFirstAndTheLeaderLast(t *testing.T) {
	s := newScene(func(s *scene) {
		s.Members.Value[2].Ready = false
		s.Rollout.Value = &verdict.Rollout{Name: "main-v1", Generation: 1}
	})

	p := s.of().Plan

	assert.Equal(t, []string{"main-2", "main-1", "main-0"}, members(p))
	assert.Equal(t, verdict.Leader, p.Steps[2].Role)
	assert.True(t, p.LeaderKnown)
}

func TestOfTwoLeasesThatSayLeaderTheOneRenewedLastIsRight(t *testing.T) {
	s := newScene(func(s *scene) {
		s.Leases.Value[1] = verdict.Lease{Ordinal: 1, Leader: true, Renewed: fixture.Now.Add(time.Second)}
	})

	assert.Equal(t, []string{"main-0", "main-2", "main-1"}, members(s.of().Plan))
}

func TestAnUnknownLeaderIsSaidAndDoesNotRefuse(t *testing.T) {
	s := newScene(func(s *scene) { s.Leases = verdict.Unknown[[]verdict.Lease](errLook) }, (*scene).ready)

	v := s.of()

	assert.Equal(t, verdict.Allow, v.Outcome)
	assert.False(t, v.Plan.LeaderKnown)
	assert.Equal(t, []string{"who leads: context deadline exceeded"}, v.Plan.Unknowns)
}

func members(p verdict.Plan) []string {
	var names []string
	for _, s := range p.Steps {
		names = append(names, s.Member)
	}
	return names
}

func TestWhatTheAdminHoldsIsKeptAndWhatWeHoldIsInherited(t *testing.T) {
	suspend := fixture.Annotation(volume.SuspendAnnotation, "true")
	tests := map[string]struct {
		mod  func(*scene)
		want confirm.Held
	}{
		"nothing held": {func(*scene) {}, confirm.Held{Suspend: true, Protection: true}},
		"suspended by the admin before": {
			func(s *scene) { suspend(s.Before); suspend(s.After) }, confirm.Held{Protection: true},
		},
		"suspended by the admin with the change": {
			func(s *scene) { suspend(s.After) }, confirm.Held{Protection: true},
		},
		"suspended by us for a rollout that runs": {
			func(s *scene) { suspend(s.Before); suspend(s.After); s.stamped(confirm.Held{Suspend: true}) },
			confirm.Held{Suspend: true, Protection: true},
		},
		"suspended by the admin after our rollout": {
			func(s *scene) {
				suspend(s.Before)
				suspend(s.After)
				s.stamped(confirm.Held{Suspend: true})
				s.Rollout.Value = &verdict.Rollout{Name: "main-v1", Generation: 1, Phase: "Complete", Final: true}
			},
			confirm.Held{Protection: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(tt.mod, (*scene).ready)

			v := s.of()

			require.Equal(t, verdict.Allow, v.Outcome, v.Refusals)
			stamp, err := confirm.Read(s.After.Annotations)
			require.NoError(t, err)
			assert.Equal(t, tt.want, stamp.Held)
		})
	}
}

func TestMarksThatAClientWroteAreNeverTaken(t *testing.T) {
	tests := map[string]func(*scene){
		"a stamp of its own":         func(s *scene) { s.annotate(volume.StampAnnotation, "{}") },
		"a stamp taken away":         func(s *scene) { s.stamped(confirm.Held{}); delete(s.After.Annotations, volume.StampAnnotation) },
		"a note of its own":          func(s *scene) { s.annotate(volume.ConfirmedByAnnotation, `{"token":"1-1","user":"root"}`) },
		"a note with another name":   func(s *scene) { s.ready(); s.annotate(volume.ConfirmedByAnnotation, `{"token":"1-1","user":"root"}`) },
		"a stamp of somebody else":   func(s *scene) { s.ready(); s.User = "intruder" },
		"the stamp of another Etcd":  func(s *scene) { s.ready(); s.Before.UID = "other" },
		"a stamp, not confirmed":     func(s *scene) { s.ready(); delete(s.After.Annotations, volume.ConfirmAnnotation) },
		"a stamp that names too few": func(s *scene) { s.ready(); shorten(s) },
	}
	for name, mod := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(mod)

			assert.Contains(t, rulesOf(s.of()), verdict.StampForged)
		})
	}
}

func shorten(s *scene) {
	stamp, err := confirm.Read(s.After.Annotations)
	if err != nil {
		panic(err)
	}
	stamp.Claims = stamp.Claims[:1]
	s.annotate(volume.StampAnnotation, confirm.StampOf(stamp.Ask(), stamp.ConfirmedBy, stamp.RequestedBy, stamp.Held).String())
}

func TestAStampThatCanNotBeReadMayBeTakenAwayAndNumbersAreNotUsedTwice(t *testing.T) {
	s := newScene(func(s *scene) {
		s.Before = fixture.Etcd(fixture.Annotation(volume.StampAnnotation, "broken"))
		s.After = fixture.Etcd()
	})
	assert.Equal(t, verdict.Pass, s.of().Outcome)

	s = newScene(func(s *scene) {
		s.Rollout.Value = &verdict.Rollout{Name: "main-v4", Generation: 4, Phase: "Complete", Final: true}
	})
	assert.EqualValues(t, 5, s.of().Confirmation.Generation)
}

func TestWarningsTellWhatIsNotable(t *testing.T) {
	freeze := verdict.Freeze{Field: change.StorageClass, At: "spec.storageClass", Rule: "self == oldSelf"}
	presence := verdict.Freeze{Field: change.StorageClass, At: "spec", Rule: "has(oldSelf.storageClass) == has(self.storageClass)"}
	tests := map[string]struct {
		mod  func(*scene)
		want []verdict.Warning
	}{
		"nothing": {(*scene).ready, nil},
		"a class that binds at once": {
			func(s *scene) { s.Class.Value.Immediate = true; s.ready() },
			[]verdict.Warning{{Kind: verdict.BindsImmediately, Subject: "fast"}},
		},
		"held by the admin": {
			func(s *scene) {
				s.Before.Annotations = map[string]string{volume.SuspendAnnotation: ""}
				s.annotate(volume.SuspendAnnotation, "")
				s.ready()
			},
			[]verdict.Warning{{Kind: verdict.DruidKept, Subject: volume.SuspendAnnotation}},
		},
		"a rollout runs": {
			func(s *scene) {
				s.Rollout.Value = &verdict.Rollout{Name: "main-v1", Generation: 1, Progress: "1/3"}
				s.ready()
			},
			[]verdict.Warning{{Kind: verdict.Supersedes, Subject: "main-v1", Detail: "1/3"}},
		},
		"the CRD compares values": {
			func(s *scene) { s.Side, s.Freezes.Value = verdict.Mutating, []verdict.Freeze{freeze, presence} },
			[]verdict.Warning{{Kind: verdict.CRDForbids, Subject: "spec.storageClass", Detail: "spec.storageClass: self == oldSelf"}},
		},
		"the CRD compares presence": {
			func(s *scene) {
				s.Side, s.Freezes.Value = verdict.Mutating, []verdict.Freeze{freeze, presence}
				s.After = fixture.Etcd(fixture.Class(""))
			},
			[]verdict.Warning{{
				Kind: verdict.CRDForbids, Subject: "spec.storageClass", Detail: "spec: has(oldSelf.storageClass) == has(self.storageClass)",
			}},
		},
		"a stamp dropped": {
			func(s *scene) {
				s.Side = verdict.Mutating
				s.stamped(confirm.Held{})
				s.After = fixture.Etcd()
			},
			[]verdict.Warning{{Kind: verdict.MarksRestored, Subject: volume.StampAnnotation}},
		},
		"a confirmation of something that destroys nothing": {
			func(s *scene) {
				s.StatefulSet.Value, s.Claims.Value = nil, nil
				s.annotate(volume.ConfirmAnnotation, "1-12345678")
				s.mutate()
			},
			[]verdict.Warning{{Kind: verdict.ConfirmationIdle, Subject: "1-12345678"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(tt.mod)

			assert.Equal(t, tt.want, s.of().Warnings)
		})
	}
}

func TestTheSameNameAlwaysBecomesTheSameCause(t *testing.T) {
	assert.Equal(t, "ConfirmationMissing", verdict.ConfirmationMissing.Cause())
	assert.Equal(t, "StatefulsetMissing", verdict.StatefulSetMissing.Cause())
}
