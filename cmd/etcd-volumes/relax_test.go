package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/etcd-volumes/etcd-volumes/test/druid/crds"
)

func crd(t *testing.T, text []byte) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON(text)
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(encoded))
	return u
}

func rules(texts ...string) []any {
	var all []any
	for _, text := range texts {
		all = append(all, map[string]any{"rule": text, "message": "no"})
	}
	return all
}

// synthetic is a CRD with the given rules at the spec and at storageClass, and a field that we know nothing of.
func synthetic(atSpec, atClass []any) *unstructured.Unstructured {
	class := map[string]any{"type": "string"}
	if atClass != nil {
		class[validationsKey] = atClass
	}
	spec := map[string]any{"type": "object", "properties": map[string]any{"storageClass": class, "replicas": map[string]any{
		"type": "integer", validationsKey: rules("self == oldSelf"),
	}}}
	if atSpec != nil {
		spec[validationsKey] = atSpec
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": etcdCRD},
		"spec": map[string]any{"fromTheFuture": "kept", "versions": []any{map[string]any{
			"name": "v1alpha1", "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{"spec": spec}}},
		}}},
	}}
}

func cluster(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(objects...).Build()
}

// specOf is the spec as YAML: a difference is readable.
func specOf(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := yaml.Marshal(u.Object["spec"])
	require.NoError(t, err)
	return string(text)
}

func live(t *testing.T, c client.Client) string {
	t.Helper()
	u := synthetic(nil, nil)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: etcdCRD}, u))
	return specOf(t, u)
}

func TestExactlyTheFourRulesThatForbidVolumeChangesAreRemoved(t *testing.T) {
	c := cluster(crd(t, crds.CRD(true)))
	var out bytes.Buffer
	require.NoError(t, relaxCRD(t.Context(), c, removed, &out))
	assert.Equal(t, `etcds.druid.gardener.cloud: removed rule "has(oldSelf.storageClass) ==  has(self.storageClass)" of spec (version v1alpha1)
etcds.druid.gardener.cloud: removed rule "has(oldSelf.volumeClaimTemplate) == has(self.volumeClaimTemplate)" of spec (version v1alpha1)
etcds.druid.gardener.cloud: removed rule "self == oldSelf" of spec.storageClass (version v1alpha1)
etcds.druid.gardener.cloud: removed rule "self == oldSelf" of spec.volumeClaimTemplate (version v1alpha1)
`, out.String())
	assert.Equal(t, specOf(t, crd(t, crds.CRD(false))), live(t, c))
}

func TestTheSecondTimeNothingIsDone(t *testing.T) {
	c := cluster(crd(t, crds.CRD(true)))
	require.NoError(t, relaxCRD(t.Context(), c, removed, &bytes.Buffer{}))
	var out bytes.Buffer
	still := interceptor.NewClient(c, interceptor.Funcs{Patch: refuse})
	require.NoError(t, relaxCRD(t.Context(), still, removed, &out))
	assert.Equal(t, "etcds.druid.gardener.cloud: nothing to do, volume changes are not forbidden by the CRD\n", out.String())
}

func refuse(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
	return apierrors.NewBadRequest("nothing may be written")
}

func TestADryRunSaysWhatItWouldDoAndWritesNothing(t *testing.T) {
	c := interceptor.NewClient(cluster(crd(t, crds.CRD(true))), interceptor.Funcs{Patch: refuse})
	var out bytes.Buffer
	require.NoError(t, relaxCRD(t.Context(), c, wouldRemove, &out))
	assert.Contains(t, out.String(), `would remove rule "self == oldSelf" of spec.storageClass`)
}

func TestRulesAreFoundByWhatTheySay(t *testing.T) {
	kept := "has(oldSelf.memberNamePrefix) == has(self.memberNamePrefix)"
	for name, c := range map[string]struct{ atSpec, atClass, wantSpec, wantClass []any }{
		"in any order":      {rules("has(self.storageClass)==has(oldSelf.storageClass)", kept), nil, rules(kept), nil},
		"last":              {rules(kept, " has(oldSelf.storageClass)  ==\n has(self.storageClass) "), nil, rules(kept), nil},
		"turned around":     {nil, rules("oldSelf == self"), nil, nil},
		"beside another":    {nil, rules("self != ''", "self == oldSelf", "self.size() < 9"), nil, rules("self != ''", "self.size() < 9")},
		"twice":             {nil, rules("self == oldSelf", "self==oldSelf"), nil, nil},
		"not the whole one": {rules("has(self.storageClass) == has(oldSelf.storageClass) || true"), rules("self == oldSelf || self == ''"), rules("has(self.storageClass) == has(oldSelf.storageClass) || true"), rules("self == oldSelf || self == ''")},
		"none":              {nil, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			world := cluster(synthetic(c.atSpec, c.atClass))
			require.NoError(t, relaxCRD(t.Context(), world, removed, &bytes.Buffer{}))
			assert.Equal(t, specOf(t, synthetic(c.wantSpec, c.wantClass)), live(t, world))
		})
	}
}

func TestACRDThatWasChangedMeanwhileIsLeftAlone(t *testing.T) {
	c := cluster(crd(t, crds.CRD(true)))
	racing := interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			other := crd(t, crds.CRD(true))
			if err := c.Get(ctx, client.ObjectKeyFromObject(other), other); err != nil {
				return err
			}
			other.SetLabels(map[string]string{"changed": "meanwhile"})
			if err := c.Update(ctx, other); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	require.Error(t, relaxCRD(t.Context(), racing, removed, &bytes.Buffer{}))
	assert.Equal(t, specOf(t, crd(t, crds.CRD(true))), live(t, c))
}

func TestWithoutDruidsCRDTheCommandFails(t *testing.T) {
	assert.ErrorContains(t, relaxCRD(t.Context(), cluster(), removed, &bytes.Buffer{}), "read CRD etcds.druid.gardener.cloud")
}
