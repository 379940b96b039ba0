package cluster_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the program that enters does once inside, by its second argument.
const (
	echo = "echo" // says what it got
	hang = "hang" // waits for a signal, with a child of its own
)

// enteredCode is an exit code that nothing else uses.
const enteredCode = 37

func entered() int {
	if os.Args[2] == echo {
		stdin, err := io.ReadAll(os.Stdin)
		fmt.Printf("pid %d uid %d args %q env %s stdin %s err %v\n", os.Getppid(), os.Getuid(), os.Args[2:], os.Getenv("ENTER_TEST"), stdin, err)
		fmt.Fprint(os.Stderr, "to stderr")
		return enteredCode
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	child := exec.Command("sleep", "1000")
	child.Stdout = os.Stdout // keeps the pipe open for as long as it lives
	if err := child.Start(); err != nil {
		return 1
	}
	fmt.Println("ready")
	fmt.Println(<-signals)
	return enteredCode
}

// enter starts this binary outside; the tests are inside already, and namespaces nest.
func enter(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, append([]string{argEntered}, args...)...)
	cmd.Env = append(os.Environ(), "ENTER_TEST=passed")
	return cmd
}

func TestEnterPassesStreamsArgumentsEnvironmentAndExitCode(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	cmd := enter(t, echo, "-test.run=X", "two words")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, enteredCode, exit.ExitCode())
	assert.Equal(t, "pid 1 uid 0 args [\"echo\" \"-test.run=X\" \"two words\"] env passed stdin input err <nil>\n", stdout.String())
	assert.Equal(t, "to stderr", stderr.String())
}

func TestASignalReachesTheProgramInside(t *testing.T) {
	t.Parallel()
	cmd, stdout := hanging(t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(stdout)
	require.NoError(t, err)
	assert.Equal(t, "terminated\n", string(rest))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, enteredCode, exit.ExitCode())
}

func TestEverythingInsideDiesWithTheOuterProcess(t *testing.T) {
	t.Parallel()
	cmd, stdout := hanging(t)
	require.NoError(t, cmd.Process.Kill())
	rest, err := io.ReadAll(stdout) // ends only when the last process that could write has ended
	require.NoError(t, err)
	assert.Empty(t, string(rest))
	require.Error(t, cmd.Wait())
}

// hanging is a program that has entered, and what it still has to say.
func hanging(t *testing.T) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := enter(t, hang)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	stdout := bufio.NewReader(pipe)
	line, err := stdout.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return cmd, stdout
}
