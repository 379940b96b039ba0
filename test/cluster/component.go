package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// readyPoll is how often a component that starts is asked whether it is ready.
const readyPoll = 50 * time.Millisecond

// component is a process of the control plane that can be stopped, killed and started again.
type component struct {
	name string
	args []string
	dir  string // working directory and HOME
	log  string // file, appended to by each start
	// ready answers once the component serves.
	ready  string
	client *http.Client

	mu      sync.Mutex
	process *process // nil: never started
}

// process is one run of a component.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done
}

// nicely starts a component nicer than the nodes' pods: a control plane has machines of its own, and must not look like a
// slow etcd here. The nice value of the session counts where the kernel weighs sessions against each other.
const nicely = `echo 5 2>/dev/null >/proc/self/autogroup; exec nice -n 5 "$@"`

// start starts the component unless it runs.
func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil && !c.process.ended() {
		return nil
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	defer log.Close()
	cmd := exec.Command("sh", append([]string{"-c", nicely, "sh", BinaryPath(c.name)}, c.args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = c.dir
	cmd.Env = []string{"HOME=" + c.dir, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	c.process = p
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitReady returns when the component serves, and at once when it has ended instead.
func (c *component) waitReady(ctx context.Context) error {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	var last error
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		if p.ended() {
			return false, fmt.Errorf("%s ended: %w", c.name, errors.Join(p.err, errors.New(tail(c.log, 10))))
		}
		last = c.probe(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s (%s): %w", c.name, filepath.Base(c.log), errors.Join(err, last))
	}
	return nil
}

func (c *component) probe(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ready, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.name, err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", c.ready, resp.Status)
	}
	return nil
}

// end sends a signal and returns when the process is gone; SIGKILL follows when ctx is done.
func (c *component) end(ctx context.Context, signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil || c.process.ended() {
		return nil
	}
	if err := c.process.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	select {
	case <-c.process.done:
		return nil
	case <-ctx.Done():
	}
	if err := c.process.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.name, err)
	}
	<-c.process.done
	return fmt.Errorf("end %s: %w", c.name, ctx.Err())
}
