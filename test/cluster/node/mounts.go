package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// oldRoot is where the root of the machine stands while the root of a container is being built.
const oldRoot = "/.old"

// mountKind says what a mount puts at its target.
type mountKind string

const (
	mountBind    mountKind = "bind"    // Source, a directory or file of the machine
	mountTmpfs   mountKind = "tmpfs"   // an empty directory
	mountProc    mountKind = "proc"    // the process tree of the container
	mountSymlink mountKind = "symlink" // a symbolic link to Source, taken as it is
)

// mount is one entry of the file system of a container.
type mount struct {
	Kind     mountKind
	Source   string
	Target   string
	ReadOnly bool
	Mode     uint32 // of a tmpfs
}

// systemMounts is what every container gets to see of the machine.
func systemMounts() []mount {
	var mounts []mount
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64"} {
		mounts = append(mounts, sameAsHost(dir)...)
	}
	mounts = append(mounts, mount{Kind: mountTmpfs, Target: "/dev", Mode: 0o755})
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		path := "/dev/" + device
		if _, err := os.Stat(path); err == nil {
			mounts = append(mounts, mount{Kind: mountBind, Source: path, Target: path})
		}
	}
	mounts = append(mounts,
		mount{Kind: mountTmpfs, Target: "/dev/shm", Mode: 0o1777},
		mount{Kind: mountSymlink, Source: "/proc/self/fd", Target: "/dev/fd"},
		mount{Kind: mountSymlink, Source: "/proc/self/fd/0", Target: "/dev/stdin"},
		mount{Kind: mountSymlink, Source: "/proc/self/fd/1", Target: "/dev/stdout"},
		mount{Kind: mountSymlink, Source: "/proc/self/fd/2", Target: "/dev/stderr"},
		mount{Kind: mountProc, Target: "/proc"},
		mount{Kind: mountTmpfs, Target: "/tmp", Mode: 0o1777},
	)
	for _, path := range []string{"/sys", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives", "/etc/ld.so.cache"} {
		if _, err := os.Stat(path); err == nil {
			mounts = append(mounts, mount{Kind: mountBind, Source: path, Target: path, ReadOnly: true})
		}
	}
	return mounts
}

// sameAsHost shows a directory of the machine, or the same symbolic link where it is one (/bin -> usr/bin).
func sameAsHost(dir string) []mount {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil
	}
	if info.Mode()&os.ModeSymlink == 0 {
		return []mount{{Kind: mountBind, Source: dir, Target: dir, ReadOnly: true}}
	}
	target, err := os.Readlink(dir)
	if err != nil {
		return nil
	}
	return []mount{{Kind: mountSymlink, Source: target, Target: dir}}
}

// buildRoot makes spec.Root the root of this mount namespace, filled with the mounts of the spec.
func buildRoot(spec *launchSpec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mounts, err := resolveSources(spec.Mounts)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", spec.Root, "tmpfs", unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	if err := os.Mkdir(spec.Root+oldRoot, 0o700); err != nil {
		return fmt.Errorf("prepare root: %w", err)
	}
	if err := unix.PivotRoot(spec.Root, spec.Root+oldRoot); err != nil {
		return fmt.Errorf("pivot root to %s: %w", spec.Root, err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("chdir to new root: %w", err)
	}
	for _, m := range mounts {
		if err := m.apply(); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Kind, m.Target, err)
		}
	}
	return leaveOldRoot()
}

// leaveOldRoot hides the machine's root for good.
func leaveOldRoot() error {
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave old root: %w", err)
	}
	if err := os.Remove(oldRoot); err != nil {
		return fmt.Errorf("remove old root: %w", err)
	}
	return nil
}

// resolveSources follows symbolic links while the machine's root is still the root; later they would lead astray.
func resolveSources(mounts []mount) ([]mount, error) {
	resolved := make([]mount, 0, len(mounts))
	for _, m := range mounts {
		if m.Kind == mountBind {
			source, err := filepath.EvalSymlinks(m.Source)
			if err != nil {
				return nil, fmt.Errorf("source of %s: %w", m.Target, err)
			}
			m.Source = filepath.Join(oldRoot, source)
		}
		resolved = append(resolved, m)
	}
	return resolved, nil
}

func (m mount) apply() error {
	switch m.Kind {
	case mountBind:
		return m.bind()
	case mountTmpfs:
		if err := os.MkdirAll(m.Target, 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", m.Target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=%04o", m.Mode))
	case mountProc:
		return m.proc()
	case mountSymlink:
		return os.Symlink(m.Source, m.Target)
	default:
		return fmt.Errorf("unknown kind %q, this is a bug", m.Kind)
	}
}

func (m mount) bind() error {
	if err := m.makeTarget(); err != nil {
		return err
	}
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !m.ReadOnly {
		return nil
	}
	return setReadOnly(m.Target, unix.AT_RECURSIVE)
}

// makeTarget creates what is to be mounted over: a directory for a directory, else an empty file.
func (m mount) makeTarget() error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(m.Target, 0o755)
	}
	if _, err := os.Stat(m.Target); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(m.Target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(m.Target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// proc shows the process tree of this namespace. The kernel refuses that in a user namespace where parts of the
// machine's own /proc are covered, as in some containers; then that one is shown, which still knows /proc/self.
func (m mount) proc() error {
	if err := os.MkdirAll(m.Target, 0o755); err != nil {
		return err
	}
	err := unix.Mount("proc", m.Target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if errors.Is(err, unix.EPERM) {
		return unix.Mount(oldRoot+"/proc", m.Target, "", unix.MS_BIND|unix.MS_REC, "")
	}
	return err
}

// setReadOnly makes a mount read-only; with unix.AT_RECURSIVE also the mounts below. Kernels before 5.12 know only
// the remount of one mount, which has to repeat the flags that a user namespace may not drop.
func setReadOnly(path string, flags uint) error {
	err := unix.MountSetattr(-1, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err == nil || !errors.Is(err, unix.ENOSYS) {
		return err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return err
	}
	kept := uintptr(stat.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|kept, "")
}
