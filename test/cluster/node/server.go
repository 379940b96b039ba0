package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/client-go/util/exec"
)

// server is the kubelet's own endpoint, to which the API server turns for kubectl logs and kubectl exec.
type server struct {
	http *http.Server
	port int32
}

// listen opens the endpoint on a free port of the node's address.
func (n *Node) listen() (*server, error) {
	config := n.config.ServerTLS
	if config == nil {
		certificate, err := ownCertificate(n.config.Name, n.address)
		if err != nil {
			return nil, err
		}
		config = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	}
	listener, err := (&net.ListenConfig{}).Listen(n.ctx, "tcp", net.JoinHostPort(n.address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for logs and exec: %w", err)
	}
	s := &server{
		port: int32(listener.Addr().(*net.TCPAddr).Port),
		http: &http.Server{
			ReadHeaderTimeout: 10 * time.Second,
			TLSConfig:         config,
			Handler: api.PodHandler(api.PodHandlerConfig{
				RunInContainer:        n.runInContainer,
				GetContainerLogs:      n.containerLogs,
				GetPods:               n.provider.GetPods,
				GetPodsFromKubernetes: n.provider.GetPods,
				StreamIdleTimeout:     4 * time.Hour,
			}, false),
			BaseContext: func(net.Listener) context.Context { return n.ctx },
			// The upgrade to SPDY, which exec uses, does not exist in HTTP/2.
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		},
	}
	go func() {
		if err := s.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			n.config.Log.Error(err, "Endpoint for logs and exec has ended", "node", n.config.Name)
		}
	}()
	return s, nil
}

func (s *server) close() {
	_ = s.http.Close() // it is not used any more either way
}

// ownCertificate makes a certificate that nobody verifies: an API server does not, unless it is told to.
func ownCertificate(name, address string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.ParseIP(address)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}

// runInContainer runs a command in a container. There is no terminal: what asks for one gets plain streams.
func (n *Node) runInContainer(ctx context.Context, namespace, pod, container string, command []string, streams api.AttachIO) error {
	p, err := n.containerProcess(namespace, pod, container)
	if err != nil {
		return err
	}
	attached := stdio{}
	if in := streams.Stdin(); in != nil {
		input, feed, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("open pipe: %w", err)
		}
		defer input.Close()
		// Not left to os/exec, which would wait for the end of the input after the command has ended.
		go func() {
			_, _ = io.Copy(feed, in) // the command may end first
			_ = feed.Close()
		}()
		attached.in = input
	}
	if out := streams.Stdout(); out != nil {
		attached.out, attached.err = out, out
	}
	if out := streams.Stderr(); out != nil {
		attached.err = out
	}
	added, err := n.launcher.startIn(p, command, attached)
	if err != nil {
		return err
	}
	ended, err := added.run(ctx)
	if err != nil {
		return err
	}
	if ended.code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", ended.code), Code: int(ended.code)}
	}
	return nil
}

// containerProcess is the first process of a running container.
func (n *Node) containerProcess(namespace, pod, container string) (*process, error) {
	w := n.provider.named(namespace, pod)
	if w == nil {
		return nil, fmt.Errorf("pod %s/%s is not on node %s", namespace, pod, n.config.Name)
	}
	var p *process
	w.ask(func() {
		if c := w.containerNamed(container); c != nil {
			p = c.process
		}
	})
	if p == nil {
		return nil, fmt.Errorf("container %s of pod %s/%s is not running", container, namespace, pod)
	}
	return p, nil
}

// containerLogs opens the log of a container.
func (n *Node) containerLogs(ctx context.Context, namespace, pod, container string, options api.ContainerLogOpts) (io.ReadCloser, error) {
	run, err := n.logRun(namespace, pod, container, options.Previous)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(n.logFile(namespace, pod, container, run))
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if options.Tail > 0 {
		if err := seekTail(file, options.Tail); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	var reader io.Reader = file
	if options.Follow {
		reader = &follower{ctx: ctx, file: file, over: func() bool { return n.runIsOver(namespace, pod, container, run) }}
	}
	if options.LimitBytes > 0 {
		reader = io.LimitReader(reader, int64(options.LimitBytes))
	}
	return struct {
		io.Reader
		io.Closer
	}{reader, file}, nil
}

// logRun is the run of a container whose log is asked for.
func (n *Node) logRun(namespace, pod, container string, previous bool) (int32, error) {
	status, err := n.statusOf(namespace, pod, container)
	if err != nil {
		return 0, err
	}
	if !previous {
		return status.RestartCount, nil
	}
	if status.RestartCount == 0 {
		return 0, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod)
	}
	return status.RestartCount - 1, nil
}

func (n *Node) statusOf(namespace, pod, container string) (*corev1.ContainerStatus, error) {
	w := n.provider.named(namespace, pod)
	if w == nil {
		return nil, fmt.Errorf("pod %s/%s is not on node %s", namespace, pod, n.config.Name)
	}
	status := w.snapshot.Load().Status
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == container {
				return &statuses[i], nil
			}
		}
	}
	return nil, fmt.Errorf("container %s of pod %s/%s not found", container, namespace, pod)
}

// runIsOver tells whether nothing can be added to the log of a run.
func (n *Node) runIsOver(namespace, pod, container string, run int32) bool {
	status, err := n.statusOf(namespace, pod, container)
	return err != nil || status.RestartCount != run || status.State.Running == nil
}

// follower reads a file that grows until nothing can be added.
type follower struct {
	ctx  context.Context //nolint:containedctx // io.Reader takes none
	file *os.File
	over func() bool
}

// Read waits for more where the file ends.
func (f *follower) Read(p []byte) (int, error) {
	for {
		over := f.over() // before the last look, so that nothing is missed
		count, err := f.file.Read(p)
		if count > 0 || !errors.Is(err, io.EOF) {
			return count, err
		}
		if over || !sleep(f.ctx, 100*time.Millisecond) {
			return 0, io.EOF
		}
	}
}

// seekTail moves to the last lines of a file.
func seekTail(file *os.File, lines int) error {
	var starts []int64
	offset := int64(0)
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 || strings.HasSuffix(string(line), "\n") {
			starts = append(starts, offset)
		}
		offset += int64(len(line))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
	var start int64
	if len(starts) > lines {
		start = starts[len(starts)-lines]
	} else if len(starts) == 0 {
		start = offset
	}
	if _, err := file.Seek(start, io.SeekStart); err != nil {
		return fmt.Errorf("seek in log: %w", err)
	}
	return nil
}
