package render

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// The values of the component label.
const (
	ComponentClientService  = "etcd-client-service"
	ComponentPeerService    = "etcd-peer-service"
	ComponentConfigMap      = "etcd-configmap"
	ComponentMemberLease    = "etcd-member-lease"
	ComponentSnapshotLease  = "etcd-snapshot-lease"
	ComponentBudget         = "etcd-pdb"
	ComponentRole           = "etcd-role"
	ComponentRoleBinding    = "etcd-role-binding"
	ComponentServiceAccount = "etcd-service-account"
	ComponentStatefulSet    = "etcd-statefulset"
)

// The ports that are used where the Etcd names none.
const (
	DefaultClientPort  int32 = 2379
	DefaultPeerPort    int32 = 2380
	DefaultBackupPort  int32 = 8080
	DefaultWrapperPort int32 = 9095
)

const (
	defaultQuota               = int64(8) << 30
	defaultCompactionMode      = "periodic"
	defaultCompactionRetention = "30m"
	defaultCAKey               = "ca.crt"
)

const (
	dataPath          = "/var/etcd/data"
	dataDir           = dataPath + "/new.etcd"
	configPath        = "/var/etcd/config/"
	clientCAPath      = "/var/etcd/ssl/ca"
	serverCertPath    = "/var/etcd/ssl/server"
	clientCertPath    = "/var/etcd/ssl/client"
	peerCAPath        = "/var/etcd/ssl/peer/ca"
	peerCertPath      = "/var/etcd/ssl/peer/server"
	backupCAPath      = "/var/etcdbr/ssl/ca"
	backupCertPath    = "/var/etcdbr/ssl/server"
	gcsSecretPath     = "/var/.gcp/"
	backupSecretPath  = "/var/etcd-backup"
	secretMode        = int32(0o640)
	rootUser          = int64(0)
	nonRootUser       = int64(65532)
	homeOfRoot        = "/root"
	homeOfNonRoot     = "/home/nonroot"
	localHostSuffix   = "-local"
	loopback          = "127.0.0.1"
	wrapperReadyPath  = "/readyz"
	serverPortName    = "server"
	clientPortName    = "client"
	peerPortName      = "peer"
	backupPortName    = "backuprestore"
	connectionTimeout = "5m"
	defragTimeout     = "15m"
	snapshotTimeout   = "15m"
	heartbeat         = "10s"
	maxBackups        = int32(7)
	deltaMemoryLimit  = int64(100) << 20
	snapshotCount     = int64(10000)
	policyLimitBased  = "LimitBased"
	compressionPolicy = "gzip"
)

// ConfigFile is the key of the ConfigMap, and the file, that has the etcd configuration.
const ConfigFile = "etcd.conf.yaml"

// ChecksumAnnotation is put on the pods, so that a new configuration rolls them.
const ChecksumAnnotation = "checksum/etcd-configmap"

// labels are the labels of a component: the two defaults, its kind and its name.
func labels(etcd *api.Etcd, component, name string) map[string]string {
	all := etcd.DefaultLabels()
	all[api.LabelComponent] = component
	all[api.LabelName] = name
	return all
}

// podSelector selects the members' pods and nothing else: the default labels alone would also select other pods of the
// same Etcd.
func podSelector(etcd *api.Etcd) map[string]string {
	all := etcd.DefaultLabels()
	all[api.LabelComponent] = ComponentStatefulSet
	return all
}

func owners(etcd *api.Etcd) []metav1.OwnerReference {
	return []metav1.OwnerReference{etcd.OwnerReference()}
}

// merged puts the maps over each other, later ones winning.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func clientPort(etcd *api.Etcd) int32 { return ptr.Deref(etcd.Spec.Etcd.ClientPort, DefaultClientPort) }

func peerPort(etcd *api.Etcd) int32 { return ptr.Deref(etcd.Spec.Etcd.ServerPort, DefaultPeerPort) }

func wrapperPort(etcd *api.Etcd) int32 {
	return ptr.Deref(etcd.Spec.Etcd.WrapperPort, DefaultWrapperPort)
}

// BackupPort is the port of the sidecar's server.
func BackupPort(etcd *api.Etcd) int32 { return ptr.Deref(etcd.Spec.Backup.Port, DefaultBackupPort) }

func quota(etcd *api.Etcd) int64 {
	if q := etcd.Spec.Etcd.Quota; q != nil {
		return q.Value()
	}
	return defaultQuota
}

func caKey(tls *api.TLSConfig) string { return ptr.Deref(tls.TLSCASecretRef.DataKey, defaultCAKey) }

func peerTLS(etcd *api.Etcd) *api.TLSConfig {
	if etcd.Spec.Etcd.PeerURLTLS == nil {
		return nil
	}
	return &etcd.Spec.Etcd.PeerURLTLS.TLSConfig
}
