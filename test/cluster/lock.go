package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// lockPoll is how often a held lock is tried again: flock knows no context.
const lockPoll = 200 * time.Millisecond

// lock takes the lock file at path and says so on w if it has to wait. The kernel drops the lock when
// its holder dies, so that an interrupted build never blocks the next one.
func lock(ctx context.Context, w io.Writer, path string) (unlock func(), err error) {
	waiting := false
	err = wait.PollUntilContextCancel(ctx, lockPoll, true, func(context.Context) (bool, error) {
		unlock, err = tryLock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err == nil, err
		}
		if !waiting {
			say(w, "waiting for another build to finish (%s)\n", path)
			waiting = true
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for a lock: %w", err)
	}
	return unlock, nil
}

// tryLock fails with EWOULDBLOCK if another holds the lock.
func tryLock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
