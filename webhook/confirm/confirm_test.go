package confirm_test

import (
	"encoding/json"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func spec(class, capacity string) volume.Spec {
	return volume.Spec{Class: class, Capacity: resource.MustParse(capacity), Template: "main"}
}

func ask(mods ...func(*confirm.Ask)) confirm.Ask {
	a := confirm.Ask{
		EtcdUID: "e", Generation: 3, Operation: confirm.Replace, From: spec("slow", "16Gi"), To: spec("fast", "16Gi"),
		Claims: []confirm.Claim{
			{Ordinal: 0, Name: "main-main-0", UID: "a"}, {Ordinal: 1, Name: "main-main-1", UID: "b"}, {Ordinal: 2, Name: "main-main-2", UID: "c"},
		},
	}
	for _, mod := range mods {
		mod(&a)
	}
	return a
}

func TestATokenIsItsGenerationAndEightHexDigits(t *testing.T) {
	assert.Equal(t, "3-85f8929d", confirm.Token(ask()), "tokens that were given out must go on fitting")
}

func TestAnotherAskHasAnotherToken(t *testing.T) {
	tests := map[string]func(*confirm.Ask){
		"another Etcd":                func(a *confirm.Ask) { a.EtcdUID = "f" },
		"another generation":          func(a *confirm.Ask) { a.Generation = 4 },
		"another operation":           func(a *confirm.Ask) { a.Operation = confirm.Recreate },
		"from another class":          func(a *confirm.Ask) { a.From.Class = "slower" },
		"to another class":            func(a *confirm.Ask) { a.To.Class = "faster" },
		"to another capacity":         func(a *confirm.Ask) { a.To.Capacity = resource.MustParse("17Gi") },
		"to another template":         func(a *confirm.Ask) { a.To.Template = "data" },
		"the other way round":         func(a *confirm.Ask) { a.From, a.To = a.To, a.From },
		"a claim less":                func(a *confirm.Ask) { a.Claims = a.Claims[:2] },
		"a claim more":                func(a *confirm.Ask) { a.Claims = append(a.Claims, confirm.Claim{Ordinal: 3, UID: "d"}) },
		"a claim made anew":           func(a *confirm.Ask) { a.Claims[1].UID = "B" },
		"no claims":                   func(a *confirm.Ask) { a.Claims = nil },
		"two UIDs that look like one": func(a *confirm.Ask) { a.Claims = []confirm.Claim{{UID: `a","b`}, {UID: "c"}} },
	}
	seen := map[string]string{confirm.Token(ask()): "the ask itself"}
	for name, mod := range tests {
		token := confirm.Token(ask(mod))
		assert.NotContains(t, seen, token, "%s has the token of %s", name, seen[token])
		seen[token] = name
	}
}

func TestOrderAndNotationNeverMatter(t *testing.T) {
	property := func(seed int64, gibibytes uint16) bool {
		random := rand.New(rand.NewSource(seed))
		a := ask(func(a *confirm.Ask) { a.To.Capacity = *resource.NewQuantity(int64(gibibytes)<<30, resource.BinarySI) })
		b := ask(func(b *confirm.Ask) { b.To.Capacity = *resource.NewQuantity(int64(gibibytes)<<30, resource.DecimalSI) })
		random.Shuffle(len(b.Claims), func(i, j int) { b.Claims[i], b.Claims[j] = b.Claims[j], b.Claims[i] })
		return confirm.Token(a) == confirm.Token(b) &&
			confirm.StampOf(a, "x", "y", confirm.Held{}).Token == confirm.StampOf(b, "x", "y", confirm.Held{}).Token
	}
	require.NoError(t, quick.Check(property, nil))
}

func TestDifferentAsksHaveDifferentTokens(t *testing.T) {
	seen := map[string]string{}
	property := func(uid, class, claim string, generation uint8) bool {
		a := ask(func(a *confirm.Ask) {
			a.EtcdUID, a.To.Class, a.Claims[0].UID, a.Generation = uid, class, claim, int64(generation)+1
		})
		what, err := json.Marshal([]any{uid, class, claim, generation})
		require.NoError(t, err)
		before, used := seen[confirm.Token(a)]
		seen[confirm.Token(a)] = string(what)
		return !used || before == string(what)
	}
	require.NoError(t, quick.Check(property, nil))
}

func TestGivenForgivesWhiteSpace(t *testing.T) {
	assert.Empty(t, confirm.Given(nil))
	assert.Equal(t, "3-1", confirm.Given(map[string]string{volume.ConfirmAnnotation: " 3-1\n"}))
}

func TestANoteThatCanNotBeReadIsNone(t *testing.T) {
	note := confirm.Note{Token: "3-1", User: "admin"}

	assert.Equal(t, note, confirm.NoteOf(map[string]string{volume.ConfirmedByAnnotation: note.String()}))
	assert.Equal(t, confirm.Note{}, confirm.NoteOf(map[string]string{volume.ConfirmedByAnnotation: `{"token":"3-1",`}))
	assert.Equal(t, confirm.Note{}, confirm.NoteOf(nil))
}

func TestAStampIsReadAsItWasWritten(t *testing.T) {
	shuffled := ask(func(a *confirm.Ask) { slices.Reverse(a.Claims) })
	want := confirm.StampOf(shuffled, "admin", "gitops", confirm.Held{Suspend: true})

	got, err := confirm.Read(map[string]string{volume.StampAnnotation: want.String()})

	require.NoError(t, err)
	assert.Equal(t, want.String(), got.String())
	assert.Equal(t, ask().Claims, got.Claims, "sorted by ordinal")
	assert.Equal(t, confirm.Token(shuffled), confirm.Token(got.Ask()))
	assert.Equal(t, 2, shuffled.Claims[0].Ordinal, "the argument is left as it is")
}

func TestAStampThatDoesNotHoldTogetherIsAnError(t *testing.T) {
	good := confirm.StampOf(ask(), "admin", "admin", confirm.Held{}).String()
	tests := map[string]string{
		"no JSON":            `x`,
		"empty":              ``,
		"null":               `null`,
		"another claim":      strings.Replace(good, `"uid":"b"`, `"uid":"z"`, 1),
		"another generation": strings.Replace(good, `"generation":3`, `"generation":4`, 1),
		"another class":      strings.Replace(good, `"fast"`, `"vast"`, 1),
		"generation zero":    confirm.StampOf(ask(func(a *confirm.Ask) { a.Generation = 0 }), "", "", confirm.Held{}).String(),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			stamp, err := confirm.Read(map[string]string{volume.StampAnnotation: text})

			require.Error(t, err)
			assert.Nil(t, stamp)
		})
	}
}

func TestNoStampIsNoError(t *testing.T) {
	stamp, err := confirm.Read(nil)

	require.NoError(t, err)
	assert.Nil(t, stamp)
	assert.EqualValues(t, 1, confirm.NextGeneration(stamp))
	assert.EqualValues(t, 4, confirm.NextGeneration(&confirm.Stamp{Generation: 3}))
}
