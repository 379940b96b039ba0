package webhook

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// crdName is the CRD of the Etcd.
const crdName = "etcds.druid.gardener.cloud"

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// freezes returns the CRD's CEL rules that compare a field of the volume spec with its old value. etcd-druid ships them for Kubernetes 1.29
// and later; installing us takes them away, and an upgrade of etcd-druid brings them back.
func freezes(ctx context.Context, reader client.Reader) ([]verdict.Freeze, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	if err := reader.Get(ctx, types.NamespacedName{Name: crdName}, crd); err != nil {
		return nil, err
	}
	return freezesOf(crd), nil
}

func freezesOf(crd *unstructured.Unstructured) []verdict.Freeze {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var found []verdict.Freeze
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["name"] != volume.GroupVersion.Version {
			continue
		}
		root, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		spec, _, _ := unstructured.NestedMap(root, "properties", "spec")
		found = append(found, freezesAt("", root)...)
		found = append(found, freezesAt("spec", spec)...)
		for _, field := range []change.Field{change.StorageCapacity, change.StorageClass, change.VolumeClaimTemplate} {
			property, _, _ := unstructured.NestedMap(spec, "properties", leaf(field))
			for _, rule := range transitionRules(property) {
				found = append(found, verdict.Freeze{Field: field, At: string(field), Rule: rule})
			}
		}
	}
	return found
}

// freezesAt finds the rules of a parent that name a field.
func freezesAt(path string, node map[string]any) []verdict.Freeze {
	var found []verdict.Freeze
	for _, rule := range transitionRules(node) {
		for _, field := range []change.Field{change.StorageCapacity, change.StorageClass, change.VolumeClaimTemplate} {
			if strings.Contains(rule, leaf(field)) {
				found = append(found, verdict.Freeze{Field: field, At: path, Rule: rule})
			}
		}
	}
	return found
}

// transitionRules are those that compare with the old object.
func transitionRules(node map[string]any) []string {
	validations, _, _ := unstructured.NestedSlice(node, "x-kubernetes-validations")
	var rules []string
	for _, v := range validations {
		validation, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if rule, ok := validation["rule"].(string); ok && strings.Contains(rule, "oldSelf") {
			rules = append(rules, rule)
		}
	}
	return rules
}

func leaf(field change.Field) string { return strings.TrimPrefix(string(field), "spec.") }
