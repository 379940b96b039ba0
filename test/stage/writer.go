package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// pace is the time between two writes through one member. Writes begin by the clock, whether or not earlier ones were
// answered, as those of many clients do: one that hangs does not hide that others succeed.
const pace = 8 * time.Millisecond

// inFlight bounds the writes through one member that are not answered yet.
const inFlight = 256

// putTimeout bounds one write. A write that is not acknowledged by then may or may not have happened.
const putTimeout = 2 * time.Second

// Ack is one acknowledged write.
type Ack struct {
	Key, Value string
	Revision   int64
	At         time.Time
}

// Writer puts numbered keys through every member of an Etcd at once, until it is stopped, and remembers each write that
// was acknowledged.
type Writer struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	acks     []Ack
	failures int
}

// StartWriter begins to write through all endpoints (URLs, one a member).
func StartWriter(ctx context.Context, endpoints []string, dialer Dialer) (*Writer, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &Writer{cancel: cancel}
	for i, endpoint := range endpoints {
		c, err := NewClient(endpoint, dialer)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("client of %s: %w", endpoint, err)
		}
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			defer c.Close()
			w.write(ctx, c, i)
		}()
	}
	return w, nil
}

func (w *Writer) write(ctx context.Context, c *clientv3.Client, member int) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	free := make(chan struct{}, inFlight)
	var puts sync.WaitGroup
	defer puts.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case free <- struct{}{}:
		default:
			continue
		}
		puts.Go(func() {
			defer func() { <-free }()
			key, value := fmt.Sprintf("written/%d/%08d", member, n), strconv.Itoa(n)
			ctx, cancel := context.WithTimeout(ctx, putTimeout)
			defer cancel()
			resp, err := c.Put(ctx, key, value)
			w.note(key, value, resp, err)
		})
	}
}

func (w *Writer) note(key, value string, resp *clientv3.PutResponse, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failures++
		return
	}
	w.acks = append(w.acks, Ack{Key: key, Value: value, Revision: resp.Header.Revision, At: time.Now()})
}

// Stop ends the writing and returns every acknowledged write, in the order of acknowledgement.
func (w *Writer) Stop() []Ack {
	w.cancel()
	w.wg.Wait()
	return w.Acks()
}

// Acks returns what has been acknowledged so far.
func (w *Writer) Acks() []Ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acks)
}

// Gap is a time in which no write was acknowledged, no matter through which member.
type Gap struct {
	From time.Time
	Long time.Duration
}

// Gaps returns the longest gaps between from and to, the longest first, at most so many.
func Gaps(acks []Ack, from, to time.Time, most int) []Gap {
	gaps := []Gap{}
	last := from
	for _, a := range acks {
		if a.At.Before(from) || a.At.After(to) {
			continue
		}
		gaps = append(gaps, Gap{last, a.At.Sub(last)})
		last = a.At
	}
	gaps = append(gaps, Gap{last, to.Sub(last)})
	slices.SortFunc(gaps, func(a, b Gap) int { return int(b.Long - a.Long) })
	return gaps[:min(most, len(gaps))]
}

// Lost reads all keys from one member alone (serializable) and returns the acknowledged writes that it does not have.
func Lost(ctx context.Context, endpoint string, dialer Dialer, acks []Ack) ([]Ack, error) {
	c, err := NewClient(endpoint, dialer)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	have := map[string]string{}
	from, end := "written/", clientv3.GetPrefixRangeEnd("written/")
	for {
		resp, err := c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(5000), clientv3.WithSerializable())
		if err != nil {
			return nil, fmt.Errorf("read keys from %s: %w", endpoint, err)
		}
		for _, kv := range resp.Kvs {
			have[string(kv.Key)] = string(kv.Value)
		}
		if !resp.More {
			break
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
	var lost []Ack
	for _, a := range acks {
		if have[a.Key] != a.Value {
			lost = append(lost, a)
		}
	}
	return lost, nil
}

// Dialer opens a connection to a host:port by a name of the cluster.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// NewClient is an etcd client of exactly one member.
func NewClient(endpoint string, dialer Dialer) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: 0, // lazy: a member may be away when the client is made
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(dialer),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}),
		},
	})
}

// Member is what one member says of itself.
type Member struct {
	ID, Leader, ClusterID, Term uint64
	Learner                     bool
}

// Ask asks one member for its status.
func Ask(ctx context.Context, endpoint string, dialer Dialer) (Member, error) {
	c, err := NewClient(endpoint, dialer)
	if err != nil {
		return Member{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	s, err := c.Status(ctx, endpoint)
	if err != nil {
		return Member{}, fmt.Errorf("status of %s: %w", endpoint, err)
	}
	if len(s.Errors) > 0 {
		return Member{}, errors.New("status of " + endpoint + ": " + s.Errors[0])
	}
	return Member{ID: s.Header.MemberId, Leader: s.Leader, ClusterID: s.Header.ClusterId, Term: s.RaftTerm, Learner: s.IsLearner}, nil
}
