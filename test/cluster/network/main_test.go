package network

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// modeEnv tells a test process that it runs in namespaces of its own.
const modeEnv = "NETWORK_TEST_MODE"

// modes of entering the namespaces: all tests run in each that is possible.
const (
	asRoot   = "root"
	rootless = "rootless"
)

func TestMain(m *testing.M) {
	if os.Getenv(modeEnv) == "" {
		os.Exit(runModes())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make mounts private:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// runModes runs this test binary again, once for each mode.
func runModes() int {
	modes := []string{rootless}
	if os.Geteuid() == 0 {
		modes = []string{asRoot, rootless}
	}
	// The kernel kills the child when the thread ends that started it.
	runtime.LockOSThread()
	for _, mode := range modes {
		if err := runMode(mode); err != nil {
			fmt.Fprintf(os.Stderr, "network tests as %s: %v\n", mode, err)
			return 1
		}
	}
	return 0
}

func runMode(mode string) error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), modeEnv+"="+mode)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if mode == rootless {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd.Run()
}
