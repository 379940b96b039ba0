package change_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func spec(class, capacity, template string) volume.Spec {
	return volume.Spec{Class: class, Capacity: resource.MustParse(capacity), Template: template}
}

func TestBetweenNamesEachFieldThatDiffersInEffect(t *testing.T) {
	before := spec("slow", "20Gi", "main")
	tests := map[string]struct {
		after volume.Spec
		want  []change.Change
	}{
		"nothing":                             {spec("slow", "20Gi", "main"), nil},
		"the same quantity written otherwise": {spec("slow", "20480Mi", "main"), nil},
		"another class": {
			spec("fast", "20Gi", "main"),
			[]change.Change{{Kind: change.Reclass, Field: change.StorageClass, From: "slow", To: "fast"}},
		},
		"the class left to the cluster": {
			spec("", "20Gi", "main"),
			[]change.Change{{Kind: change.Reclass, Field: change.StorageClass, From: "slow", To: ""}},
		},
		"more capacity": {
			spec("slow", "25Gi", "main"),
			[]change.Change{{Kind: change.Grow, Field: change.StorageCapacity, From: "20Gi", To: "25Gi"}},
		},
		"less capacity": {
			spec("slow", "1Gi", "main"),
			[]change.Change{{Kind: change.Shrink, Field: change.StorageCapacity, From: "20Gi", To: "1Gi"}},
		},
		"all at once, sorted by field": {
			spec("fast", "1Gi", "data"),
			[]change.Change{
				{Kind: change.Shrink, Field: change.StorageCapacity, From: "20Gi", To: "1Gi"},
				{Kind: change.Reclass, Field: change.StorageClass, From: "slow", To: "fast"},
				{Kind: change.Retemplate, Field: change.VolumeClaimTemplate, From: "main", To: "data"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := change.Between(before, tt.after)

			assert.Equal(t, change.Set{Before: before, After: tt.after, Changes: tt.want}, got)
			assert.Equal(t, len(tt.want) == 0, got.Empty())
		})
	}
}

func TestSetNamesItsKinds(t *testing.T) {
	set := change.Between(spec("slow", "20Gi", "main"), spec("fast", "1Gi", "main"))

	assert.Equal(t, "Shrink,Reclass", set.String())
	assert.True(t, set.Has(change.Reclass))
	assert.False(t, set.Has(change.Grow))
}

// FuzzBetweenAgreesWithJSONPatch holds Between against a route that knows nothing of volumes: the RFC 6902 diff of both
// specs in their effective form names the same fields.
func FuzzBetweenAgreesWithJSONPatch(f *testing.F) {
	f.Add("slow", int64(20), "main", "fast", int64(20), "main")
	f.Add("", int64(0), "", "", int64(-1), "x")
	f.Add("a/b~c", int64(1<<40), "m", "a/b", int64(1<<41), "n")
	f.Fuzz(func(t *testing.T, class1 string, size1 int64, template1, class2 string, size2 int64, template2 string) {
		class1, class2 = strings.ToValidUTF8(class1, "?"), strings.ToValidUTF8(class2, "?")
		template1, template2 = strings.ToValidUTF8(template1, "?"), strings.ToValidUTF8(template2, "?")
		before := volume.Spec{Class: class1, Capacity: *resource.NewQuantity(size1, resource.BinarySI), Template: template1}
		after := volume.Spec{Class: class2, Capacity: *resource.NewQuantity(size2, resource.DecimalSI), Template: template2}

		var got []string
		for _, c := range change.Between(before, after).Changes {
			got = append(got, "/"+strings.TrimPrefix(string(c.Field), "spec."))
		}

		assert.Equal(t, patchedPaths(t, before, after), got)
	})
}

func patchedPaths(t *testing.T, before, after volume.Spec) []string {
	t.Helper()
	patch, err := jsonpatch.CreatePatch(effective(t, before), effective(t, after))
	require.NoError(t, err)
	var paths []string
	for _, op := range patch {
		paths = append(paths, op.Path)
	}
	slices.Sort(paths)
	return paths
}

func effective(t *testing.T, s volume.Spec) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"storageClass": s.Class, "storageCapacity": s.Capacity.AsDec().String(), "volumeClaimTemplate": s.Template,
	})
	require.NoError(t, err)
	return raw
}
