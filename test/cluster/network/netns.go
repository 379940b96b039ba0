package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// createNetNS makes a network namespace that lives as long as the mount at path.
func createNetNS(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("create network namespace: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("create network namespace: %w", err)
	}
	result := make(chan error, 1)
	go func() { result <- pinNewNetNS(path) }()
	if err := <-result; err != nil {
		return fmt.Errorf("create network namespace %s: %w", path, err)
	}
	return nil
}

// pinNewNetNS moves its thread into a new network namespace, pins that and
// moves the thread back. The thread must come back rather than end: the kernel
// kills children with a parent-death signal when the thread that started them
// ends. Only a thread that cannot come back stays locked, and so ends with the
// goroutine instead of running other code in the wrong namespace.
func pinNewNetNS(path string) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("unshare: %w", err)
	}
	pinErr := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	if pinErr != nil {
		pinErr = fmt.Errorf("bind mount: %w", pinErr)
	}
	if err := netns.Set(home); err != nil {
		return errors.Join(pinErr, fmt.Errorf("return to own namespace: %w", err))
	}
	runtime.UnlockOSThread()
	return pinErr
}

// removeNetNS gives up the mount; the namespace ends with its last process. A
// namespace that is gone already is no error.
func removeNetNS(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount network namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	return nil
}
