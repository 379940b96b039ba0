package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

// theStage is shared: bringing it up costs more than most tests.
var theStage *stage.Stage

// operatorArgs make waiting short where waiting is not what is tested.
var operatorArgs = []string{
	"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	"--soak=1s", "--member-deadline=40s",
}

func TestMain(m *testing.M) {
	stage.Enter()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := stage.Open(ctx, stage.Options{ReadinessDelay: time.Second, RestartBackOff: 100 * time.Millisecond, Log: os.Stderr, Operator: operatorArgs})
	if err != nil {
		fmt.Fprintln(os.Stderr, "open the stage:", err)
		return 1
	}
	defer s.Close()
	theStage = s
	code := m.Run()
	if code != 0 {
		s.DumpOnFailure(os.Stderr)
	}
	return code
}
