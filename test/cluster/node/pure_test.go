package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestBackOffStartsAtOnceThenDoublesUpToTheMaximumAndForgets(t *testing.T) {
	b := backOff{initial: 10 * time.Second, maximum: 60 * time.Second}
	now := time.Unix(1000, 0)
	var got []time.Duration
	for range 6 {
		got = append(got, b.next(now))
		now = now.Add(time.Minute)
	}
	assert.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute}, got)
	assert.Equal(t, time.Minute, b.next(now.Add(time.Minute)), "twice the maximum is not over yet")
	assert.Zero(t, b.next(now.Add(4*time.Minute)), "it ran well for long enough")
}

func TestExpandReplacesKnownVariables(t *testing.T) {
	variables := map[string]string{"A": "1", "B": "$(A)"}
	for text, want := range map[string]string{
		"":              "",
		"plain":         "plain",
		"$(A)":          "1",
		"x$(A)y$(A)":    "x1y1",
		"$(B)":          "$(A)",
		"$(UNKNOWN)-$(": "$(UNKNOWN)-$(",
		"$$(A)":         "$(A)",
		"cost: 5$":      "cost: 5$",
		"$A":            "$A",
		"$($(A))":       "$($(A))",
	} {
		assert.Equal(t, want, expand(text, variables), "%q", text)
	}
}

func member() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-0", Namespace: "shop", UID: "u", Labels: map[string]string{"b": "2", "a": "1"}},
		Spec: corev1.PodSpec{
			Hostname: "etcd-0", Subdomain: "etcd-peer", NodeName: "node-1", ServiceAccountName: "sa",
			DNSPolicy:   corev1.DNSClusterFirst,
			HostAliases: []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"etcd-local"}}},
			Containers:  []corev1.Container{{Name: "etcd"}, {Name: "sidecar"}},
		},
	}
}

func TestHostsFileNamesThePodAndItsAliases(t *testing.T) {
	got := hostsFile(member(), "10.244.1.7")
	assert.Contains(t, got, "127.0.0.1\tlocalhost\n")
	assert.Contains(t, got, "\n10.244.1.7\tetcd-0.etcd-peer.shop.svc.cluster.local\tetcd-0\n")
	assert.Contains(t, got, "\n127.0.0.1\tetcd-local\n")

	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "shop"}}
	assert.Contains(t, hostsFile(plain, "10.244.1.8"), "\n10.244.1.8\tjob\n")
}

func TestResolverFollowsTheDNSPolicy(t *testing.T) {
	host := parseResolver("# comment\nnameserver 192.0.2.1\nsearch example.org\noptions timeout:1\n")
	cluster := "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
	machine := "search example.org\nnameserver 192.0.2.1\noptions timeout:1\n"
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string
	}{
		"cluster first":           {func(*corev1.PodSpec) {}, cluster},
		"default":                 {func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSDefault }, machine},
		"host network":            {func(s *corev1.PodSpec) { s.HostNetwork = true }, machine},
		"host network on purpose": {func(s *corev1.PodSpec) { s.HostNetwork, s.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet }, cluster},
		"none": {func(s *corev1.PodSpec) {
			s.DNSPolicy, s.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.9"}}
		}, "nameserver 192.0.2.9\n"},
		"option replaced": {func(s *corev1.PodSpec) {
			s.DNSConfig = &corev1.PodDNSConfig{Searches: []string{"cluster.local", "more"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}}}
		}, "search shop.svc.cluster.local svc.cluster.local cluster.local more\nnameserver 10.96.0.10\noptions ndots:2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := member()
			c.change(&pod.Spec)
			assert.Equal(t, c.want, podResolver(pod, "10.96.0.10", host).String())
		})
	}
}

func TestFieldValueKnowsTheDownwardAPI(t *testing.T) {
	pod := member()
	pod.Status.PodIP, pod.Status.HostIP = "10.244.1.7", "10.244.0.1"
	for path, want := range map[string]string{
		"metadata.name": "etcd-0", "metadata.namespace": "shop", "metadata.uid": "u",
		"metadata.labels['a']": "1", "metadata.labels['none']": "", "metadata.labels": "a=\"1\"\nb=\"2\"",
		"spec.nodeName": "node-1", "spec.serviceAccountName": "sa", "status.podIP": "10.244.1.7", "status.hostIP": "10.244.0.1",
	} {
		got, err := fieldValue(pod, path)
		require.NoError(t, err)
		assert.Equal(t, want, got, path)
	}
	_, err := fieldValue(pod, "spec.containers")
	assert.EqualError(t, err, `unsupported field path "spec.containers"`)
}

func TestResourceValueIsRoundedUpAndFallsBackToTheNode(t *testing.T) {
	pod := member()
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("1500Ki")}
	for _, c := range []struct{ resource, divisor, want string }{
		{"requests.cpu", "", "1"},
		{"requests.cpu", "1m", "50"},
		{"requests.memory", "1Mi", "2"},
		{"limits.cpu", "1", "8"},
		{"limits.memory", "1Gi", "16"},
	} {
		ref := &corev1.ResourceFieldSelector{Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		got, err := resourceValue(pod, &pod.Spec.Containers[0], ref)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s/%s", c.resource, c.divisor)
	}
}

func TestProbeChangesItsVerdictOnlyAtTheThreshold(t *testing.T) {
	probe := &corev1.Probe{FailureThreshold: 2, SuccessThreshold: 2}
	var counter probeCounter
	var got []bool
	for _, ok := range []bool{true, true, true, false, true, false, false, false, true, true} {
		got = append(got, counter.count(probe, ok))
	}
	assert.Equal(t, []bool{false, true, false, false, false, false, true, false, false, true}, got)
}

func TestProbeFindsPortsByName(t *testing.T) {
	where := target{ip: "10.244.1.7", spec: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "client", ContainerPort: 2379}}}}
	for port, want := range map[intstr.IntOrString]string{
		intstr.FromString("client"): "10.244.1.7:2379",
		intstr.FromString("9095"):   "10.244.1.7:9095",
		intstr.FromInt32(8080):      "10.244.1.7:8080",
	} {
		got, err := where.address("", port)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := where.address("", intstr.FromString("nothing"))
	assert.EqualError(t, err, "invalid port nothing")
}

func TestTokenIsReplacedAfterFourFifthsOfItsLife(t *testing.T) {
	issued := time.Unix(0, 0)
	hour := issuedToken{issued: issued, expires: issued.Add(time.Hour)}
	assert.False(t, hour.due(issued.Add(48*time.Minute)))
	assert.True(t, hour.due(issued.Add(49*time.Minute)))
	year := issuedToken{issued: issued, expires: issued.Add(365 * 24 * time.Hour)}
	assert.True(t, year.due(issued.Add(25*time.Hour)))
}

func TestIDMapKnowsItsRanges(t *testing.T) {
	m, err := parseIDMap("         0       1000          1\n         1     100000      65536\n")
	require.NoError(t, err)
	assert.True(t, m.has(0))
	assert.True(t, m.has(65532))
	assert.False(t, m.has(70000))
	assert.Zero(t, m.orRoot(70000))
	_, err = parseIDMap("nonsense")
	assert.Error(t, err)
}
