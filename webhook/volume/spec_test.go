package volume_test

import (
	"encoding/json"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func spec(class, capacity, template string) volume.Spec {
	return volume.Spec{Class: class, Capacity: resource.MustParse(capacity), Template: template}
}

func TestOfSpellsOutTheDefaultsOfEtcdDruid(t *testing.T) {
	bare := func(e *volume.Etcd) { e.Spec = volume.EtcdSpec{} }
	empty := func(e *volume.Etcd) {
		none := ""
		e.Spec.StorageClass, e.Spec.VolumeClaimTemplate = &none, &none
	}
	tests := map[string]struct {
		etcd *volume.Etcd
		want volume.Spec
	}{
		"nothing set":         {fixture.Etcd(bare), spec("", "16Gi", "main")},
		"empty names":         {fixture.Etcd(empty), spec("", "16Gi", "main")},
		"everything set":      {fixture.Etcd(fixture.Capacity("20Gi"), fixture.Template("data")), spec("slow", "20Gi", "data")},
		"the class taken out": {fixture.Etcd(fixture.Class("")), spec("", "16Gi", "main")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := volume.Of(tt.etcd)

			assert.True(t, tt.want.Equal(got), "want %s, got %s", tt.want, got)
		})
	}
}

func TestOfSharesNoMemoryWithTheEtcd(t *testing.T) {
	e := fixture.Etcd()
	got := volume.Of(e)

	e.Spec.StorageCapacity.Add(resource.MustParse("1Gi"))

	assert.True(t, spec("slow", "16Gi", "main").Equal(got))
}

func TestSpecsAreEqualByValue(t *testing.T) {
	base := spec("slow", "20Gi", "main")
	tests := map[string]struct {
		other volume.Spec
		want  bool
	}{
		"the same":                 {spec("slow", "20Gi", "main"), true},
		"another notation":         {spec("slow", "20480Mi", "main"), true},
		"a plain number":           {spec("slow", "21474836480", "main"), true},
		"a byte more":              {spec("slow", "21474836481", "main"), false},
		"a part of a byte more":    {spec("slow", "21474836480001m", "main"), false},
		"another class":            {spec("fast", "20Gi", "main"), false},
		"another template":         {spec("slow", "20Gi", "data"), false},
		"values of other fields":   {spec("main", "20Gi", "slow"), false},
		"more than an int64 holds": {spec("slow", "9Ei", "main"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, base.Equal(tt.other))
			assert.Equal(t, tt.want, base.String() == tt.other.String())
		})
	}
}

func TestSpecsHaveEqualStringsExactlyWhenTheyAreEqual(t *testing.T) {
	property := func(class1, template1, class2, template2 string, milli1, milli2 int16) bool {
		a := volume.Spec{Class: class1, Capacity: *resource.NewMilliQuantity(int64(milli1), resource.DecimalSI), Template: template1}
		b := volume.Spec{Class: class2, Capacity: *resource.NewMilliQuantity(int64(milli2), resource.BinarySI), Template: template2}
		c := volume.Spec{Class: class1, Capacity: b.Capacity, Template: template1}
		return a.Equal(b) == (a.String() == b.String()) && a.Equal(c) == (a.String() == c.String()) && a.Equal(a)
	}
	require.NoError(t, quick.Check(property, nil))
}

func TestASpecSurvivesJSON(t *testing.T) {
	want := spec("slow", "20Gi", "main")
	raw, err := json.Marshal(want)
	require.NoError(t, err)
	assert.JSONEq(t, `{"class":"slow","capacity":"20Gi","template":"main"}`, string(raw))

	var got volume.Spec
	require.NoError(t, json.Unmarshal(raw, &got))
	assert.True(t, want.Equal(got))
}
