package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// launcherName is the program name (argument 0) by which the own binary knows that it is to become a container.
const launcherName = "etcd-volumes-container-launcher"

// File descriptors of a launcher: its orders, its complaints, and then the namespaces to join, in order.
const (
	fdSpec = 3 + iota
	fdError
	fdNamespaces
)

// launchSpec is all that a launcher needs to know.
type launchSpec struct {
	Join     []string // namespaces to join: net, uts, ipc, mnt; their descriptors are passed in the same order
	Root     string   // empty directory that becomes the root; "" to stay in the root of the joined mnt namespace
	Mounts   []mount  // in order
	ReadOnly bool     // root itself is read-only
	Dir      string   // working directory, created if missing
	Args     []string // Args[0] is a path, or a name to look up in PATH of Env
	Env      []string
	User     identity
	Nice     int  // 0..19
	NoNew    bool // no new privileges
	OneUser  bool // the user namespace knows one user only: a chown is without effect
}

// identity is the user a container runs as.
type identity struct {
	UID, GID int64
	Groups   []int64
}

// MaybeShim turns this process into a container if it was started to be one, and then never returns. It is to be called
// first thing in main of the binary that Config.Self names. In any other process it does nothing.
func MaybeShim() {
	if len(os.Args) == 0 || os.Args[0] != launcherName {
		return
	}
	// Namespaces, the root and the user belong to a thread until it executes the program.
	runtime.LockOSThread()
	unix.CloseOnExec(fdError)
	complaints := os.NewFile(fdError, "error")
	fmt.Fprint(complaints, becomeContainer())
	os.Exit(launchFailed)
}

// launchFailed is the exit code of a launcher that could not start its program; runtimes use the same.
const launchFailed = 128

// becomeContainer returns only if the program could not be started.
func becomeContainer() error {
	spec, err := readSpec()
	if err != nil {
		return err
	}
	if err := joinNamespaces(spec.Join); err != nil {
		return err
	}
	if spec.Root != "" {
		if err := buildRoot(spec); err != nil {
			return err
		}
	}
	if err := enterDir(spec); err != nil {
		return err
	}
	path, err := lookUp(spec.Args[0], spec.Env)
	if err != nil {
		return err
	}
	if err := beNice(spec.Nice); err != nil {
		return err
	}
	if err := dropPrivileges(spec); err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", path, unix.Exec(path, spec.Args, spec.Env))
}

func readSpec() (*launchSpec, error) {
	orders := os.NewFile(fdSpec, "spec")
	defer orders.Close()
	raw, err := io.ReadAll(orders)
	if err != nil {
		return nil, fmt.Errorf("read launch spec: %w", err)
	}
	spec := &launchSpec{}
	if err := json.Unmarshal(raw, spec); err != nil {
		return nil, fmt.Errorf("parse launch spec: %w", err)
	}
	if len(spec.Args) == 0 {
		return nil, errors.New("launch spec names no program, this is a bug")
	}
	return spec, nil
}

// joinNamespaces enters the namespaces behind the passed descriptors and closes these.
func joinNamespaces(names []string) error {
	for i, name := range names {
		fd := fdNamespaces + i
		if name == "mnt" {
			// A thread can change its mount namespace only while it shares root and working directory with no other.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare fs: %w", err)
			}
		}
		if err := unix.Setns(fd, 0); err != nil {
			return fmt.Errorf("join %s namespace: %w", name, err)
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close %s namespace: %w", name, err)
		}
	}
	return nil
}

// enterDir changes to the working directory, which a runtime creates if the image has none.
func enterDir(spec *launchSpec) error {
	if spec.Root != "" {
		if err := os.MkdirAll(spec.Dir, 0o755); err != nil && !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("create working directory: %w", err)
		}
	}
	if err := unix.Chdir(spec.Dir); err != nil {
		return fmt.Errorf("chdir %s: %w", spec.Dir, err)
	}
	if !spec.ReadOnly || spec.Root == "" {
		return nil
	}
	return setReadOnly("/", 0)
}

// lookUp finds a program the way a shell does, but in the environment of the container.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for _, variable := range env {
		dirs, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			if path := filepath.Join(dir, name); executable(path) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: %w", name, exec.ErrNotFound)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("exec: %q: %w", path, os.ErrPermission)
	}
	return nil
}

// dropPrivileges makes this thread the user of the container. Raw calls are used on purpose: those of the runtime would
// change all threads, and only this one survives the exec.
func dropPrivileges(spec *launchSpec) error {
	if spec.OneUser {
		if err := pretendChown(); err != nil {
			return err
		}
	}
	if spec.NoNew {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no new privileges: %w", err)
		}
	}
	groups := make([]uint32, 0, len(spec.User.Groups))
	for _, group := range spec.User.Groups {
		groups = append(groups, uint32(group))
	}
	if err := setGroups(groups); err != nil {
		return err
	}
	gid, uid := uintptr(spec.User.GID), uintptr(spec.User.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("become group %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}
