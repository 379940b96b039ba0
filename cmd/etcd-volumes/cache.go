package main

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler"
)

// cacheOptions keep in memory only what belongs to an Etcd or to ourselves, without managed fields: in a cluster of
// thousands of pods and leases the members of the Etcds are few.
func cacheOptions(namespace string) cache.Options {
	configuration := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", configurationName)}
	objects := reconciler.Caches()
	objects[&admissionv1.ValidatingWebhookConfiguration{}] = configuration
	objects[&admissionv1.MutatingWebhookConfiguration{}] = configuration
	objects[&corev1.Secret{}] = cache.ByObject{
		Namespaces: map[string]cache.Config{namespace: {}},
		Field:      fields.OneTermEqualSelector("metadata.name", certsSecret),
	}
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: objects}
}

// clientOptions keep the client from answering out of a cache that holds only some of the objects: one Secret, the volumes
// that bear our labels, the claims that bear etcd-druid's.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{
		DisableFor: []client.Object{&corev1.Secret{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}},
	}}
}
