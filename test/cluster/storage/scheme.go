package storage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// The constructor of the provisioner library registers the core types in
// client-go's scheme once more. They are there already, but to register them
// writes to maps that every client of the process reads without a lock, and the
// runtime ends a program that it catches doing that. While packages are
// initialised nobody reads yet, so here the repetition is made to do nothing.
func init() { //nolint:gochecknoinits // the one moment at which no other goroutine runs
	register := corev1.AddToScheme
	corev1.AddToScheme = func(s *runtime.Scheme) error {
		if s == scheme.Scheme {
			return nil
		}
		return register(s)
	}
}
