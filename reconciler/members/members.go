package members

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

const (
	defaultClientPort = 2379
	// patience bounds everything that is asked of one member; a healthy one answers in milliseconds.
	patience = 1500 * time.Millisecond
	// movePatience bounds the moving of leadership; etcd itself gives up after some election timeouts.
	movePatience = 5 * time.Second
)

// Client reaches the members of any Etcd.
type Client struct {
	// Reader reads the Secrets; uncached.
	Reader client.Reader
	// Address is where a member answers; nil means under its DNS name in the cluster, see Endpoint.
	Address func(etcd *volume.Etcd, ordinal int) string
}

// View is what one member says of itself.
type View struct {
	Ordinal             int
	Reached             bool
	Error               string
	MemberID, ClusterID uint64
	Leader              uint64
	Learner             bool
	Applied, Index      uint64
	DBSize              int64
	Reads               bool
	Alarms              []string
}

// Listed is an entry of the member list.
type Listed struct {
	ID      uint64
	Name    string
	Learner bool
}

// Answer is what the cluster says: each asked member of itself, and one of them of all.
type Answer struct {
	Views   []View   // by ordinal
	Listed  []Listed // by ID
	Alarms  []string // sorted, each once
	Trouble string   // why the list is not known
}

// Ask asks the members of the given ordinals at once. It always answers; what could not be learned is said in the answer.
func (c Client) Ask(ctx context.Context, etcd *volume.Etcd, ordinals []int) Answer {
	if len(ordinals) == 0 {
		return Answer{Trouble: "no member runs"}
	}
	conf, err := c.tlsConfig(ctx, etcd)
	if err != nil {
		return Answer{Trouble: err.Error()}
	}
	views := make([]View, len(ordinals))
	lists := make([][]Listed, len(ordinals))
	var wg sync.WaitGroup
	for i, ordinal := range ordinals {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			views[i], lists[i] = look(ctx, c.address(etcd, ordinal), ordinal, conf)
		})
	}
	wg.Wait()
	return join(views, lists)
}

func join(views []View, lists [][]Listed) Answer {
	a := Answer{Views: views, Trouble: "no member answered with the member list"}
	for i, v := range views {
		a.Alarms = append(a.Alarms, v.Alarms...)
		if len(lists[i]) > 0 && a.Listed == nil {
			a.Listed, a.Trouble = lists[i], ""
		}
	}
	slices.Sort(a.Alarms)
	a.Alarms = slices.Compact(a.Alarms)
	slices.SortFunc(a.Views, func(x, y View) int { return cmp.Compare(x.Ordinal, y.Ordinal) })
	slices.SortFunc(a.Listed, func(x, y Listed) int { return cmp.Compare(x.ID, y.ID) })
	return a
}

// look asks one member: its status, a linearizable read, and the member list, which a member without quorum refuses.
func look(ctx context.Context, endpoint string, ordinal int, conf *tls.Config) (View, []Listed) {
	v := View{Ordinal: ordinal}
	cl, err := dial(ctx, endpoint, conf)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	defer func() { _ = cl.Close() }() // nothing was written on it
	status, err := cl.Status(ctx, endpoint)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	v.Reached = true
	v.MemberID, v.ClusterID, v.Leader = status.Header.MemberId, status.Header.ClusterId, status.Leader
	v.Learner, v.Applied, v.Index, v.DBSize = status.IsLearner, status.RaftAppliedIndex, status.RaftIndex, status.DbSize
	v.Alarms = alarms(status.Errors)
	if v.Learner {
		return v, nil // a learner refuses all further questions
	}
	if v.Error = reads(ctx, cl); v.Error != "" {
		return v, nil
	}
	v.Reads = true
	return v, list(ctx, cl)
}

// alarms are the errors of a status other than the lack of a leader.
func alarms(errs []string) []string {
	var raised []string
	for _, e := range errs {
		if e != rpctypes.ErrNoLeader.Error() && !strings.Contains(e, "no leader") {
			raised = append(raised, e)
		}
	}
	return raised
}

// reads says why a linearizable read does not work; "" if it does. A refusal for want of permission went through quorum too.
func reads(ctx context.Context, cl *clientv3.Client) string {
	_, err := cl.Get(ctx, "health", clientv3.WithCountOnly())
	if err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
		return ""
	}
	return err.Error()
}

func list(ctx context.Context, cl *clientv3.Client) []Listed {
	resp, err := cl.MemberList(ctx)
	if err != nil {
		return nil
	}
	listed := make([]Listed, 0, len(resp.Members))
	for _, m := range resp.Members {
		listed = append(listed, Listed{ID: m.ID, Name: m.Name, Learner: m.IsLearner})
	}
	return listed
}

// MoveLeader asks member from, which must be the leader, to hand leadership to the member with the given ID.
func (c Client) MoveLeader(ctx context.Context, etcd *volume.Etcd, from int, to uint64) error {
	conf, err := c.tlsConfig(ctx, etcd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	cl, err := dial(ctx, c.address(etcd, from), conf)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // the answer is in
	if _, err := cl.MoveLeader(ctx, to); err != nil {
		return fmt.Errorf("move leadership of %s/%s from %s to member %x: %w", etcd.Namespace, etcd.Name, volume.PodName(etcd.Name, from), to, err)
	}
	return nil
}

// Endpoint is the client address of one member.
func Endpoint(etcd *volume.Etcd, ordinal int) string {
	port := defaultClientPort
	if etcd.Spec.Etcd.ClientPort != nil {
		port = int(*etcd.Spec.Etcd.ClientPort)
	}
	scheme := "http"
	if etcd.Spec.Etcd.ClientURLTLS != nil {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(volume.MemberHost(etcd.Namespace, etcd.Name, ordinal), strconv.Itoa(port))
}

func (c Client) address(etcd *volume.Etcd, ordinal int) string {
	if c.Address != nil {
		return c.Address(etcd, ordinal)
	}
	return Endpoint(etcd, ordinal)
}

func dial(ctx context.Context, endpoint string, conf *tls.Config) (*clientv3.Client, error) {
	cl, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, TLS: conf, DialTimeout: patience, Logger: zap.NewNop(),
		// One try: a member that refuses the connection is asked again in the next pass, not 100 times in this one.
		MaxUnaryRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", endpoint, err)
	}
	return cl, nil
}
