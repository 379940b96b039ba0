package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
)

// passportEnv carries the passport through the two executions that lead inside.
const passportEnv = "ETCD_VOLUMES_CLUSTER_PASSPORT"

// passport is what the program inside knows from outside.
type passport struct {
	Stage    stage
	Rootless bool              // a user namespace was entered
	InitPID  int               // pid 1 of the cluster, as seen from outside
	Binaries map[string]string // name -> path, see binaries
	Programs string            // directory of what Program asked for
}

type stage string

const (
	stageInit   stage = "init"
	stageInside stage = "inside"
)

// inside is the passport of a program that has entered, else nil.
var inside *passport

// forwarded are the signals that reach the program inside.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP}

// Option asks Enter for more.
type Option func(*entry)

type entry struct {
	programs []string
}

// Program has main packages of this module built before the namespaces are entered, where there is no
// way to the outside any more; see Build for how they are named and ProgramPath for where they are.
func Program(packages ...string) Option {
	return func(e *entry) { e.programs = append(e.programs, packages...) }
}

// ProgramPath is the path of a program that Enter has built.
func ProgramPath(name string) string {
	if inside == nil {
		return ""
	}
	return filepath.Join(inside.Programs, name)
}

// BinaryPath is the path of one of the binaries of the control plane: etcd, etcdctl, etcdutl,
// kube-apiserver, kube-controller-manager, kube-scheduler, kubectl.
func BinaryPath(name string) string {
	if inside == nil {
		return ""
	}
	return inside.Binaries[name]
}

// Enter builds what the cluster needs and executes the program again in namespaces of its own. It
// returns only inside, and must be the first thing that main or TestMain does. Arguments, environment,
// standard streams and the exit code pass through.
//
// Where namespaces cannot be had, it says in one line why and what to do, and exits with code 1.
func Enter(opts ...Option) {
	node.MaybeShim()
	p, err := passportFromEnv()
	switch {
	case err != nil:
		exit(err)
	case p == nil:
		os.Exit(outside(opts))
	case p.Stage == stageInit:
		os.Exit(runInit(*p))
	default:
		inside = p
		captureClientLogs()
	}
}

func exit(err error) {
	fmt.Fprintf(os.Stderr, "local cluster: %v\n", err)
	os.Exit(1)
}

func passportFromEnv() (*passport, error) {
	value, ok := os.LookupEnv(passportEnv)
	if !ok {
		return nil, nil
	}
	// What the program starts itself must not believe that it has entered.
	if err := os.Unsetenv(passportEnv); err != nil {
		return nil, fmt.Errorf("hide the passport: %w", err)
	}
	p := &passport{}
	if err := json.Unmarshal([]byte(value), p); err != nil {
		return nil, fmt.Errorf("read %s: %w", passportEnv, err)
	}
	return p, nil
}

// environ is the environment of the next stage.
func (p passport) environ() ([]string, error) {
	value, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", passportEnv, err)
	}
	return append(os.Environ(), passportEnv+"="+string(value)), nil
}

// outside is the life of the outer process; it returns the exit code.
func outside(opts []Option) int {
	var e entry
	for _, opt := range opts {
		opt(&e)
	}
	p, remove, err := prepare(e)
	if err != nil {
		fmt.Fprintf(os.Stderr, "local cluster: %v\n", err)
		return 1
	}
	defer remove()
	code, err := runInside(p)
	if err != nil {
		fmt.Fprintf(os.Stderr, "local cluster: %v\n", err)
	}
	return code
}

// prepare builds, interruptibly, all that must be there before entering.
func prepare(e entry) (passport, func(), error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	built, err := BuildBinaries(ctx, os.Stderr)
	if err != nil {
		return passport{}, nil, err
	}
	p := passport{Stage: stageInit, Binaries: built}
	if len(e.programs) == 0 {
		return p, func() {}, nil
	}
	programs, remove, err := Build(ctx, os.Stderr, e.programs...)
	if err != nil {
		return passport{}, nil, err
	}
	p.Programs = programs
	return p, remove, nil
}

// runInside starts the init process in new namespaces and lives until it ends.
func runInside(p passport) (int, error) {
	// The kernel takes the end of the thread that started a process for the death of the parent.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	cmd, err := startInit(p)
	if err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	return exitCode(cmd.Wait())
}

// startInit enters a user namespace if that is needed: when not root, and when root may not do it, as
// in an unprivileged container.
func startInit(p passport) (*exec.Cmd, error) {
	if os.Geteuid() == 0 {
		cmd, err := startStage(p, newNamespaces())
		if !errors.Is(err, unix.EPERM) {
			return cmd, explain(err)
		}
	}
	p.Rootless = true
	cmd, err := startStage(p, withUserNamespace(newNamespaces()))
	return cmd, explain(err)
}

func newNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
}

// withUserNamespace makes the caller, and nobody else, root inside.
func withUserNamespace(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	return attr
}

// startStage executes this program again with the same arguments and streams.
func startStage(p passport, attr *syscall.SysProcAttr) (*exec.Cmd, error) {
	env, err := p.environ()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        os.Args,
		Env:         env,
		Stdin:       os.Stdin,
		Stdout:      os.Stdout,
		Stderr:      os.Stderr,
		SysProcAttr: attr,
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// explain adds what to do to the error of a clone(2) that was not allowed.
func explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("no namespaces of its own to be had here (%w): run it as root, or allow user namespaces"+
		" (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1,"+
		" kernel.apparmor_restrict_unprivileged_userns=0; in a container: --privileged)", err)
}

// exitCode turns the end of a process into an exit code as a shell does.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if err == nil {
		return 0, nil
	}
	if !errors.As(err, &exit) {
		return 1, fmt.Errorf("wait for the inner process: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
