// Package leases writes the Leases by which druid and others follow a member from the outside.
//
//	<member>        holder "<member id>:<cluster id>:<Leader|Member>" in hex; a learner says Member; renewed every heartbeat
//	<etcd>-full-snap   holder = last revision of the newest full snapshot, renewTime = when it was taken
//	<etcd>-delta-snap  holder = last revision of the newest delta, renewTime = now, also when there was nothing to save
//
// druid creates them; the sidecar only gets and updates. Where the real one patches, this one updates
// and tries again on a conflict.
package leases

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/retry"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// PeerTLSAnnotation tells on a member's lease whether its peer URLs use TLS.
const PeerTLSAnnotation = "member.etcd.gardener.cloud/tls-enabled"

// Client writes leases of one namespace.
type Client struct {
	Leases coordinationclient.LeaseInterface
}

// Holder returns what a member's lease says for the given status of its etcd.
func Holder(status *clientv3.StatusResponse) string {
	role := "Member"
	if status.Header.MemberId == status.Leader {
		role = "Leader"
	}
	return fmt.Sprintf("%x:%x:%s", status.Header.MemberId, status.Header.ClusterId, role)
}

// HasHolder reports whether a member has ever renewed the lease.
func (c Client) HasHolder(ctx context.Context, name string) (bool, error) {
	lease, err := c.Leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get lease %s: %w", name, err)
	}
	return lease.Spec.HolderIdentity != nil, nil
}

// RenewMember records a sign of life of a member.
func (c Client) RenewMember(ctx context.Context, name, holder string, annotations map[string]string) error {
	return c.update(ctx, name, func(lease *coordinationv1.Lease) error {
		lease.Spec.HolderIdentity = &holder
		lease.Spec.RenewTime = now()
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		maps.Copy(lease.Annotations, annotations)
		return nil
	})
}

// RenewFull records a full snapshot. A lease that already names a higher revision is left alone.
func (c Client) RenewFull(ctx context.Context, name string, full *store.Snapshot) error {
	return c.update(ctx, name, func(lease *coordinationv1.Lease) error {
		recorded, err := revision(lease)
		if err != nil || recorded > full.LastRevision {
			return err
		}
		lease.Spec.HolderIdentity = text(full.LastRevision)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: full.CreatedOn}
		return nil
	})
}

// RenewDelta records that changes are being saved, and the newest of the given deltas.
func (c Client) RenewDelta(ctx context.Context, name string, deltas []*store.Snapshot) error {
	return c.update(ctx, name, func(lease *coordinationv1.Lease) error {
		recorded, err := revision(lease)
		if err != nil {
			return err
		}
		lease.Spec.RenewTime = now()
		newest := recorded
		if len(deltas) > 0 {
			newest = max(recorded, deltas[len(deltas)-1].LastRevision)
		}
		lease.Spec.HolderIdentity = text(newest)
		return nil
	})
}

func (c Client) update(ctx context.Context, name string, change func(*coordinationv1.Lease) error) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := c.Leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := change(lease); err != nil {
			return err
		}
		_, err = c.Leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", name, err)
	}
	return nil
}

func revision(lease *coordinationv1.Lease) (int64, error) {
	if lease.Spec.HolderIdentity == nil {
		return 0, nil
	}
	return strconv.ParseInt(*lease.Spec.HolderIdentity, 10, 64)
}

func text(revision int64) *string {
	s := strconv.FormatInt(revision, 10)
	return &s
}

func now() *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now()} }
