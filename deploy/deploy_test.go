package deploy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/etcd-volumes/etcd-volumes/deploy"
)

const system = "etcd-volumes-system"

// decode reads each document into its Go type. A field that the type does not know is an error.
func decode(t *testing.T, text []byte) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientscheme.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var all []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		object, _, err := strict.Decode(document, nil, nil)
		require.NoError(t, err, "document:\n%s", document)
		all = append(all, object)
	}
}

// one finds the only object of a type.
func one[T runtime.Object](t *testing.T, text []byte) T {
	t.Helper()
	var found []T
	for _, object := range decode(t, text) {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	b, err := deploy.File(name)
	require.NoError(t, err)
	return b
}

func TestTheManifestsAreAppliedInAnOrderThatWorks(t *testing.T) {
	var kinds []string
	for _, object := range decode(t, deploy.Manifests()) {
		kinds = append(kinds, object.GetObjectKind().GroupVersionKind().Kind)
	}
	assert.Equal(t, []string{
		"Namespace", "CustomResourceDefinition",
		"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ClusterRole",
		"Service", "Deployment", "PodDisruptionBudget",
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
	}, kinds)
}

func TestKustomizationListsTheSameFilesInTheSameOrder(t *testing.T) {
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	require.NoError(t, yaml.Unmarshal(file(t, "kustomization.yaml"), &kustomization))
	assert.Equal(t, deploy.Names(), kustomization.Resources)
}

func TestEveryFileIsEitherInstalledOrNamedAsAnException(t *testing.T) {
	onDisk, err := fs.Glob(os.DirFS("."), "*.yaml")
	require.NoError(t, err)
	want := append(deploy.Names(), "kustomization.yaml", "relax-crd.yaml", "sample.yaml")
	assert.ElementsMatch(t, want, onDisk)
}

func TestTheCRDRecordsWhatWasConfirmedForEver(t *testing.T) {
	crd := one[*apiextensionsv1.CustomResourceDefinition](t, file(t, "crd.yaml"))
	assert.Equal(t, "volumerollouts.volumes.druid.gardener.cloud", crd.Name)
	assert.Equal(t, []string{"vr"}, crd.Spec.Names.ShortNames)
	require.Len(t, crd.Spec.Versions, 1)
	version := crd.Spec.Versions[0]
	assert.NotNil(t, version.Subresources.Status)
	var columns []string
	for _, c := range version.AdditionalPrinterColumns {
		if c.Priority == 0 {
			columns = append(columns, c.Name)
		}
	}
	assert.Equal(t, []string{"Etcd", "Operation", "Phase", "Progress", "Age"}, columns)
	rules := version.Schema.OpenAPIV3Schema.Properties["spec"].XValidations
	require.Len(t, rules, 1)
	assert.Equal(t, "self == oldSelf", rules[0].Rule)
}

// webhook is what both kinds of webhooks have in common.
type webhook struct {
	name              string
	failure           *admissionv1.FailurePolicyType
	match             *admissionv1.MatchPolicyType
	effects           *admissionv1.SideEffectClass
	timeout           *int32
	rules             []admissionv1.RuleWithOperations
	namespaceSelector *metav1.LabelSelector
	objectSelector    *metav1.LabelSelector
	conditions        []admissionv1.MatchCondition
	client            admissionv1.WebhookClientConfig
	versions          []string
}

func validating(t *testing.T) webhook {
	t.Helper()
	c := one[*admissionv1.ValidatingWebhookConfiguration](t, file(t, "webhooks.yaml"))
	assert.Equal(t, "etcd-volumes", c.Name)
	require.Len(t, c.Webhooks, 1)
	w := c.Webhooks[0]
	return webhook{
		w.Name, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.TimeoutSeconds, w.Rules, w.NamespaceSelector, w.ObjectSelector,
		w.MatchConditions, w.ClientConfig, w.AdmissionReviewVersions,
	}
}

func mutating(t *testing.T) webhook {
	t.Helper()
	c := one[*admissionv1.MutatingWebhookConfiguration](t, file(t, "webhooks.yaml"))
	assert.Equal(t, "etcd-volumes", c.Name)
	require.Len(t, c.Webhooks, 1)
	w := c.Webhooks[0]
	assert.Equal(t, admissionv1.NeverReinvocationPolicy, *w.ReinvocationPolicy)
	return webhook{
		w.Name, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.TimeoutSeconds, w.Rules, w.NamespaceSelector, w.ObjectSelector,
		w.MatchConditions, w.ClientConfig, w.AdmissionReviewVersions,
	}
}

func TestTheValidatingWebhookFailsClosedAndTheMutatingOneOpen(t *testing.T) {
	v, m := validating(t), mutating(t)
	assert.Equal(t, "validate.volumes.druid.gardener.cloud", v.name)
	assert.Equal(t, "mutate.volumes.druid.gardener.cloud", m.name)
	assert.Equal(t, admissionv1.Fail, *v.failure)
	assert.Equal(t, admissionv1.Ignore, *m.failure)
	assert.Equal(t, int32(5), *v.timeout)
	assert.Equal(t, int32(2), *m.timeout)
	assert.Equal(t, "/validate-etcds", *v.client.Service.Path)
	assert.Equal(t, "/mutate-etcds", *m.client.Service.Path)
}

func TestBothWebhooksCoverEveryEtcdButThoseInOurNamespace(t *testing.T) {
	scope := admissionv1.NamespacedScope
	for _, w := range []webhook{validating(t), mutating(t)} {
		t.Run(w.name, func(t *testing.T) {
			assert.Equal(t, admissionv1.Equivalent, *w.match)
			assert.Equal(t, admissionv1.SideEffectClassNone, *w.effects)
			assert.Equal(t, []string{"v1"}, w.versions)
			assert.Nil(t, w.objectSelector, "labels are the user's to change: a selector on them is a way around")
			assert.Equal(t, []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups: []string{"druid.gardener.cloud"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"etcds"}, Scope: &scope,
				},
			}}, w.rules)
			assert.Equal(t, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{system}},
			}}, w.namespaceSelector)
			assert.Nil(t, w.client.CABundle, "the operator fills it in, and applying the manifests again must not take it away")
			service := one[*corev1.Service](t, file(t, "service.yaml"))
			assert.Equal(t, service.Name, w.client.Service.Name)
			assert.Equal(t, service.Namespace, w.client.Service.Namespace)
			assert.Equal(t, service.Spec.Ports[0].Port, *w.client.Service.Port)
		})
	}
}

func TestBothWebhooksAreCalledForTheSameRequests(t *testing.T) {
	assert.Equal(t, validating(t).conditions, mutating(t).conditions)
}

func TestTheServiceReachesTheWebhookPortOfTheDeployment(t *testing.T) {
	service, d := one[*corev1.Service](t, file(t, "service.yaml")), deployment(t)
	require.Len(t, service.Spec.Ports, 1)
	port := service.Spec.Ports[0].TargetPort.StrVal
	i := slices.IndexFunc(container(t).Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
	require.GreaterOrEqual(t, i, 0, "no container port is named %q", port)
	assert.Equal(t, int32(9443), container(t).Ports[i].ContainerPort)
	assert.Subset(t, d.Spec.Template.Labels, service.Spec.Selector)
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return one[*appsv1.Deployment](t, file(t, "deployment.yaml"))
}

func container(t *testing.T) corev1.Container {
	t.Helper()
	containers := deployment(t).Spec.Template.Spec.Containers
	require.Len(t, containers, 1)
	return containers[0]
}

func TestTheDeploymentServesWithoutAGap(t *testing.T) {
	d := deployment(t)
	assert.Equal(t, int32(2), *d.Spec.Replicas)
	assert.Equal(t, 0, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	assert.Equal(t, 1, d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue())
	assert.Equal(t, "system-cluster-critical", d.Spec.Template.Spec.PriorityClassName)
	assert.Equal(t, "/readyz", container(t).ReadinessProbe.HTTPGet.Path)
	assert.Equal(t, "/healthz", container(t).LivenessProbe.HTTPGet.Path)
	budget := one[*policyv1.PodDisruptionBudget](t, file(t, "disruption-budget.yaml"))
	assert.Equal(t, 1, budget.Spec.MinAvailable.IntValue())
	assert.Equal(t, d.Spec.Selector, budget.Spec.Selector)
	var keys []string
	for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
		assert.Equal(t, corev1.ScheduleAnyway, spread.WhenUnsatisfiable, "preferred, not required: one zone is enough to run")
		keys = append(keys, spread.TopologyKey)
	}
	assert.Contains(t, keys, "topology.kubernetes.io/zone")
}

func TestEveryPodIsAllowedByTheRestrictedPodSecurityStandard(t *testing.T) {
	namespace := one[*corev1.Namespace](t, file(t, "namespace.yaml"))
	assert.Equal(t, "restricted", namespace.Labels["pod-security.kubernetes.io/enforce"])
	job := one[*batchv1.Job](t, file(t, "relax-crd.yaml"))
	for name, pod := range map[string]corev1.PodSpec{"deployment": deployment(t).Spec.Template.Spec, "job": job.Spec.Template.Spec} {
		t.Run(name, func(t *testing.T) {
			assert.True(t, *pod.SecurityContext.RunAsNonRoot)
			assert.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser)
			assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
			for _, c := range pod.Containers {
				assert.Equal(t, "etcd-volumes:latest", c.Image)
				assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
				assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
				assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
			}
		})
	}
}

// grants lists what the roles of a file allow, one line a verb: role, verb, group/resource, names.
func grants(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	for _, object := range decode(t, file(t, name)) {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			all = append(all, lines("cluster "+role.Name, role.Rules)...)
		case *rbacv1.Role:
			all = append(all, lines("namespace "+role.Name, role.Rules)...)
		default: // accounts and bindings grant nothing of themselves
		}
	}
	slices.Sort(all)
	return all
}

func lines(role string, rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					line := fmt.Sprintf("%s: %s %s/%s %s", role, verb, group, resource, strings.Join(r.ResourceNames, ","))
					all = append(all, strings.TrimSpace(line))
				}
			}
		}
	}
	return all
}

// doorReads is what the webhook looks at; it writes nothing.
var doorReads = []rbacv1.PolicyRule{
	{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"volumes.druid.gardener.cloud"}, Resources: []string{"volumerollouts"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
	{
		APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"},
		ResourceNames: []string{"etcds.druid.gardener.cloud"},
	},
}

// elected is what leader election needs, in our own namespace.
var elected = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update"}, ResourceNames: []string{"etcd-volumes"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
}

// asked reads the +kubebuilder:rbac markers that stand beside the calls.
func asked(t *testing.T, dirs ...string) []string {
	t.Helper()
	marker := regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`)
	var all []string
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, dir)
		for _, path := range paths {
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, found := range marker.FindAllStringSubmatch(string(source), -1) {
				all = append(all, parse(t, found[1])...)
			}
		}
	}
	return all
}

func parse(t *testing.T, marker string) []string {
	t.Helper()
	words := map[string][]string{}
	for _, part := range strings.Split(marker, ",") {
		key, values, ok := strings.Cut(part, "=")
		require.True(t, ok, marker)
		words[key] = strings.Split(strings.Trim(values, `"`), ";")
	}
	role := "cluster etcd-volumes"
	if _, ok := words["namespace"]; ok {
		role = "namespace etcd-volumes"
	}
	return lines(role, []rbacv1.PolicyRule{{
		APIGroups: words["groups"], Resources: words["resources"], ResourceNames: words["resourceNames"], Verbs: words["verbs"],
	}})
}

func TestExactlyWhatTheCodeAsksForIsGranted(t *testing.T) {
	want := slices.Concat(
		asked(t, "reconciler", "certs", "cmd/etcd-volumes"), lines("cluster etcd-volumes", doorReads), lines("namespace etcd-volumes", elected),
	)
	// The reconciler reads one of them alone, ours; the rule of the certificates names it.
	want = slices.DeleteFunc(want, func(line string) bool {
		return line == "cluster etcd-volumes: get admissionregistration.k8s.io/validatingwebhookconfigurations"
	})
	for _, verb := range []string{"get", "list", "watch"} {
		want = append(want, "cluster etcd-volumes-view: "+verb+" volumes.druid.gardener.cloud/volumerollouts")
	}
	slices.Sort(want)
	assert.Equal(t, slices.Compact(want), grants(t, "rbac.yaml"))
}

func TestNothingIsGrantedByWildcardOrTwice(t *testing.T) {
	for _, name := range []string{"rbac.yaml", "relax-crd.yaml"} {
		all := grants(t, name)
		for _, line := range all {
			assert.NotContains(t, line, "*")
		}
		assert.Equal(t, slices.Compact(slices.Clone(all)), all, "%s grants something twice", name)
	}
}

func TestTheOperatorCanNotWriteWhatItIsNotToWrite(t *testing.T) {
	for _, line := range grants(t, "rbac.yaml") {
		words := strings.Fields(line)
		verb, resource := words[2], words[3]
		write := !slices.Contains([]string{"get", "list", "watch"}, verb)
		switch resource {
		case "druid.gardener.cloud/etcds", "druid.gardener.cloud/etcds/status":
			assert.NotContains(t, []string{"update", "create", "delete"}, verb, "an Etcd is patched, never updated: %s", line)
		case "apiextensions.k8s.io/customresourcedefinitions", "storage.k8s.io/storageclasses", "/pods":
			assert.False(t, write, line)
		case "/persistentvolumes":
			assert.NotEqual(t, "delete", verb, line)
		case "/secrets":
			named := len(words) == 5
			inOurs := words[0] == "namespace"
			assert.True(t, verb == "get" || inOurs && (named || verb == "create"), line)
		default:
		}
	}
}

func TestTheSampleIsAnEtcd(t *testing.T) {
	var sample struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			StorageClass    string `json:"storageClass"`
			StorageCapacity string `json:"storageCapacity"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.UnmarshalStrict(file(t, "sample.yaml"), &sample))
	assert.Equal(t, "druid.gardener.cloud/v1alpha1", sample.APIVersion)
	assert.Equal(t, "Etcd", sample.Kind)
	assert.Contains(t, sample.Annotations, "volumes.druid.gardener.cloud/confirm")
}
