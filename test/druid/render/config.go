package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// etcdConfig is the configuration file of etcd, except that the advertised URLs are maps by member name: the sidecar
// picks its member's URLs before etcd reads the file.
type etcdConfig struct {
	Name                    string              `json:"name"`
	DataDir                 string              `json:"data-dir"`
	Metrics                 string              `json:"metrics"`
	SnapshotCount           int64               `json:"snapshot-count"`
	EnableGRPCGateway       bool                `json:"enable-grpc-gateway"`
	Quota                   int64               `json:"quota-backend-bytes"`
	InitialClusterToken     string              `json:"initial-cluster-token"`
	InitialClusterState     string              `json:"initial-cluster-state"`
	InitialCluster          string              `json:"initial-cluster"`
	AutoCompactionMode      string              `json:"auto-compaction-mode"`
	AutoCompactionRetention string              `json:"auto-compaction-retention"`
	ListenPeerURLs          string              `json:"listen-peer-urls"`
	ListenClientURLs        string              `json:"listen-client-urls"`
	AdvertisePeerURLs       map[string][]string `json:"initial-advertise-peer-urls"`
	AdvertiseClientURLs     map[string][]string `json:"advertise-client-urls"`
	ClientSecurity          *security           `json:"client-transport-security,omitempty"`
	PeerSecurity            *security           `json:"peer-transport-security,omitempty"`
	MemberNamePrefix        string              `json:"member-name-prefix,omitempty"`
	NextClusterVersion      bool                `json:"next-cluster-version-compatible,omitempty"`
}

type security struct {
	CertFile                  string `json:"cert-file,omitempty"`
	KeyFile                   string `json:"key-file,omitempty"`
	ClientCertAuth            bool   `json:"client-cert-auth,omitempty"`
	TrustedCAFile             string `json:"trusted-ca-file,omitempty"`
	AutoTLS                   bool   `json:"auto-tls"`
	SkipClientSANVerification bool   `json:"skip-client-san-verification,omitempty"`
}

// ConfigMap sets the etcd configuration of all members.
func ConfigMap(cm *corev1.ConfigMap, etcd *api.Etcd) error {
	config, err := yaml.Marshal(configOf(etcd))
	if err != nil {
		return fmt.Errorf("encode etcd configuration of %s/%s: %w", etcd.Namespace, etcd.Name, err)
	}
	cm.Labels = labels(etcd, ComponentConfigMap, etcd.ConfigMapName())
	cm.OwnerReferences = owners(etcd)
	cm.Data = map[string]string{ConfigFile: string(config)}
	return nil
}

// Checksum identifies the content of a ConfigMap.
func Checksum(cm *corev1.ConfigMap) (string, error) {
	data, err := json.Marshal(cm.Data)
	if err != nil {
		return "", fmt.Errorf("encode data of ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func configOf(etcd *api.Etcd) etcdConfig {
	spec := etcd.Spec
	return etcdConfig{
		Name:                    "etcd-config",
		DataDir:                 dataDir,
		Metrics:                 ptr.Deref(spec.Etcd.Metrics, "basic"),
		SnapshotCount:           ptr.Deref(spec.Etcd.SnapshotCount, snapshotCount),
		EnableGRPCGateway:       ptr.Deref(spec.Etcd.EnableGRPCGateway, false),
		Quota:                   quota(etcd),
		InitialClusterToken:     "etcd-cluster",
		InitialClusterState:     "new",
		InitialCluster:          initialCluster(etcd),
		AutoCompactionMode:      ptr.Deref(spec.Common.AutoCompactionMode, defaultCompactionMode),
		AutoCompactionRetention: ptr.Deref(spec.Common.AutoCompactionRetention, defaultCompactionRetention),
		ListenPeerURLs:          fmt.Sprintf("%s://0.0.0.0:%d", scheme(peerTLS(etcd)), peerPort(etcd)),
		ListenClientURLs:        fmt.Sprintf("%s://0.0.0.0:%d", scheme(spec.Etcd.ClientURLTLS), clientPort(etcd)),
		AdvertisePeerURLs:       advertised(etcd, peerURL),
		AdvertiseClientURLs:     advertised(etcd, clientURL),
		ClientSecurity:          securityOf(spec.Etcd.ClientURLTLS, clientCAPath, serverCertPath),
		PeerSecurity:            peerSecurity(etcd),
		MemberNamePrefix:        ptr.Deref(spec.MemberNamePrefix, ""),
		NextClusterVersion:      true,
	}
}

func initialCluster(etcd *api.Etcd) string {
	members := make([]string, 0, etcd.Spec.Replicas)
	for i := range etcd.Spec.Replicas {
		members = append(members, etcd.MemberName(i)+"="+peerURL(etcd, i))
	}
	return strings.Join(members, ",")
}

func advertised(etcd *api.Etcd, url func(*api.Etcd, int32) string) map[string][]string {
	urls := make(map[string][]string, etcd.Spec.Replicas)
	for i := range etcd.Spec.Replicas {
		urls[etcd.MemberName(i)] = []string{url(etcd, i)}
	}
	return urls
}

func peerURL(etcd *api.Etcd, ordinal int32) string {
	return memberURL(etcd, ordinal, scheme(peerTLS(etcd)), peerPort(etcd))
}

func clientURL(etcd *api.Etcd, ordinal int32) string {
	return memberURL(etcd, ordinal, scheme(etcd.Spec.Etcd.ClientURLTLS), clientPort(etcd))
}

func memberURL(etcd *api.Etcd, ordinal int32, scheme string, port int32) string {
	return fmt.Sprintf("%s://%s.%s.%s.svc:%d", scheme, etcd.PodName(ordinal), etcd.PeerServiceName(), etcd.Namespace, port)
}

func scheme(tls *api.TLSConfig) string {
	if tls == nil {
		return "http"
	}
	return "https"
}

func securityOf(tls *api.TLSConfig, caPath, certPath string) *security {
	if tls == nil {
		return nil
	}
	return &security{
		CertFile:       certPath + "/tls.crt",
		KeyFile:        certPath + "/tls.key",
		ClientCertAuth: true,
		TrustedCAFile:  caPath + "/" + caKey(tls),
	}
}

func peerSecurity(etcd *api.Etcd) *security {
	s := securityOf(peerTLS(etcd), peerCAPath, peerCertPath)
	if s != nil {
		s.SkipClientSANVerification = ptr.Deref(etcd.Spec.Etcd.PeerURLTLS.SkipClientSANVerification, false)
	}
	return s
}
