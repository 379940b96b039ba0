package storage

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Provisioner is the name of the provisioner in storage classes.
const Provisioner = "local.etcd-volumes.test"

// Parameters of a storage class.
const (
	// ParameterFailure makes provisioning fail with this message.
	ParameterFailure = "failure"
	// ParameterDelay is how long provisioning takes, as a Go duration.
	ParameterDelay = "delay"
	// ParameterMax is the largest capacity that the class provides.
	ParameterMax = "max"
	// ParameterExpandFailure makes expansion fail with this message.
	ParameterExpandFailure = "expandFailure"
	// ParameterExpandDelay is how long expansion takes, as a Go duration.
	ParameterExpandDelay = "expandDelay"
)

// Classes returns the storage classes of the local cluster, none of which is
// the default: slow and fast can be expanded, fixed cannot, immediate binds
// without waiting for a pod, broken never provisions.
func Classes() []storagev1.StorageClass {
	return []storagev1.StorageClass{
		class("slow"),
		class("fast"),
		class("fixed", func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(false) }),
		class("immediate", func(c *storagev1.StorageClass) {
			c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
		}),
		class("broken", func(c *storagev1.StorageClass) {
			c.Parameters = map[string]string{ParameterFailure: "the storage backend is not reachable"}
		}),
	}
}

func class(name string, mods ...func(*storagev1.StorageClass)) storagev1.StorageClass {
	c := storagev1.StorageClass{
		TypeMeta:             metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"},
		ObjectMeta:           metav1.ObjectMeta{Name: name},
		Provisioner:          Provisioner,
		ReclaimPolicy:        new(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: new(true),
		VolumeBindingMode:    new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	for _, mod := range mods {
		mod(&c)
	}
	return c
}

// parameters are those of a class, understood.
type parameters struct {
	failure, expandFailure string
	delay, expandDelay     time.Duration
	max                    *resource.Quantity
}

// parse refuses parameters that it does not know, as real drivers do: a
// misspelled one would otherwise be a class that works.
func parse(given map[string]string) (parameters, error) {
	var (
		p   parameters
		err error
	)
	for name, value := range given {
		switch name {
		case ParameterFailure:
			p.failure = value
		case ParameterExpandFailure:
			p.expandFailure = value
		case ParameterDelay:
			p.delay, err = time.ParseDuration(value)
		case ParameterExpandDelay:
			p.expandDelay, err = time.ParseDuration(value)
		case ParameterMax:
			p.max, err = parseQuantity(value)
		default:
			err = fmt.Errorf("unknown parameter")
		}
		if err != nil {
			return parameters{}, fmt.Errorf("storage class parameter %s: %w", name, err)
		}
	}
	return p, nil
}

func parseQuantity(value string) (*resource.Quantity, error) {
	q, err := resource.ParseQuantity(value)
	return &q, err
}

// exceeds tells whether a capacity is more than the class provides.
func (p parameters) exceeds(capacity resource.Quantity) bool {
	return p.max != nil && capacity.Cmp(*p.max) > 0
}
