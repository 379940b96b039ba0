package change

import (
	"slices"
	"strings"

	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Kind is what happens to one field of a volume spec. The names are API: they stand in audit annotations.
type Kind string

// Kinds of changes.
const (
	// Reclass: another storage class.
	Reclass Kind = "Reclass"
	// Grow: more capacity.
	Grow Kind = "Grow"
	// Shrink: less capacity.
	Shrink Kind = "Shrink"
	// Retemplate: another name of the claim template, and so other names of the claims.
	Retemplate Kind = "Retemplate"
)

// Field is the path of a field of an Etcd's volume spec, as users write it.
type Field string

// Fields of an Etcd's volume spec.
const (
	StorageClass        Field = "spec.storageClass"
	StorageCapacity     Field = "spec.storageCapacity"
	VolumeClaimTemplate Field = "spec.volumeClaimTemplate"
)

// Change is what happens to one field.
type Change struct {
	Kind  Kind
	Field Field
	// From and To are the field's values with the defaults spelled out; an empty class means that the cluster chooses.
	From, To string
}

// Set is all that differs between two volume specs.
type Set struct {
	Before, After volume.Spec
	// Changes are sorted by field; one a field.
	Changes []Change
}

// Empty reports whether both specs give the same disks.
func (s Set) Empty() bool { return len(s.Changes) == 0 }

// Has reports whether a change of this kind is in the set.
func (s Set) Has(kind Kind) bool {
	return slices.ContainsFunc(s.Changes, func(c Change) bool { return c.Kind == kind })
}

// String names the kinds, in the order of their fields: "Grow,Reclass".
func (s Set) String() string {
	kinds := make([]string, 0, len(s.Changes))
	for _, c := range s.Changes {
		kinds = append(kinds, string(c.Kind))
	}
	return strings.Join(kinds, ",")
}
