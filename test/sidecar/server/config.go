package server

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/args"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/leases"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/member"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/snapshots"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

const (
	// configFile is where druid mounts the etcd configuration; ETCD_CONF names another one.
	configFile = "/var/etcd/config/etcd.conf.yaml"
	// wrapperPort is where the real sidecar expects etcd-wrapper, whatever port druid was told.
	wrapperPort = 9095

	localProvider    = "Local"
	limitBased       = "LimitBased"
	defaultContainer = "default.bkp"
	defaultQuota     = int64(8 << 30)
)

// imageHomes are the home directories of the users that the real image runs as.
var imageHomes = []string{"/home/nonroot", "/root"}

// Config is everything that a sidecar is told.
type Config struct {
	Host     string // to listen on; "" is all
	Port     int
	CertFile string
	KeyFile  string

	Conn        member.Conn
	ConfigFile  string
	Pod         string
	Namespace   string
	UseWrapper  bool
	WrapperPort int

	DataDir    string
	RestoreDir string
	Quota      int64

	Provider  string // "" is no store
	Container string
	Prefix    string
	Homes     []string // where a local store may be
	Snapshots snapshots.Config

	MemberLease   bool
	SnapshotLease bool
	Heartbeat     time.Duration
	FullLease     string
	DeltaLease    string
	Leases        *leases.Client // nil outside of a cluster

	ReelectionPeriod time.Duration
	ElectionTimeout  time.Duration

	Pace pace.Pace
	Log  *zap.Logger
}

// FromArgs reads the command line and the environment that druid renders. What the real sidecar
// defaults is defaulted to the same values.
func FromArgs(arguments []string, p pace.Pace, log *zap.Logger) (Config, error) {
	c := Config{
		ConfigFile:  orDefault(os.Getenv("ETCD_CONF"), configFile),
		Pod:         os.Getenv("POD_NAME"),
		Namespace:   os.Getenv("POD_NAMESPACE"),
		WrapperPort: wrapperPort,
		Homes:       homes(),
		Pace:        p,
		Log:         log,
	}
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	c.addEtcdFlags(flags)
	c.addServerFlags(flags)
	c.addLeaseFlags(flags)
	compress, policy := c.addStoreFlags(flags)
	garbage := flags.String("garbage-collection-policy", "Exponential", "LimitBased, or anything else to keep all snapshots")
	if err := args.Parse(flags, arguments, log); err != nil {
		return Config{}, err
	}
	compression, err := store.ParseCompression(*compress, *policy)
	if err != nil {
		return Config{}, err
	}
	c.Snapshots.Compression = compression
	if *garbage != limitBased {
		c.Snapshots.MaxBackups = 0
	}
	c.Container = orDefault(c.Container, orDefault(os.Getenv("STORAGE_CONTAINER"), defaultContainer))
	return c, c.validate()
}

func (c *Config) validate() error {
	if c.Pod == "" || c.Namespace == "" {
		return fmt.Errorf("POD_NAME and POD_NAMESPACE must be set")
	}
	if c.Provider != "" && c.Provider != localProvider {
		return fmt.Errorf("storage provider %q is not modelled, only %s is", c.Provider, localProvider)
	}
	if c.Heartbeat <= 0 {
		return fmt.Errorf("heartbeat period should be greater than zero")
	}
	if c.ReelectionPeriod <= time.Second {
		return fmt.Errorf("re-election period should be greater than 1 second")
	}
	return nil
}

func (c *Config) addEtcdFlags(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&c.Conn.Endpoints, "endpoints", "e", []string{"http://127.0.0.1:2379"}, "client URLs of the own member")
	fs.StringSliceVar(&c.Conn.ServiceEndpoints, "service-endpoints", nil, "client URLs of any ready member")
	fs.DurationVar(&c.Conn.Timeout, "etcd-connection-timeout", 30*time.Second, "patience with etcd")
	fs.DurationVar(&c.Conn.SnapshotTimeout, "etcd-snapshot-timeout", 15*time.Minute, "patience with etcd's snapshot")
	fs.BoolVar(&c.Conn.InsecureTransport, "insecure-transport", true, "no TLS to etcd")
	fs.BoolVar(&c.Conn.InsecureSkipVerify, "insecure-skip-tls-verify", false, "do not verify etcd's certificate")
	fs.StringVar(&c.Conn.CertFile, "cert", "", "client certificate for etcd")
	fs.StringVar(&c.Conn.KeyFile, "key", "", "key of the client certificate for etcd")
	fs.StringVar(&c.Conn.CAFile, "cacert", "", "CA of etcd's certificate")
	fs.StringVarP(&c.DataDir, "data-dir", "d", "default.etcd", "etcd's data directory")
	fs.StringVar(&c.RestoreDir, "restoration-temp-snapshots-dir", "default.restoration.tmp", "directory for snapshots that are being restored")
	fs.Int64Var(&c.Quota, "embedded-etcd-quota-bytes", defaultQuota, "quota of the etcd that deltas are applied to")
}

func (c *Config) addServerFlags(fs *pflag.FlagSet) {
	fs.IntVarP(&c.Port, "server-port", "p", 8080, "port to listen on")
	fs.StringVar(&c.CertFile, "server-cert", "", "certificate of this server")
	fs.StringVar(&c.KeyFile, "server-key", "", "key of the certificate of this server")
	fs.BoolVar(&c.UseWrapper, "use-etcd-wrapper", false, "etcd runs in etcd-wrapper, which can be asked to stop it")
	fs.DurationVar(&c.ReelectionPeriod, "reelection-period", 5*time.Second, "how often to look who leads")
	fs.DurationVar(&c.ElectionTimeout, "etcd-connection-timeout-leader-election", 5*time.Second, "patience with etcd when looking who leads")
}

func (c *Config) addLeaseFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.MemberLease, "enable-member-lease-renewal", false, "renew the member's lease")
	fs.BoolVar(&c.SnapshotLease, "enable-snapshot-lease-renewal", false, "renew the leases of snapshots")
	fs.DurationVar(&c.Heartbeat, "k8s-heartbeat-duration", 30*time.Second, "how often the member's lease is renewed")
	fs.StringVar(&c.FullLease, "full-snapshot-lease-name", "full-snapshot-revisions", "lease of full snapshots")
	fs.StringVar(&c.DeltaLease, "delta-snapshot-lease-name", "delta-snapshot-revisions", "lease of delta snapshots")
}

func (c *Config) addStoreFlags(fs *pflag.FlagSet) (compress *bool, policy *string) {
	s := &c.Snapshots
	fs.StringVar(&c.Provider, "storage-provider", "", "kind of store")
	fs.StringVar(&c.Container, "store-container", "", "container of the store, by default $STORAGE_CONTAINER")
	fs.StringVar(&c.Prefix, "store-prefix", "", "directory in the container")
	fs.StringVar(&s.TempDir, "snapstore-temp-directory", "/tmp", "directory for snapshots that are being taken")
	fs.StringVarP(&s.Schedule, "schedule", "s", "0 */1 * * *", "schedule of full snapshots")
	fs.DurationVar(&s.DeltaPeriod, "delta-snapshot-period", 20*time.Second, "period of delta snapshots; none below 1s")
	fs.IntVar(&s.MemoryLimit, "delta-snapshot-memory-limit", 10<<20, "bytes of events after which a delta snapshot is taken early")
	fs.IntVarP(&s.MaxBackups, "max-backups", "m", 7, "full snapshots to keep")
	fs.DurationVar(&s.CollectEvery, "garbage-collection-period", time.Minute, "how often surplus snapshots are deleted")
	return fs.Bool("compress-snapshots", false, "compress snapshots"), fs.String("compression-policy", "gzip", "gzip, zlib or lzw")
}

// InCluster returns the leases of namespace, reached with the pod's service account.
func InCluster(namespace string) (*leases.Client, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find API server: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to API server: %w", err)
	}
	return &leases.Client{Leases: client.CoordinationV1().Leases(namespace)}, nil
}

func homes() []string {
	if home := os.Getenv("HOME"); home != "" {
		return append([]string{home}, imageHomes...)
	}
	return imageHomes
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
