package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/test/golden"
)

func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("POD_NAMESPACE", "")
	t.Setenv("KUBECONFIG", "nowhere")
	var out, complaint bytes.Buffer
	code = run(t.Context(), args, &out, &complaint)
	return code, out.String(), complaint.String()
}

func TestTheHelpTexts(t *testing.T) {
	for name, args := range map[string][]string{
		"help.txt": {"--help"}, "manager.txt": {"manager", "--help"}, "relax-crd.txt": {"relax-crd", "--help"},
	} {
		code, stdout, stderr := runs(t, args...)
		assert.Equal(t, exitOK, code)
		assert.Empty(t, stderr)
		golden.Equal(t, name, stdout)
	}
	golden.NoStale(t, "*.txt")
}

func TestAMistakeOnTheCommandLineGivesOneLineAndExitCode2(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":    {[]string{"dance"}, `unknown command "dance"`},
		"unknown flag":       {[]string{"--dance"}, "unknown flag: --dance"},
		"flag of relax-crd":  {[]string{"relax-crd", "--soak=1s"}, "unknown flag: --soak"},
		"argument":           {[]string{"manager", "now"}, `unexpected argument "now"`},
		"no duration":        {[]string{"--soak=long"}, `invalid argument "long" for "--soak"`},
		"no port":            {[]string{"--webhook-port=0"}, "--webhook-port=0 is no port"},
		"negative drain":     {[]string{"--drain=-1s"}, "--drain=-1s is negative"},
		"no deadline":        {[]string{"--member-deadline=0s"}, "must be longer than 0"},
		"lease too short":    {[]string{"--leader-elect-lease-duration=1s"}, "each must be longer than the next"},
		"no namespace":       {[]string{"--namespace="}, "--namespace is empty"},
		"unknown log level":  {[]string{"--log-level=loud"}, "want debug, info, warn or error"},
		"unknown log format": {[]string{"--log-format=xml"}, "want json or text"},
		"unknown cert mode":  {[]string{"--cert-mode=magic"}, "want self or files"},
		"no cert dir":        {[]string{"--cert-mode=files"}, "needs --cert-dir"},
		"lives do not fit":   {[]string{"--cert-life=9000h"}, "do not fit"},
		"several at once":    {[]string{"--webhook-port=0", "--drain=-1s"}, "--webhook-port=0 is no port; --drain=-1s is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runs(t, c.args...)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, c.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

func TestWithoutAnAPIServerEachCommandSaysSo(t *testing.T) {
	for _, args := range [][]string{
		{"relax-crd", "--kubeconfig=nowhere"}, {"manager", "--kubeconfig=nowhere"},
	} {
		code, _, stderr := runs(t, args...)
		assert.Equal(t, exitError, code)
		assert.Contains(t, stderr, "find the API server")
	}
}

func TestTheVersionIsPrinted(t *testing.T) {
	code, stdout, _ := runs(t, "version")
	assert.Equal(t, exitOK, code)
	assert.NotEmpty(t, strings.TrimSpace(stdout))
}

func TestTheNamespaceIsThatOfThePod(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "elsewhere")
	o := managerDefaults()
	require.NoError(t, parse(o.flags(), nil, &bytes.Buffer{}))
	assert.Equal(t, "elsewhere", o.namespace)
}

// running is a manager that ends when its context does, or when it is told to fail.
type running struct {
	started, stopped chan struct{}
	fail             chan error
}

func newRunning() *running {
	return &running{started: make(chan struct{}), stopped: make(chan struct{}), fail: make(chan error, 1)}
}

func (r *running) Start(ctx context.Context) error {
	close(r.started)
	defer close(r.stopped)
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.fail:
		return err
	}
}

func TestAReplicaServesOnWhileItDrains(t *testing.T) {
	d, mgr := &drain{wait: 50 * time.Millisecond}, newRunning()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx, mgr) }()
	<-mgr.started
	require.NoError(t, d.check(&http.Request{}))

	began := time.Now()
	stop()
	require.Eventually(t, func() bool { return d.check(&http.Request{}) != nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, <-ended)
	<-mgr.stopped
	assert.GreaterOrEqual(t, time.Since(began), d.wait)
}

func TestAManagerThatFailsEndsTheProgramAtOnce(t *testing.T) {
	broken := errors.New("broken")
	for name, draining := range map[string]bool{"running": false, "draining": true} {
		t.Run(name, func(t *testing.T) {
			d, mgr := &drain{wait: time.Hour}, newRunning()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- d.run(ctx, mgr) }()
			<-mgr.started
			if draining {
				stop()
				require.Eventually(t, func() bool { return d.draining.Load() }, 10*time.Second, time.Millisecond)
			}
			mgr.fail <- broken
			require.ErrorIs(t, <-ended, broken)
		})
	}
}
