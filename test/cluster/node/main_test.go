package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// insideEnv marks a run of the tests in a user namespace.
const insideEnv = "ETCD_VOLUMES_NODE_TEST_INSIDE"

// TestMain runs the tests as root if we are root, else as uid 0 of a user namespace.
func TestMain(m *testing.M) {
	MaybeShim()
	if os.Getuid() == 0 {
		os.Exit(m.Run())
	}
	cmd := inUserNamespace(os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		os.Exit(ended.ExitCode())
	case err != nil:
		fmt.Fprintf(os.Stderr, "these tests start containers and need user namespaces (is user.max_user_namespaces 0?): %v\n", err)
		os.Exit(1)
	}
}

// inUserNamespace is this test binary, to be run with one mapped user.
func inUserNamespace(args ...string) *exec.Cmd {
	cmd := exec.Command(self(), args...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return cmd
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func TestContainersStartWithoutPrivilegesOnTheMachine(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		t.Skip("this is the run that the other one asked for")
	}
	out, err := inUserNamespace("-test.run=^TestContainer", "-test.v").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestContainerSeesItsOwnWorld")
}
