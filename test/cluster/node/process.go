package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is the first process of a container, or one that was added to it.
type process struct {
	pid     int
	started time.Time
	spec    *launchSpec
	done    chan struct{} // closed once the process is gone and exit is valid
	exit    exit
}

// exit is how a process ended.
type exit struct {
	code   int32 // as a shell tells it: 128 + signal after a signal
	signal int32
	at     time.Time
}

// stdio are the standard streams of a process; nil is /dev/null.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// launcher starts processes by way of the own binary.
type launcher struct {
	self string
}

// start launches the first process of a container: in the given namespaces of its pod, with a mount table and process
// tree of its own. It returns once the program of the container runs, or with the reason why it does not.
func (l launcher) start(spec *launchSpec, namespaces []*os.File, streams stdio) (*process, error) {
	cmd := l.command(namespaces, streams)
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID
	return launch(cmd, spec, cmd.Start)
}

// startIn launches a further process in the container of the given one, as the same user and with the same environment.
func (l launcher) startIn(target *process, args []string, streams stdio) (*process, error) {
	names := []string{"net", "uts", "ipc", "mnt"}
	namespaces := make([]*os.File, 0, len(names))
	defer func() { closeAll(namespaces) }()
	for _, name := range names {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", target.pid, name))
		if err != nil {
			return nil, fmt.Errorf("open %s namespace of container: %w", name, err)
		}
		namespaces = append(namespaces, file)
	}
	tree, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", target.pid))
	if err != nil {
		return nil, fmt.Errorf("open pid namespace of container: %w", err)
	}
	defer tree.Close()

	spec := &launchSpec{Join: names, Dir: target.spec.Dir, Args: args, Env: target.spec.Env, User: target.spec.User, NoNew: target.spec.NoNew, OneUser: target.spec.OneUser}
	cmd := l.command(namespaces, streams)
	return launch(cmd, spec, func() error {
		return onOwnThread(func() error {
			// This affects the children of this thread only.
			if err := unix.Setns(int(tree.Fd()), unix.CLONE_NEWPID); err != nil {
				return fmt.Errorf("join pid namespace of container: %w", err)
			}
			return cmd.Start()
		})
	})
}

func (l launcher) command(namespaces []*os.File, streams stdio) *exec.Cmd {
	return &exec.Cmd{
		Path:        l.self,
		Args:        []string{launcherName},
		Env:         []string{},
		Dir:         "/",
		Stdin:       streams.in,
		Stdout:      streams.out,
		Stderr:      streams.err,
		ExtraFiles:  append([]*os.File{nil, nil}, namespaces...), // the first two are filled in by launch
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   2 * time.Second, // a grandchild may hold on to the streams
	}
}

// launch hands the spec to a launcher and waits until it has become the program.
func launch(cmd *exec.Cmd, spec *launchSpec, start func() error) (*process, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode launch spec: %w", err)
	}
	ordersOut, ordersIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open pipe: %w", err)
	}
	defer ordersIn.Close()
	complaintsOut, complaintsIn, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{ordersOut})
		return nil, fmt.Errorf("open pipe: %w", err)
	}
	defer complaintsOut.Close()
	cmd.ExtraFiles[0], cmd.ExtraFiles[1] = ordersOut, complaintsIn
	err = start()
	closeAll([]*os.File{ordersOut, complaintsIn})
	if err != nil {
		return nil, fmt.Errorf("start container launcher: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, started: time.Now(), spec: spec, done: make(chan struct{})}
	go p.wait(cmd)

	_, writeErr := ordersIn.Write(raw)
	closeErr := ordersIn.Close()
	complaints, readErr := io.ReadAll(complaintsOut)
	if err := errors.Join(readErr, complaint(complaints), writeErr, closeErr); err != nil {
		p.signal(unix.SIGKILL)
		<-p.done
		return nil, err
	}
	return p, nil
}

func complaint(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(string(text)))
}

// wait reaps the process.
func (p *process) wait(cmd *exec.Cmd) {
	err := cmd.Wait()
	p.exit = exit{at: time.Now(), code: -1}
	if state := cmd.ProcessState; state != nil {
		p.exit.code = int32(state.ExitCode())
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			p.exit.signal = int32(status.Signal())
			p.exit.code = launchFailed + p.exit.signal
		}
	} else if err != nil {
		p.exit.code = launchFailed
	}
	close(p.done)
}

// signal sends a signal to the process and all others of its group.
func (p *process) signal(sig unix.Signal) {
	select {
	case <-p.done: // its number may belong to another process by now
	default:
		// A process that is gone needs no signal, and no other error is possible between us and our child.
		_ = unix.Kill(-p.pid, sig)
	}
}

// run waits for a process to end; when the context ends first, the process is killed.
func (p *process) run(ctx context.Context) (exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		p.signal(unix.SIGKILL)
		<-p.done
		return p.exit, ctx.Err()
	}
}

// onOwnThread runs f on a thread that ends with it, so that f may change what belongs to a thread.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		result <- f()
	}()
	return <-result
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close() // nothing was written to them
	}
}
