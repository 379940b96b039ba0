// Package member is the sidecar's view of its etcd member in the cluster: is it listed, remove it, add it again as
// a learner, promote it, correct its peer URLs.
//
// Members are found by name, as in the real sidecar, with one consequence: a learner that was
// added but never started has no name yet, is not found, and is added "again", which etcd answers with "peer URL exists" - the way
// back after a crash between the two steps.
package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/etcdconf"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/metrics"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
)

const (
	// CallTimeout bounds one membership call.
	CallTimeout = 5 * time.Second
	// ConnectTimeout bounds a sequence of calls.
	ConnectTimeout = 30 * time.Second
	// learnerAttempts is how often a new member tries to be added before the sidecar gives up and restarts.
	learnerAttempts = 6
)

// LookBackoff is the back-off of questions to the cluster.
var LookBackoff = pace.Backoff{First: 2 * time.Second, Factor: 2, Attempts: 4}

// errMissing says that the member is not in the list, which promotion cannot do without.
var errMissing = errors.New("member missing from member list")

// Control acts on the membership of the pod's own member.
type Control struct {
	Conn       Conn
	ConfigFile string
	Pod        string
	Pace       pace.Pace
	Log        *zap.Logger
}

// Name returns the member's name, read anew because druid may change the ConfigMap under a running pod.
func (c Control) Name() (string, error) {
	f, err := etcdconf.Read(c.ConfigFile)
	if err != nil {
		return "", err
	}
	return f.Member(c.Pod), nil
}

// Listed reports whether the member is in the list of a cluster that answers linearizable reads.
func (c Control) Listed(ctx context.Context) (bool, error) {
	members, err := c.Members(ctx)
	if err != nil {
		return false, err
	}
	name, err := c.Name()
	if err != nil {
		return false, err
	}
	return find(members, name) != nil, nil
}

// Members returns the members of the cluster behind the service, learners included.
func (c Control) Members(ctx context.Context) ([]*etcdserverpb.Member, error) {
	client, err := c.Conn.Service()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := c.Pace.Retry(ctx, LookBackoff, func() error { return c.probe(ctx, client) }); err != nil {
		return nil, fmt.Errorf("probe etcd: %w", err)
	}
	return c.list(ctx, client)
}

func (c Control) probe(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, c.Pace.Glance(CallTimeout))
	defer cancel()
	_, err := client.Get(ctx, "foo")
	return err
}

func (c Control) list(ctx context.Context, client *clientv3.Client) ([]*etcdserverpb.Member, error) {
	var members []*etcdserverpb.Member
	err := c.Pace.Retry(ctx, LookBackoff, func() error {
		ctx, cancel := context.WithTimeout(ctx, c.Pace.Timeout(CallTimeout))
		defer cancel()
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		members = list.Members
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return members, nil
}

// Remove removes the member from the cluster; a member that is not listed is removed already.
func (c Control) Remove(ctx context.Context) error {
	name, err := c.Name()
	if err != nil {
		return err
	}
	client, err := c.Conn.Service()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Pace.Timeout(ConnectTimeout))
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	found := find(list.Members, name)
	if found == nil {
		return nil
	}
	start := time.Now()
	_, err = client.MemberRemove(ctx, found.ID)
	metrics.Since(metrics.MemberRemove, start, err)
	if err != nil {
		return fmt.Errorf("remove member %s (%s): %w", name, hex(found.ID), err)
	}
	c.Log.Info("removed member from the cluster", zap.String("member", name), zap.String("id", hex(found.ID)))
	return nil
}

// AddLearner adds the member as a learner; one that is in the cluster by its peer URLs is added already.
func (c Control) AddLearner(ctx context.Context) error {
	f, err := etcdconf.Read(c.ConfigFile)
	if err != nil {
		return err
	}
	name := f.Member(c.Pod)
	urls, err := f.MemberPeerURLs(name)
	if err != nil {
		return err
	}
	client, err := c.Conn.Service()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Pace.Timeout(CallTimeout))
	defer cancel()
	start := time.Now()
	added, err := client.MemberAddAsLearner(ctx, urls)
	if errors.Is(err, rpctypes.ErrPeerURLExist) || errors.Is(err, rpctypes.ErrMemberExist) {
		c.Log.Info("member is in the cluster already", zap.String("member", name))
		return nil
	}
	metrics.Since(metrics.AddLearner, start, err)
	if err != nil {
		return fmt.Errorf("add member %s as a learner: %w", name, err)
	}
	metrics.IsLearner.Set(1)
	c.Log.Info("added member as a learner", zap.String("member", name), zap.String("id", hex(added.Member.ID)))
	return nil
}

// AddLearnerPatiently tries to add the member six times, clearing its data before each attempt; a
// cluster has room for one learner, so another member's turn is waited for.
func (c Control) AddLearnerPatiently(ctx context.Context, clear func() error) error {
	backoff := LookBackoff
	backoff.Attempts = learnerAttempts
	return c.Pace.Retry(ctx, backoff, func() error {
		if err := clear(); err != nil {
			return err
		}
		err := c.AddLearner(ctx)
		if errors.Is(err, rpctypes.ErrTooManyLearners) {
			return errors.Join(err, c.Pace.Sleep(ctx, CallTimeout))
		}
		return err
	})
}

// Promote makes the member a voter, which etcd grants once it is in sync with the leader.
func (c Control) Promote(ctx context.Context) error {
	name, err := c.Name()
	if err != nil {
		return err
	}
	client, err := c.Conn.Service()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Pace.Timeout(ConnectTimeout))
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	found := find(list.Members, name)
	if found == nil {
		return errMissing
	}
	start := time.Now()
	_, err = client.MemberPromote(ctx, found.ID)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	metrics.Since(metrics.MemberPromote, start, err)
	if err != nil {
		return fmt.Errorf("promote member %s (%s): %w", name, hex(found.ID), err)
	}
	metrics.IsLearner.Set(0)
	return nil
}

// LearnerPresent reports whether the cluster has a learner.
func (c Control) LearnerPresent(ctx context.Context) (bool, error) {
	client, err := c.Conn.Service()
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Pace.Timeout(ConnectTimeout))
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return false, fmt.Errorf("list members: %w", err)
	}
	return slices.ContainsFunc(list.Members, (*etcdserverpb.Member).GetIsLearner), nil
}

// PeerURLsChanged reports whether the configuration has peer URLs that the own member's cluster does not know.
// A learner cannot answer; that costs it the whole back-off, here as in the real sidecar.
func (c Control) PeerURLsChanged(ctx context.Context) (bool, error) {
	f, err := etcdconf.Read(c.ConfigFile)
	if err != nil {
		return false, err
	}
	name := f.Member(c.Pod)
	wanted, err := f.MemberPeerURLs(name)
	if err != nil {
		return false, err
	}
	client, err := c.Conn.Local()
	if err != nil {
		return false, err
	}
	defer client.Close()
	members, err := c.list(ctx, client)
	if err != nil {
		return false, err
	}
	known := find(members, name).GetPeerURLs()
	return slices.ContainsFunc(wanted, func(url string) bool { return !slices.Contains(known, url) }), nil
}

// UpdatePeerURLs sets the peer URLs of the member that client is connected to.
func (c Control) UpdatePeerURLs(ctx context.Context, client *clientv3.Client) error {
	f, err := etcdconf.Read(c.ConfigFile)
	if err != nil {
		return err
	}
	urls, err := f.MemberPeerURLs(f.Member(c.Pod))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Pace.Timeout(ConnectTimeout))
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	if _, err := client.MemberUpdate(ctx, list.Header.MemberId, urls); err != nil {
		return fmt.Errorf("update peer URLs of %s: %w", hex(list.Header.MemberId), err)
	}
	return nil
}

func find(members []*etcdserverpb.Member, name string) *etcdserverpb.Member {
	for _, m := range members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }
