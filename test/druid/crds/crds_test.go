package crds_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/etcd-volumes/etcd-volumes/test/druid/crds"
)

func TestVariantsDifferInExactlyTheFourVolumeRules(t *testing.T) {
	with, without := definition(t, true), definition(t, false)

	removed := map[string][]string{
		"spec":                     {"has(oldSelf.storageClass) ==  has(self.storageClass)", "has(oldSelf.volumeClaimTemplate) == has(self.volumeClaimTemplate)"},
		"spec.storageClass":        {"self == oldSelf"},
		"spec.volumeClaimTemplate": {"self == oldSelf"},
	}
	got := map[string][]string{}
	spec := schema(with).Properties["spec"]
	spec.XValidations, got["spec"] = split(spec.XValidations, removed["spec"])
	for _, field := range []string{"storageClass", "volumeClaimTemplate"} {
		prop := spec.Properties[field]
		prop.XValidations, got["spec."+field] = split(prop.XValidations, removed["spec."+field])
		spec.Properties[field] = prop
	}
	schema(with).Properties["spec"] = spec

	assert.Equal(t, removed, got)
	assert.Equal(t, without, with, "after removing these four, nothing else may differ")
}

func TestRulesOfReplicasAndMemberNamePrefixStayInBothVariants(t *testing.T) {
	for _, withCEL := range []bool{true, false} {
		spec := schema(definition(t, withCEL)).Properties["spec"]
		assert.Contains(t, rules(spec.XValidations), "has(oldSelf.memberNamePrefix) == has(self.memberNamePrefix)")
		assert.Equal(t, []string{"self == oldSelf"}, rules(spec.Properties["memberNamePrefix"].XValidations))
		assert.Equal(t, []string{"self==0 ? true : self < oldSelf ? false : true"}, rules(spec.Properties["replicas"].XValidations))
	}
}

func TestStorageCapacityHasNoRule(t *testing.T) {
	assert.Empty(t, schema(definition(t, true)).Properties["spec"].Properties["storageCapacity"].XValidations)
}

func definition(t *testing.T, withCEL bool) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd, err := crds.Definition(withCEL)
	require.NoError(t, err)
	require.Equal(t, crds.Name, crd.Name)
	return crd
}

func schema(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// split takes the rules named in drop out of all; what is left of nothing is nil, as it is after decoding.
func split(all apiextensionsv1.ValidationRules, drop []string) (apiextensionsv1.ValidationRules, []string) {
	var left apiextensionsv1.ValidationRules
	var dropped []string
	for _, rule := range all {
		if slices.Contains(drop, rule.Rule) {
			dropped = append(dropped, rule.Rule)
			continue
		}
		left = append(left, rule)
	}
	return left, dropped
}

func rules(all apiextensionsv1.ValidationRules) []string {
	got := make([]string, 0, len(all))
	for _, rule := range all {
		got = append(got, rule.Rule)
	}
	return got
}
