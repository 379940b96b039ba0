package volume

import (
	"fmt"
	"math/big"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultCapacity is what etcd-druid asks for where spec.storageCapacity is not set.
const DefaultCapacity = "16Gi"

// Spec is the volume spec of an Etcd with etcd-druid's defaults spelled out. Two Specs are the same when Equal says so;
// never compare them with ==.
type Spec struct {
	// Class is the storage class; "" leaves the choice to the cluster (no storageClassName on the template).
	Class string `json:"class"`
	// Capacity is what each claim requests, in bytes.
	Capacity resource.Quantity `json:"capacity"`
	// Template is the claim template's name: the first part of each claim's name.
	Template string `json:"template"`
}

// Of returns the volume spec that the Etcd asks for.
func Of(e *Etcd) Spec {
	s := Spec{Capacity: resource.MustParse(DefaultCapacity), Template: e.Name}
	if e.Spec.StorageClass != nil {
		s.Class = *e.Spec.StorageClass
	}
	if e.Spec.StorageCapacity != nil {
		s.Capacity = e.Spec.StorageCapacity.DeepCopy()
	}
	if e.Spec.VolumeClaimTemplate != nil && *e.Spec.VolumeClaimTemplate != "" {
		s.Template = *e.Spec.VolumeClaimTemplate
	}
	return s
}

// Equal reports whether both specs give the same disks: quantities are compared by value.
func (s Spec) Equal(o Spec) bool {
	return s.Class == o.Class && s.Template == o.Template && s.Capacity.Cmp(o.Capacity) == 0
}

// String is the canonical form: equal specs have equal strings, others have not. Tokens are derived from it.
func (s Spec) String() string {
	return fmt.Sprintf("class=%q capacity=%s template=%q", s.Class, exact(s.Capacity), s.Template)
}

// exact is the quantity as a number, whatever its notation: Value would round parts of a byte and cap what is too large for an int64.
func exact(q resource.Quantity) string {
	q = q.DeepCopy() // AsDec changes its receiver
	number, ok := new(big.Rat).SetString(q.AsDec().String())
	if !ok {
		return q.String() // can not happen: a decimal is a rational number
	}
	return number.RatString()
}
