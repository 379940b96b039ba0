package pace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
)

func TestAFactorDividesPausesButKeepsTimeoutsUsable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		factor                 string
		in                     time.Duration
		pause, timeout, glance time.Duration
	}{
		"none":        {"", 4 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second},
		"long":        {"10", 90 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second},
		"floors":      {"10", 6 * time.Second, 600 * time.Millisecond, 5 * time.Second, time.Second},
		"below floor": {"10", 100 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := pace.Parse(tc.factor)
			require.NoError(t, err)
			assert.Equal(t, tc.pause, p.Pause(tc.in))
			assert.Equal(t, tc.timeout, p.Timeout(tc.in))
			assert.Equal(t, tc.glance, p.Glance(tc.in))
		})
	}
}

func TestAFactorBelowOneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "0.5", "-1", "fast"} {
		_, err := pace.Parse(text)
		assert.Error(t, err, text)
	}
}

func TestRetryStopsAfterItsAttemptsWithTheLastError(t *testing.T) {
	t.Parallel()
	calls := 0
	last := errors.New("third")
	err := pace.Pace{}.Retry(t.Context(), pace.Backoff{First: time.Microsecond, Factor: 2, Attempts: 3}, func() error {
		calls++
		if calls == 3 {
			return last
		}
		return errors.New("earlier")
	})
	assert.Equal(t, 3, calls)
	assert.ErrorIs(t, err, last)
}

func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := pace.Pace{}.Retry(ctx, pace.Backoff{First: time.Hour, Factor: 2, Attempts: 3}, func() error {
		calls++
		cancel()
		return errors.New("no")
	})
	require.Error(t, err)
	assert.Equal(t, 1, calls)
}
