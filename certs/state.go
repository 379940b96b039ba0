package certs

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Phase is where the rotation of the authority stands.
type Phase string

// The phases, in their order.
const (
	// Steady: one authority.
	Steady Phase = "steady"
	// Staged: the next authority is trusted, and signs nothing yet.
	Staged Phase = "staged"
	// Promoted: the next authority has become the current one; the previous one is still trusted.
	Promoted Phase = "promoted"
)

// Phases are all phases, in their order.
var Phases = []Phase{Steady, Staged, Promoted}

// State is the content of the Secret.
type State struct {
	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// Injected is when the bundle of a staged state was first seen in the API; zero if it was not, or was lost since.
	Injected time.Time
	// Request is the last request for a rotation that was honoured.
	Request string

	Current *Authority
	// Next is set if and only if the phase is Staged.
	Next *Authority
	// Previous is set if and only if the phase is Promoted. Its key is gone.
	Previous *x509.Certificate
}

// Bundle is what the API server is to trust, newest first. Equal states have equal bytes.
func (s *State) Bundle() []byte {
	all := []*x509.Certificate{s.Current.Certificate}
	if s.Next != nil {
		all = append(all, s.Next.Certificate)
	}
	if s.Previous != nil {
		all = append(all, s.Previous)
	}
	slices.SortFunc(all, func(a, b *x509.Certificate) int {
		return cmp.Or(b.NotBefore.Compare(a.NotBefore), bytes.Compare(a.Raw, b.Raw))
	})
	var out []byte
	for _, c := range all {
		out = append(out, encodeCertificate(c)...)
	}
	return out
}

// Keys of the Secret.
const (
	keyCurrentCert  = "current.crt"
	keyCurrentKey   = "current.key"
	keyNextCert     = "next.crt"
	keyNextKey      = "next.key"
	keyPreviousCert = "previous.crt"
	keyBundle       = "bundle.crt"
	keyProgress     = "progress.json"
)

// progress is the part of the state that is not a certificate.
type progress struct {
	Phase    Phase     `json:"phase"`
	Since    time.Time `json:"since"`
	Injected time.Time `json:"injected,omitzero"`
	Request  string    `json:"request,omitempty"`
}

// Encode returns the Secret's data.
func (s *State) Encode() (map[string][]byte, error) {
	meta, err := json.Marshal(progress{Phase: s.Phase, Since: s.Since.UTC(), Injected: s.Injected.UTC(), Request: s.Request})
	if err != nil {
		return nil, fmt.Errorf("encode progress: %w", err)
	}
	data := map[string][]byte{keyProgress: meta, keyBundle: s.Bundle()}
	if err := encodeAuthority(data, keyCurrentCert, keyCurrentKey, s.Current); err != nil {
		return nil, err
	}
	if s.Next != nil {
		if err := encodeAuthority(data, keyNextCert, keyNextKey, s.Next); err != nil {
			return nil, err
		}
	}
	if s.Previous != nil {
		data[keyPreviousCert] = encodeCertificate(s.Previous)
	}
	return data, nil
}

// Decode reads the Secret's data. An error says that it does not hold together.
func Decode(data map[string][]byte) (*State, error) {
	var p progress
	if err := json.Unmarshal(data[keyProgress], &p); err != nil {
		return nil, fmt.Errorf("decode %s: %w", keyProgress, err)
	}
	if !slices.Contains(Phases, p.Phase) {
		return nil, fmt.Errorf("decode %s: unknown phase %q", keyProgress, p.Phase)
	}
	s := &State{Phase: p.Phase, Since: p.Since, Injected: p.Injected, Request: p.Request}
	var err error
	if s.Current, err = decodeAuthority(data, keyCurrentCert, keyCurrentKey); err != nil {
		return nil, err
	}
	switch p.Phase {
	case Staged:
		s.Next, err = decodeAuthority(data, keyNextCert, keyNextKey)
	case Promoted:
		s.Previous, err = decodeCertificate(data, keyPreviousCert)
	case Steady:
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func encodeAuthority(data map[string][]byte, certKey, keyKey string, a *Authority) error {
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		return fmt.Errorf("encode %s: %w", keyKey, err)
	}
	data[certKey] = encodeCertificate(a.Certificate)
	data[keyKey] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return nil
}

func decodeAuthority(data map[string][]byte, certKey, keyKey string) (*Authority, error) {
	cert, err := decodeCertificate(data, certKey)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data[keyKey])
	if block == nil {
		return nil, fmt.Errorf("decode %s: no key found", keyKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", keyKey, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("decode %s: not the key of %s", keyKey, certKey)
	}
	return &Authority{Certificate: cert, Key: key}, nil
}

func decodeCertificate(data map[string][]byte, key string) (*x509.Certificate, error) {
	all, err := parseAll(data[key])
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", key, err)
	}
	if len(all) != 1 || !all[0].IsCA {
		return nil, fmt.Errorf("decode %s: %w", key, errors.New("not one authority"))
	}
	return all[0], nil
}
