package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxOutput is how much of the output of a probe or hook is kept.
const maxOutput = 10 << 10

// target is one run of a container, as probes and hooks see it.
type target struct {
	spec    *corev1.Container
	ip      string
	process *process
	launch  launcher
}

// probeResult is one outcome of a probe that counts: the threshold was reached.
type probeResult struct {
	ok      bool
	message string
}

// observe runs a probe until the context ends. It reports each failure, and each change of the verdict once a threshold
// is reached. The first verdict counts as a change.
func (t target) observe(ctx context.Context, probe *corev1.Probe, failed func(message string), changed func(probeResult)) {
	if !sleep(ctx, time.Until(t.process.started.Add(seconds(probe.InitialDelaySeconds, 0)))) {
		return
	}
	ticker := time.NewTicker(seconds(probe.PeriodSeconds, 10))
	defer ticker.Stop()
	var counter probeCounter
	for {
		err := t.probe(ctx, probe)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failed(err.Error())
		}
		if counter.count(probe, err == nil) {
			changed(probeResult{ok: err == nil, message: errorText(err)})
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// probeCounter counts equal outcomes in a row.
type probeCounter struct {
	last    bool
	inARow  int32
	verdict *bool
}

// count adds an outcome and tells whether the verdict has changed by it.
func (c *probeCounter) count(probe *corev1.Probe, ok bool) bool {
	if ok != c.last {
		c.last, c.inARow = ok, 0
	}
	c.inARow++
	threshold := orDefault(probe.FailureThreshold, 3)
	if ok {
		threshold = orDefault(probe.SuccessThreshold, 1)
	}
	if c.inARow < threshold || c.verdict != nil && *c.verdict == ok {
		return false
	}
	c.verdict = &ok
	return true
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func orDefault(value, fallback int32) int32 {
	if value == 0 {
		return fallback
	}
	return value
}

func seconds(value, fallback int32) time.Duration {
	return time.Duration(orDefault(value, fallback)) * time.Second
}

// sleep waits; false means that the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// probe runs a probe once.
func (t target) probe(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(probe.TimeoutSeconds, 1))
	defer cancel()
	switch {
	case probe.Exec != nil:
		return t.exec(ctx, probe.Exec.Command)
	case probe.HTTPGet != nil:
		return t.get(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		return t.connect(ctx, probe.TCPSocket)
	case probe.GRPC != nil:
		return t.health(ctx, probe.GRPC)
	default:
		return errors.New("probe has no handler")
	}
}

// exec runs a command in the container; an exit code other than 0 is an error.
func (t target) exec(ctx context.Context, command []string) error {
	output := &limited{}
	p, err := t.launch.startIn(t.process, command, stdio{out: output, err: output})
	if err != nil {
		return err
	}
	ended, err := p.run(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("command %q timed out: %w", strings.Join(command, " "), err)
	case ended.code != 0:
		return fmt.Errorf("%scommand %q exited with %d", output.lead(), strings.Join(command, " "), ended.code)
	default:
		return nil
	}
}

// limited keeps the beginning of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxOutput - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// lead is the output, to be put before a message.
func (l *limited) lead() string {
	text := strings.TrimSpace(l.String())
	if text == "" {
		return ""
	}
	return text + ": "
}

// get asks a URL of the pod; any status from 200 to 399 is fine.
func (t target) get(ctx context.Context, action *corev1.HTTPGetAction) error {
	request, err := t.request(ctx, action)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a kubelet does not verify the pods it probes
	}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.CopyN(io.Discard, response.Body, maxOutput); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read response: %w", err)
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

// request is what a kubelet would send.
func (t target) request(ctx context.Context, action *corev1.HTTPGetAction) (*http.Request, error) {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return nil, err
	}
	where, err := url.Parse(action.Path)
	if err != nil {
		return nil, fmt.Errorf("parse path %q: %w", action.Path, err)
	}
	where.Host, where.Scheme = address, strings.ToLower(string(cmp.Or(action.Scheme, corev1.URISchemeHTTP)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("prepare request: %w", err)
	}
	request.Header.Set("User-Agent", "kube-probe/1.37")
	for _, header := range action.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			request.Host = header.Value
			continue
		}
		request.Header.Add(header.Name, header.Value)
	}
	return request, nil
}

func (t target) connect(ctx context.Context, action *corev1.TCPSocketAction) error {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return err
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// health asks the gRPC health service.
func (t target) health(ctx context.Context, action *corev1.GRPCAction) error {
	address := net.JoinHostPort(t.ip, strconv.Itoa(int(action.Port)))
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("prepare connection: %w", err)
	}
	defer connection.Close()
	request := &healthpb.HealthCheckRequest{}
	if action.Service != nil {
		request.Service = *action.Service
	}
	response, err := healthpb.NewHealthClient(connection).Check(ctx, request)
	if err != nil {
		return err
	}
	if response.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", response.GetStatus())
	}
	return nil
}

// address is the host, by default the pod, and the port, which may be the name of one of the container's ports.
func (t target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.ip
	}
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, p := range t.spec.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 || number > 65535 {
		return "", fmt.Errorf("invalid port %s", port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// hook runs a lifecycle hook.
func (t target) hook(ctx context.Context, handler *corev1.LifecycleHandler) error {
	switch {
	case handler.Exec != nil:
		return t.exec(ctx, handler.Exec.Command)
	case handler.HTTPGet != nil:
		return t.get(ctx, handler.HTTPGet)
	case handler.Sleep != nil:
		sleep(ctx, time.Duration(handler.Sleep.Seconds)*time.Second)
		return nil
	default:
		return errors.New("hook has no handler")
	}
}
