package wrapper

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
)

const (
	askPause       = time.Second
	requestTimeout = time.Minute
)

// configBackoff is the back-off of fetching the configuration.
var configBackoff = pace.Backoff{First: askPause, Factor: 1, Attempts: 5}

// sidecar is the backup-restore container, seen from etcd's.
type sidecar struct {
	config Config
	client *http.Client
	base   string
}

func newSidecar(c Config) (*sidecar, error) {
	s := &sidecar{config: c, client: &http.Client{Timeout: requestTimeout}, base: "http://" + c.Sidecar}
	if !c.SidecarTLS {
		return s, nil
	}
	host, _, _ := strings.Cut(c.Sidecar, ":")
	tlsConfig, err := transport.TLSInfo{ServerName: host, TrustedCAFile: c.SidecarCA}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load CA of the sidecar: %w", err)
	}
	s.base = "https://" + c.Sidecar
	s.client.Transport = &http.Transport{TLSClientConfig: tlsConfig}
	return s, nil
}

// prepare has the sidecar prepare the data directory and returns etcd's configuration.
func (s *sidecar) prepare(ctx context.Context) (*embed.Config, error) {
	for {
		status, err := s.get(ctx, "/initialization/status")
		if err != nil {
			s.config.Log.Info("sidecar does not answer", zap.Error(err))
		}
		switch string(status) {
		case "New":
			mode := validationMode(s.config.ExitCodeFile)
			s.config.Log.Info("asking for initialization", zap.String("mode", mode))
			if _, err := s.get(ctx, "/initialization/start?mode="+mode); err != nil {
				s.config.Log.Error("initialization is not started", zap.Error(err))
			}
		case "Successful":
			return s.fetchConfig(ctx)
		}
		if err := s.config.Pace.Sleep(ctx, askPause); err != nil {
			return nil, err
		}
	}
}

// validationMode is the quick one only if the last run ended by a signal that it could record.
func validationMode(exitCodeFile string) string {
	data, err := os.ReadFile(exitCodeFile) //nolint:gosec // on the data volume
	if err != nil {
		return "full"
	}
	switch strings.TrimSpace(string(data)) {
	case "terminated", "interrupt":
		return "sanity"
	default:
		return "full"
	}
}

func (s *sidecar) fetchConfig(ctx context.Context) (*embed.Config, error) {
	var data []byte
	err := s.config.Pace.Retry(ctx, configBackoff, func() (err error) {
		data, err = s.get(ctx, "/config")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("fetch etcd configuration: %w", err)
	}
	file, err := os.CreateTemp("", "etcd-*.conf.yaml")
	if err != nil {
		return nil, fmt.Errorf("keep etcd configuration: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return nil, fmt.Errorf("keep etcd configuration: %w", err)
	}
	cfg, err := embed.ConfigFromFile(file.Name())
	if err != nil {
		return nil, fmt.Errorf("read etcd configuration: %w", err)
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.config.Log.Named("etcd"))
	return cfg, nil
}

func (s *sidecar) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
