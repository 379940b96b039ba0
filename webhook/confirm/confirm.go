package confirm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Operation is what a change is translated into. The names are API: they stand in stamps, rollouts and messages.
type Operation string

// Operations, from the harmless to the grave.
const (
	Expand   Operation = "Expand"
	Replace  Operation = "Replace"
	Recreate Operation = "Recreate"
	Release  Operation = "Release"
	Recover  Operation = "Recover"
)

// Claim is one claim that the operation would destroy, by name and UID.
type Claim struct {
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	UID     string `json:"uid"`
}

// Ask is everything that a person agrees to.
type Ask struct {
	EtcdUID string
	// Generation is the volume generation that the change becomes when it is confirmed; >= 1.
	Generation int64
	Operation  Operation
	From, To   volume.Spec
	// Claims are those that would be destroyed; their order does not matter. Empty for Expand.
	Claims []Claim
}

// Token returns the token that confirms exactly this: "<generation>-<8 hex digits>".
func Token(a Ask) string {
	claims := make([]string, 0, len(a.Claims))
	for _, c := range a.Claims {
		claims = append(claims, fmt.Sprintf("%q", c.UID))
	}
	slices.Sort(claims)
	text := fmt.Sprintf("v1\n%q\n%d\n%q\n%s\n%s\n%s", a.EtcdUID, a.Generation, a.Operation, a.From, a.To, strings.Join(claims, ","))
	sum := sha256.Sum256([]byte(text))
	return strconv.FormatInt(a.Generation, 10) + "-" + hex.EncodeToString(sum[:4])
}

// Given returns the token that stands on the Etcd, "" if none. White space around it is forgiven.
func Given(annotations map[string]string) string {
	return strings.TrimSpace(annotations[volume.ConfirmAnnotation])
}

// Note says who set which confirmation. It is written by the mutating webhook when the confirmation is set, and counts
// only for the token it names.
type Note struct {
	Token string `json:"token"`
	User  string `json:"user"`
}

// NoteOf reads the note on an Etcd; the zero Note if there is none or it can not be read.
func NoteOf(annotations map[string]string) Note {
	var n Note
	if json.Unmarshal([]byte(annotations[volume.ConfirmedByAnnotation]), &n) != nil {
		return Note{}
	}
	return n
}

// String is the annotation's value.
func (n Note) String() string { return encode(n) }

// Held says which of etcd-druid's annotations we set, and so have to take away again.
type Held struct {
	Suspend    bool `json:"suspend"`
	Protection bool `json:"protection"`
}

// Stamp is the generation marker: the record of one confirmed change, from which the reconciler makes one rollout.
type Stamp struct {
	Generation int64       `json:"generation"`
	EtcdUID    string      `json:"etcdUID"`
	Token      string      `json:"token"`
	Operation  Operation   `json:"operation"`
	From       volume.Spec `json:"from"`
	To         volume.Spec `json:"to"`
	Claims     []Claim     `json:"claims,omitempty"` // sorted by ordinal
	// ConfirmedBy set the confirmation; RequestedBy made the change. Often the same.
	ConfirmedBy string `json:"confirmedBy"`
	RequestedBy string `json:"requestedBy"`
	Held        Held   `json:"held"`
}

// StampOf is the stamp of a confirmed ask.
func StampOf(a Ask, confirmedBy, requestedBy string, held Held) Stamp {
	claims := slices.Clone(a.Claims)
	slices.SortFunc(claims, func(x, y Claim) int { return x.Ordinal - y.Ordinal })
	return Stamp{
		Generation: a.Generation, EtcdUID: a.EtcdUID, Token: Token(a), Operation: a.Operation, From: a.From, To: a.To,
		Claims: claims, ConfirmedBy: confirmedBy, RequestedBy: requestedBy, Held: held,
	}
}

// String is the annotation's value: JSON with a fixed order of keys.
func (s Stamp) String() string { return encode(s) }

// Ask returns what was confirmed.
func (s Stamp) Ask() Ask {
	return Ask{EtcdUID: s.EtcdUID, Generation: s.Generation, Operation: s.Operation, From: s.From, To: s.To, Claims: s.Claims}
}

// Read returns the stamp on an Etcd: nil where there is none, an error where it can not be read or does not hold
// together (then nothing may be destroyed in its name).
func Read(annotations map[string]string) (*Stamp, error) {
	text, ok := annotations[volume.StampAnnotation]
	if !ok {
		return nil, nil
	}
	var s Stamp
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", volume.StampAnnotation, err)
	}
	if s.Generation < 1 || s.Token != Token(s.Ask()) {
		return nil, fmt.Errorf("annotation %s does not hold together: its token %q does not fit its content", volume.StampAnnotation, s.Token)
	}
	return &s, nil
}

// NextGeneration is the volume generation of the next confirmed change.
func NextGeneration(s *Stamp) int64 {
	if s == nil {
		return 1
	}
	return s.Generation + 1
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("encode " + err.Error() + ": this is a bug") // plain values only: can not fail
	}
	return string(b)
}
