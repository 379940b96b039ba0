package render_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/render"
)

func newEtcd(mods ...func(*api.Etcd)) *api.Etcd {
	etcd := &api.Etcd{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "etcd-main", UID: "42"},
		Spec:       api.EtcdSpec{Labels: map[string]string{"role": "main"}, Replicas: 3},
	}
	for _, mod := range mods {
		mod(etcd)
	}
	return etcd
}

func withLocalStore(e *api.Etcd) {
	e.Spec.Backup.Store = &api.StoreSpec{Provider: ptr.To("Local"), Container: ptr.To("bucket"), Prefix: "etcd-main"}
}

func input() render.Input {
	return render.Input{
		Images:         render.Images{Etcd: "wrapper:1", Backup: "brctl:1", Init: "init:1"},
		ReadinessDelay: render.DefaultReadinessDelay,
		Replicas:       3,
		ConfigChecksum: "abc",
		HostPath:       "/buckets",
	}
}

func statefulSet(t *testing.T, etcd *api.Etcd) *appsv1.StatefulSet {
	t.Helper()
	sts := &appsv1.StatefulSet{}
	require.NoError(t, render.StatefulSet(sts, etcd, input()))
	return sts
}

func TestClaimTemplateIsExactlyWhatTheEtcdAsksFor(t *testing.T) {
	claim := func(name, size string, class *string) []corev1.PersistentVolumeClaim {
		return []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
				StorageClassName: class,
			},
		}}
	}
	for name, tc := range map[string]struct {
		spec func(*api.Etcd)
		want []corev1.PersistentVolumeClaim
	}{
		"nothing named": {func(*api.Etcd) {}, claim("etcd-main", "16Gi", nil)},
		"empty class":   {func(e *api.Etcd) { e.Spec.StorageClass = ptr.To("") }, claim("etcd-main", "16Gi", nil)},
		"all named": {func(e *api.Etcd) {
			e.Spec.StorageClass = ptr.To("fast")
			e.Spec.StorageCapacity = ptr.To(resource.MustParse("25Gi"))
			e.Spec.VolumeClaimTemplate = ptr.To("data")
		}, claim("data", "25Gi", ptr.To("fast"))},
	} {
		t.Run(name, func(t *testing.T) {
			sts := statefulSet(t, newEtcd(tc.spec))
			assert.Equal(t, tc.want, sts.Spec.VolumeClaimTemplates)
			for _, c := range sts.Spec.Template.Spec.Containers {
				assert.Contains(t, c.VolumeMounts, corev1.VolumeMount{Name: tc.want[0].Name, MountPath: "/var/etcd/data"})
			}
		})
	}
}

func TestStatefulSetIsGovernedAsDruidGovernsIt(t *testing.T) {
	sts := statefulSet(t, newEtcd())
	assert.Equal(t, &metav1.LabelSelector{MatchLabels: map[string]string{
		"app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/part-of": "etcd-main",
	}}, sts.Spec.Selector)
	assert.Equal(t, appsv1.ParallelPodManagement, sts.Spec.PodManagementPolicy)
	assert.Equal(t, appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}, sts.Spec.UpdateStrategy)
	assert.Equal(t, "etcd-main-peer", sts.Spec.ServiceName)
	assert.Equal(t, int32(3), *sts.Spec.Replicas)
	assert.Equal(t, []metav1.OwnerReference{{
		APIVersion: "druid.gardener.cloud/v1alpha1", Kind: "Etcd", Name: "etcd-main", UID: "42", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}, sts.OwnerReferences)
}

func TestMetadataOfOthersOnTheStatefulSetIsDropped(t *testing.T) {
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"ours": "1"}, Labels: map[string]string{"ours": "1"}}}
	require.NoError(t, render.StatefulSet(sts, newEtcd(), input()))
	assert.Nil(t, sts.Annotations)
	assert.NotContains(t, sts.Labels, "ours")
}

func TestMutableStatefulSetLeavesFixedFieldsAlone(t *testing.T) {
	sts := statefulSet(t, newEtcd())
	before := sts.DeepCopy()
	changed := newEtcd(func(e *api.Etcd) { e.Spec.StorageClass = ptr.To("fast") })
	require.NoError(t, render.MutableStatefulSet(sts, changed, input()))
	assert.Equal(t, before.Spec.VolumeClaimTemplates, sts.Spec.VolumeClaimTemplates)
}

func TestEtcdContainerIsStartedAsDruidStartsIt(t *testing.T) {
	c := statefulSet(t, newEtcd()).Spec.Template.Spec.Containers[0]
	assert.Equal(t, "etcd", c.Name)
	assert.Equal(t, "wrapper:1", c.Image)
	assert.Equal(t, []string{
		"start-etcd",
		"--backup-restore-host-port=etcd-main-local:8080",
		"--etcd-server-name=etcd-main-local",
		"--backup-restore-tls-enabled=false",
		"--etcd-client-port=2379",
		"--etcd-wrapper-port=9095",
	}, c.Args)
	assert.Equal(t, &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(9095), Scheme: corev1.URISchemeHTTP}},
		InitialDelaySeconds: 15, PeriodSeconds: 5, FailureThreshold: 5,
	}, c.ReadinessProbe)
	assert.Equal(t, []corev1.ContainerPort{
		{Name: "server", Protocol: corev1.ProtocolTCP, ContainerPort: 2380}, {Name: "client", Protocol: corev1.ProtocolTCP, ContainerPort: 2379},
	}, c.Ports)
}

func TestSidecarIsStartedAsDruidStartsIt(t *testing.T) {
	etcd := newEtcd(withLocalStore, func(e *api.Etcd) {
		e.Spec.Backup.FullSnapshotSchedule = ptr.To("0 */24 * * *")
		e.Spec.Backup.DeltaSnapshotPeriod = &metav1.Duration{Duration: 5 * time.Minute}
		e.Spec.Etcd.Quota = ptr.To(resource.MustParse("1Gi"))
	})
	c := statefulSet(t, etcd).Spec.Template.Spec.Containers[1]
	assert.Equal(t, "backup-restore", c.Name)
	assert.Equal(t, []string{
		"server",
		"--server-port=8080",
		"--enable-snapshot-lease-renewal=true",
		"--full-snapshot-lease-name=etcd-main-full-snap",
		"--delta-snapshot-lease-name=etcd-main-delta-snap",
		"--storage-provider=Local",
		"--store-prefix=etcd-main",
		"--schedule=0 */24 * * *",
		"--delta-snapshot-period=5m0s",
		"--delta-snapshot-memory-limit=104857600",
		"--garbage-collection-policy=LimitBased",
		"--max-backups=7",
		"--compress-snapshots=true",
		"--compression-policy=gzip",
		"--etcd-snapshot-timeout=15m",
		"--etcd-defrag-timeout=15m",
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=30m",
		"--insecure-transport=true",
		"--insecure-skip-tls-verify=true",
		"--endpoints=http://etcd-main-local:2379",
		"--service-endpoints=http://etcd-main-client:2379",
		"--data-dir=/var/etcd/data/new.etcd",
		"--restoration-temp-snapshots-dir=/var/etcd/data/restoration.temp",
		"--snapstore-temp-directory=/var/etcd/data/temp",
		"--etcd-connection-timeout=5m",
		"--use-etcd-wrapper=true",
		"--enable-member-lease-renewal=true",
		"--k8s-heartbeat-duration=10s",
		"--embedded-etcd-quota-bytes=1073741824",
	}, c.Args)
	assert.Equal(t, []string{"POD_NAME", "POD_NAMESPACE", "STORAGE_CONTAINER"}, names(c.Env))
	assert.Equal(t, []corev1.VolumeMount{
		{Name: "etcd-main", MountPath: "/var/etcd/data"},
		{Name: "etcd-config-file", MountPath: "/var/etcd/config/"},
		{Name: "local-backup", MountPath: "/home/nonroot/bucket"},
	}, c.VolumeMounts)
}

func TestSidecarWithoutStoreTakesNoSnapshots(t *testing.T) {
	c := statefulSet(t, newEtcd()).Spec.Template.Spec.Containers[1]
	assert.Equal(t, []string{"server", "--server-port=8080", "--etcd-defrag-timeout=15m"}, c.Args[:3])
	assert.Equal(t, []string{"POD_NAME", "POD_NAMESPACE"}, names(c.Env))
}

func TestTLSBringsItsArgumentsAndMounts(t *testing.T) {
	secrets := func(prefix string) api.TLSConfig {
		ref := func(name string) corev1.SecretReference { return corev1.SecretReference{Name: prefix + name} }
		return api.TLSConfig{TLSCASecretRef: api.SecretReference{SecretReference: ref("-ca"), DataKey: ptr.To("bundle.crt")}, ServerTLSSecretRef: ref("-server"), ClientTLSSecretRef: ref("-client")}
	}
	etcd := newEtcd(func(e *api.Etcd) {
		e.Spec.Etcd.ClientURLTLS = ptr.To(secrets("c"))
		e.Spec.Etcd.PeerURLTLS = &api.PeerTLSConfig{TLSConfig: secrets("p")}
		e.Spec.Backup.TLS = ptr.To(secrets("b"))
	})
	pod := statefulSet(t, etcd).Spec.Template.Spec

	assert.Contains(t, pod.Containers[0].Args, "--backup-restore-ca-cert-bundle-path=/var/etcdbr/ssl/ca/bundle.crt")
	assert.Contains(t, pod.Containers[0].Args, "--etcd-client-cert-path=/var/etcd/ssl/client/tls.crt")
	assert.Equal(t, corev1.URISchemeHTTPS, pod.Containers[0].ReadinessProbe.HTTPGet.Scheme)
	assert.Contains(t, pod.Containers[1].Args, "--cacert=/var/etcd/ssl/ca/bundle.crt")
	assert.Contains(t, pod.Containers[1].Args, "--insecure-transport=false")
	assert.Contains(t, pod.Containers[1].Args, "--endpoints=https://etcd-main-local:2379")
	assert.Contains(t, pod.Containers[1].Args, "--server-cert=/var/etcdbr/ssl/server/tls.crt")

	mounted := map[string]bool{"etcd-main": true}
	for _, v := range pod.Volumes {
		mounted[v.Name] = true
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			assert.True(t, mounted[m.Name], "container %s mounts %s, which is no volume", c.Name, m.Name)
		}
	}
}

func TestPodRunsAsTheUserThatTheEtcdNames(t *testing.T) {
	pod := statefulSet(t, newEtcd(withLocalStore)).Spec.Template.Spec
	assert.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser)
	assert.Equal(t, int64(65532), *pod.SecurityContext.FSGroup)
	require.Len(t, pod.InitContainers, 1)
	assert.Equal(t, []string{"/bin/sh", "-c", "chown -R 65532:65532 /home/nonroot/bucket || echo left as it is"}, pod.InitContainers[0].Command)

	pod = statefulSet(t, newEtcd(withLocalStore, func(e *api.Etcd) { e.Spec.RunAsRoot = ptr.To(true) })).Spec.Template.Spec
	assert.Equal(t, int64(0), *pod.SecurityContext.RunAsUser)
	assert.Empty(t, pod.InitContainers)
	assert.Contains(t, pod.Containers[1].VolumeMounts, corev1.VolumeMount{Name: "local-backup", MountPath: "/root/bucket"})
}

func TestPodsCanReachTheirOwnContainersByName(t *testing.T) {
	template := statefulSet(t, newEtcd()).Spec.Template
	assert.Equal(t, []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"etcd-main-local"}}}, template.Spec.HostAliases)
	assert.True(t, *template.Spec.ShareProcessNamespace)
	assert.Equal(t, "etcd-main", template.Spec.ServiceAccountName)
	assert.Equal(t, "abc", template.Annotations["checksum/etcd-configmap"])
	assert.Equal(t, "main", template.Labels["role"])
	assert.Equal(t, "etcd-statefulset", template.Labels["app.kubernetes.io/component"])
}

func TestAnUnknownProviderIsRefused(t *testing.T) {
	etcd := newEtcd(withLocalStore, func(e *api.Etcd) { e.Spec.Backup.Store.Provider = ptr.To("floppy") })
	assert.ErrorContains(t, render.StatefulSet(&appsv1.StatefulSet{}, etcd, input()), `"floppy"`)
}

func TestEtcdConfigurationNamesEveryMember(t *testing.T) {
	cm := &corev1.ConfigMap{}
	require.NoError(t, render.ConfigMap(cm, newEtcd(func(e *api.Etcd) {
		e.Spec.Replicas = 2
		e.Spec.MemberNamePrefix = ptr.To("east")
	})))
	got := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(cm.Data["etcd.conf.yaml"]), &got))
	assert.Equal(t, map[string]any{
		"name": "etcd-config", "data-dir": "/var/etcd/data/new.etcd", "metrics": "basic", "snapshot-count": 10000.0, "enable-grpc-gateway": false,
		"quota-backend-bytes": 8589934592.0, "initial-cluster-token": "etcd-cluster", "initial-cluster-state": "new",
		"initial-cluster":      "east-etcd-main-0=http://etcd-main-0.etcd-main-peer.shoot.svc:2380,east-etcd-main-1=http://etcd-main-1.etcd-main-peer.shoot.svc:2380",
		"auto-compaction-mode": "periodic", "auto-compaction-retention": "30m",
		"listen-peer-urls": "http://0.0.0.0:2380", "listen-client-urls": "http://0.0.0.0:2379",
		"initial-advertise-peer-urls": map[string]any{
			"east-etcd-main-0": []any{"http://etcd-main-0.etcd-main-peer.shoot.svc:2380"}, "east-etcd-main-1": []any{"http://etcd-main-1.etcd-main-peer.shoot.svc:2380"},
		},
		"advertise-client-urls": map[string]any{
			"east-etcd-main-0": []any{"http://etcd-main-0.etcd-main-peer.shoot.svc:2379"}, "east-etcd-main-1": []any{"http://etcd-main-1.etcd-main-peer.shoot.svc:2379"},
		},
		"member-name-prefix": "east", "next-cluster-version-compatible": true,
	}, got)
}

func TestServicesLeadToTheMembersOnly(t *testing.T) {
	selector := map[string]string{
		"app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/part-of": "etcd-main", "app.kubernetes.io/component": "etcd-statefulset",
	}
	clients, peers := &corev1.Service{}, &corev1.Service{}
	render.ClientService(clients, newEtcd())
	render.PeerService(peers, newEtcd())

	assert.Equal(t, selector, clients.Spec.Selector)
	assert.Equal(t, selector, peers.Spec.Selector)
	assert.Equal(t, map[string]int32{"client": 2379, "server": 2380, "backuprestore": 8080}, ports(clients))
	assert.Equal(t, map[string]int32{"peer": 2380}, ports(peers))
	assert.Equal(t, corev1.ClusterIPNone, peers.Spec.ClusterIP)
	assert.True(t, peers.Spec.PublishNotReadyAddresses)
}

func TestBudgetKeepsAMajorityOfSeveralMembers(t *testing.T) {
	for replicas, want := range map[int32]int32{0: 0, 1: 0, 3: 2, 5: 3} {
		pdb := &policyv1.PodDisruptionBudget{}
		render.Budget(pdb, newEtcd(func(e *api.Etcd) { e.Spec.Replicas = replicas }))
		assert.Equal(t, intstr.FromInt32(want), *pdb.Spec.MinAvailable, "%d members", replicas)
	}
}

func TestLeasesAreOwnedAndTheirSpecIsLeftAlone(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "etcd-main-0"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a:b:Leader")}}
	render.MemberLease(lease, newEtcd())
	assert.Equal(t, "a:b:Leader", *lease.Spec.HolderIdentity)
	assert.Equal(t, "etcd-member-lease", lease.Labels["app.kubernetes.io/component"])
	assert.Len(t, lease.OwnerReferences, 1)
}

func TestRoleNameIsMadeALabelValue(t *testing.T) {
	role := &rbacv1.Role{}
	render.Role(role, newEtcd())
	assert.Equal(t, "druid.gardener.cloud-etcd-etcd-main", role.Labels["app.kubernetes.io/name"])
}

func names(env []corev1.EnvVar) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		out = append(out, e.Name)
	}
	return out
}

func ports(svc *corev1.Service) map[string]int32 {
	out := map[string]int32{}
	for _, p := range svc.Spec.Ports {
		out[p.Name] = p.Port
	}
	return out
}
