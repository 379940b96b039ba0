package deploy_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// oldest is the first Kubernetes version that we support.
var oldest = version.MajorMinor(1, 30)

// matcher compiles the conditions with the API server's own compiler, as a request for a new configuration would.
func matcher(t *testing.T) matchconditions.Matcher {
	t.Helper()
	var expressions []plugincel.ExpressionAccessor
	for _, c := range validating(t).conditions {
		expressions = append(expressions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
	}
	require.NotEmpty(t, expressions)
	compiled := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(oldest)).CompileCondition(
		expressions, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	require.Empty(t, compiled.CompilationErrors())
	fail := admissionv1.Fail
	return matchconditions.NewMatcher(compiled, &fail, "webhook", "validating", "etcd-volumes")
}

type fields = map[string]any

func etcd(spec, annotations fields) fields {
	return fields{
		"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd",
		"metadata": fields{"name": "main", "namespace": "shop", "annotations": annotations},
		"spec":     spec,
	}
}

// request asks the matcher about one request; an error fails the test, since under Fail it would refuse everything.
func request(t *testing.T, m matchconditions.Matcher, operation admission.Operation, before, after fields) bool {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "druid.gardener.cloud", Version: "v1alpha1", Kind: "Etcd"}
	var oldObject runtime.Object
	object := &unstructured.Unstructured{Object: after}
	if before != nil {
		oldObject = &unstructured.Unstructured{Object: before}
	}
	attributes := admission.NewAttributesRecord(object, oldObject, gvk, "shop", "main",
		gvk.GroupVersion().WithResource("etcds"), "", operation, nil, false, nil)
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: gvk,
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(oldObject),
	}
	result := m.Match(t.Context(), versioned, nil, nil)
	require.NoError(t, result.Error)
	return result.Matches
}

const ours = "volumes.druid.gardener.cloud/"

func TestTheWebhooksAreCalledForVolumesAndOurAnnotationsAlone(t *testing.T) {
	full := fields{"storageClass": "slow", "storageCapacity": "10Gi", "volumeClaimTemplate": "data", "replicas": int64(3)}
	with := func(changes fields) fields {
		c := maps.Clone(full)
		maps.Copy(c, changes)
		return c
	}
	without := func(key string) fields {
		c := maps.Clone(full)
		delete(c, key)
		return c
	}
	for name, c := range map[string]struct {
		before, after fields
		called        bool
	}{
		"nothing":                {etcd(full, nil), etcd(full, nil), false},
		"replicas":               {etcd(full, nil), etcd(with(fields{"replicas": int64(1)}), nil), false},
		"class":                  {etcd(full, nil), etcd(with(fields{"storageClass": "fast"}), nil), true},
		"class set":              {etcd(without("storageClass"), nil), etcd(full, nil), true},
		"class removed":          {etcd(full, nil), etcd(without("storageClass"), nil), true},
		"class empty or absent":  {etcd(without("storageClass"), nil), etcd(with(fields{"storageClass": ""}), nil), false},
		"class null":             {etcd(full, nil), etcd(with(fields{"storageClass": nil}), nil), true},
		"capacity":               {etcd(full, nil), etcd(with(fields{"storageCapacity": "20Gi"}), nil), true},
		"capacity as a number":   {etcd(full, nil), etcd(with(fields{"storageCapacity": int64(10737418240)}), nil), true},
		"capacity set":           {etcd(without("storageCapacity"), nil), etcd(full, nil), true},
		"template":               {etcd(full, nil), etcd(with(fields{"volumeClaimTemplate": "other"}), nil), true},
		"template removed":       {etcd(full, nil), etcd(without("volumeClaimTemplate"), nil), true},
		"confirm":                {etcd(full, nil), etcd(full, fields{ours + "confirm": "1-ab"}), true},
		"confirm to empty":       {etcd(full, nil), etcd(full, fields{ours + "confirm": ""}), true},
		"confirm removed":        {etcd(full, fields{ours + "confirm": "1-ab"}), etcd(full, nil), true},
		"confirm kept":           {etcd(full, fields{ours + "confirm": "1-ab"}), etcd(full, fields{ours + "confirm": "1-ab"}), false},
		"confirmed-by":           {etcd(full, nil), etcd(full, fields{ours + "confirmed-by": "{}"}), true},
		"stamp":                  {etcd(full, fields{ours + "stamp": "{}"}), etcd(full, fields{ours + "stamp": "x"}), true},
		"recreate":               {etcd(full, nil), etcd(full, fields{ours + "recreate": "all"}), true},
		"release":                {etcd(full, nil), etcd(full, fields{ours + "release": "x"}), true},
		"recover":                {etcd(full, nil), etcd(full, fields{ours + "recover": "x"}), true},
		"druid's annotations":    {etcd(full, nil), etcd(full, fields{"druid.gardener.cloud/suspend-etcd-spec-reconcile": ""}), false},
		"another annotation":     {etcd(full, fields{"a": "b"}), etcd(full, fields{"a": "c"}), false},
		"no spec on either side": {fields{"metadata": fields{}}, fields{"metadata": fields{}}, false},
		"no spec before":         {fields{"metadata": fields{}}, etcd(full, nil), true},
		"null annotations":       {fields{"metadata": fields{"annotations": nil}}, fields{"metadata": fields{"annotations": nil}}, false},
		"null spec":              {fields{"spec": nil, "metadata": fields{}}, fields{"spec": nil, "metadata": fields{}}, false},
		"no metadata":            {fields{"spec": full}, fields{"spec": full}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.called, request(t, matcher(t), admission.Update, c.before, c.after))
		})
	}
}

func TestTheWebhooksAreCalledForANewEtcdThatCarriesOurMarks(t *testing.T) {
	for name, c := range map[string]struct {
		annotations fields
		called      bool
	}{
		"nothing":            {nil, false},
		"a confirmation":     {fields{ours + "confirm": "1-ab"}, false},
		"a stamp":            {fields{ours + "stamp": "{}"}, true},
		"an empty stamp":     {fields{ours + "stamp": ""}, true},
		"a confirmed-by":     {fields{ours + "confirmed-by": "{}"}, true},
		"another annotation": {fields{"a": "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.called, request(t, matcher(t), admission.Create, nil, etcd(fields{"replicas": int64(3)}, c.annotations)))
		})
	}
	t.Run("no annotations at all", func(t *testing.T) {
		assert.False(t, request(t, matcher(t), admission.Create, nil, fields{"metadata": fields{}, "spec": fields{}}))
	})
}
