package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The kinds of snapshots.
const (
	Full  = "Full"
	Delta = "Incr"
)

const finalSuffix = ".final"

// Snapshot names one file of the store. The JSON form is that of the real sidecar.
type Snapshot struct {
	CreatedOn         time.Time `json:"createdOn"`
	Kind              string    `json:"kind"`
	SnapDir           string    `json:"snapDir"` // always empty in layout v2
	SnapName          string    `json:"snapName"`
	Prefix            string    `json:"prefix"`
	CompressionSuffix string    `json:"compressionSuffix"`
	StartRevision     int64     `json:"startRevision"`
	LastRevision      int64     `json:"lastRevision"` // of a full snapshot a lower bound: it is read just before the copy starts
	IsChunk           bool      `json:"isChunk"`
	IsFinal           bool      `json:"isFinal"`
}

// New returns the description of a snapshot taken now.
func New(kind string, start, last int64, compression Compression, final bool) *Snapshot {
	s := &Snapshot{
		CreatedOn:         time.Now().UTC(),
		Kind:              kind,
		StartRevision:     start,
		LastRevision:      last,
		CompressionSuffix: compression.Suffix(),
		IsFinal:           final,
	}
	s.SnapName = fmt.Sprintf("%s-%08d-%08d-%d%s", kind, start, last, s.CreatedOn.Unix(), s.CompressionSuffix)
	if final {
		s.SnapName += finalSuffix
	}
	return s
}

// ParseName reads the description back from a file name.
func ParseName(name string) (*Snapshot, error) {
	base, final := strings.CutSuffix(name, finalSuffix)
	tokens := strings.Split(base, "-")
	if len(tokens) != 4 {
		return nil, fmt.Errorf("parse snapshot name %q: want kind-start-last-time", name)
	}
	if tokens[0] != Full && tokens[0] != Delta {
		return nil, fmt.Errorf("parse snapshot name %q: unknown kind", name)
	}
	stamp, suffix, hasSuffix := strings.Cut(tokens[3], ".")
	if hasSuffix {
		suffix = "." + suffix
	}
	numbers, err := parseInts(tokens[1], tokens[2], stamp)
	if err != nil {
		return nil, fmt.Errorf("parse snapshot name %q: %w", name, err)
	}
	if numbers[0] > numbers[1] {
		return nil, fmt.Errorf("parse snapshot name %q: starts after its end", name)
	}
	return &Snapshot{
		CreatedOn:         time.Unix(numbers[2], 0).UTC(),
		Kind:              tokens[0],
		SnapName:          name,
		CompressionSuffix: suffix,
		StartRevision:     numbers[0],
		LastRevision:      numbers[1],
		IsFinal:           final,
	}, nil
}

func parseInts(texts ...string) ([]int64, error) {
	numbers := make([]int64, 0, len(texts))
	for _, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
