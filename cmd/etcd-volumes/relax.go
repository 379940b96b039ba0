package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	etcdCRD        = "etcds.druid.gardener.cloud"
	validationsKey = "x-kubernetes-validations"
)

// freed are the fields of an Etcd's spec that etcd-druid's CRD makes immutable and we make changeable.
var freed = []string{"storageClass", "volumeClaimTemplate"}

type relaxOptions struct {
	kubeconfig, context string
	dryRun              bool
}

func relaxDefaults() *relaxOptions { return &relaxOptions{} }

func (o *relaxOptions) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("relax-crd", pflag.ContinueOnError)
	f.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "kubeconfig to use; empty to find the API server as kubectl does")
	f.StringVar(&o.context, "context", o.context, "context of the kubeconfig to use; empty for the current one")
	f.BoolVar(&o.dryRun, "dry-run", o.dryRun, "say what would be removed, and remove nothing")
	return f
}

func relax(ctx context.Context, o *relaxOptions, stdout io.Writer) error {
	api, err := restConfig(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	c, err := client.New(api, client.Options{})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if o.dryRun {
		return relaxCRD(ctx, c, wouldRemove, stdout)
	}
	return relaxCRD(ctx, c, removed, stdout)
}

// intent is what happens to the rules, in words.
type intent string

const (
	removed     intent = "removed"
	wouldRemove intent = "would remove"
)

// relaxCRD removes the rules that make the volume spec immutable from the live CRD, and says which. It removes nothing
// else, does nothing the second time, and fails where the CRD was changed in between.
func relaxCRD(ctx context.Context, c client.Client, done intent, stdout io.Writer) error {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := c.Get(ctx, client.ObjectKey{Name: etcdCRD}, crd); err != nil {
		return fmt.Errorf("read CRD %s: %w", etcdCRD, err)
	}
	rules, err := immutable(crd.Object)
	if err != nil {
		return fmt.Errorf("read CRD %s: %w", etcdCRD, err)
	}
	if len(rules) > 0 && done == removed {
		patch, err := removal(crd.GetResourceVersion(), rules)
		if err != nil {
			return err
		}
		if err := c.Patch(ctx, crd, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("etcd-volumes")); err != nil {
			return fmt.Errorf("patch CRD %s: %w", etcdCRD, err)
		}
	}
	return tell(stdout, rules, done)
}

func tell(stdout io.Writer, rules []rule, done intent) error {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "%s: %s rule %q of %s (version %s)\n", etcdCRD, done, r.text, r.place, r.version)
	}
	if len(rules) == 0 {
		fmt.Fprintf(&b, "%s: nothing to do, volume changes are not forbidden by the CRD\n", etcdCRD)
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}

// rule is a CEL rule of the CRD that forbids a volume change.
type rule struct {
	version string
	place   string // for people: spec, or spec.storageClass
	list    string // JSON pointer to the list that holds it
	index   int
	text    string
	last    bool // the whole list goes
}

// immutable finds the rules by what they say, in each version of the CRD, wherever in its list each stands.
func immutable(crd map[string]any) ([]rule, error) {
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil {
		return nil, err
	}
	var found []rule
	for i, v := range versions {
		version, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("a version is not an object")
		}
		name, _, _ := unstructured.NestedString(version, "name")
		at := fmt.Sprintf("/spec/versions/%d", i)
		path := []string{"schema", "openAPIV3Schema", "properties", "spec"}
		inList, err := forbidding(version, at, path, presenceOfFreed)
		if err != nil {
			return nil, err
		}
		for j := range inList {
			inList[j].version, inList[j].place = name, "spec"
		}
		found = append(found, inList...)
		for _, field := range freed {
			inList, err := forbidding(version, at, append(slices.Clone(path), "properties", field), unchanged)
			if err != nil {
				return nil, err
			}
			for j := range inList {
				inList[j].version, inList[j].place = name, "spec."+field
			}
			found = append(found, inList...)
		}
	}
	return found, nil
}

// forbidding finds the rules of one list that match.
func forbidding(version map[string]any, at string, path []string, match func(string) bool) ([]rule, error) {
	path = append(slices.Clone(path), validationsKey)
	list, _, err := unstructured.NestedSlice(version, path...)
	if err != nil {
		return nil, err
	}
	var found []rule
	for i, v := range list {
		entry, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("a validation rule is not an object")
		}
		text, _, _ := unstructured.NestedString(entry, "rule")
		if match(text) {
			found = append(found, rule{list: at + "/" + strings.Join(path, "/"), index: i, text: text})
		}
	}
	for i := range found {
		found[i].last = len(found) == len(list)
	}
	return found, nil
}

// unchanged matches a rule that says that the value must stay as it is.
func unchanged(text string) bool {
	return oneOf(text, "self", "oldSelf")
}

// presenceOfFreed matches a rule that says that a freed field must stay set, or unset.
func presenceOfFreed(text string) bool {
	return slices.ContainsFunc(freed, func(field string) bool {
		return oneOf(text, "has(self."+field+")", "has(oldSelf."+field+")")
	})
}

// oneOf matches a == b and b == a, whatever the white space.
func oneOf(text, a, b string) bool {
	text = strings.Join(strings.Fields(text), "")
	return text == a+"=="+b || text == b+"=="+a
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// removal is the JSON patch that takes the rules out: each is tested before it is removed, the last of a list first,
// and the whole fails where the CRD was changed since it was read.
func removal(resourceVersion string, rules []rule) ([]byte, error) {
	ops := []operation{{Op: "test", Path: "/metadata/resourceVersion", Value: resourceVersion}}
	for _, r := range slices.Backward(rules) {
		at := fmt.Sprintf("%s/%d", r.list, r.index)
		ops = append(ops, operation{Op: "test", Path: at + "/rule", Value: r.text})
		switch {
		case !r.last:
			ops = append(ops, operation{Op: "remove", Path: at})
		case r.index == 0: // the whole list was tested by now
			ops = append(ops, operation{Op: "remove", Path: r.list})
		}
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
