package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// runInit is the life of pid 1: it furnishes the namespaces, starts the program proper, reaps whatever
// becomes its child, and ends when the program ends, which ends everything else in the namespace.
func runInit(p passport) int {
	if err := furnish(&p); err != nil {
		fmt.Fprintf(os.Stderr, "local cluster: %v\n", explain(err))
		return 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	p.Stage = stageInside
	cmd, err := startStage(p, nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "local cluster: start the inner program: %v\n", err)
		return 1
	}
	go func() {
		for s := range signals {
			if number, ok := s.(syscall.Signal); ok {
				_ = unix.Kill(cmd.Process.Pid, number) // it may just have ended
			}
		}
	}()
	return reap(cmd.Process.Pid)
}

// reap waits for every child until the one given ends, and returns its exit code.
func reap(main int) int {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			fmt.Fprintf(os.Stderr, "local cluster: wait for children: %v\n", err)
			return 1
		case pid == main && status.Exited():
			return status.ExitStatus()
		case pid == main && status.Signaled():
			return 128 + int(status.Signal())
		}
	}
}

// furnish makes the new namespaces usable: mounts that stay inside, a /proc of the own pid namespace, a
// host name, loopback.
func furnish(p *passport) error {
	// The old /proc still shows the process as the outside sees it.
	pid, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("find the outer process id: %w", err)
	}
	if p.InitPID, err = strconv.Atoi(pid); err != nil {
		return fmt.Errorf("find the outer process id: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc (a container that hides parts of /proc forbids it): %w", err)
	}
	if err := unix.Sethostname([]byte("local-cluster")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	return nil
}
