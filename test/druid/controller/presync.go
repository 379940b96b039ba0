package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/render"
)

const (
	maxSnapshotAttempts = 3
	// attemptLifetime is how long an attempt is remembered: the default lifetime of a finished task of the real one.
	attemptLifetime     = time.Hour
	snapshotCallTimeout = 8 * time.Minute
	// taskCAKey is the key of the CA secret for this one call, where the Etcd names none. It differs from the one that
	// the pods use, as it does in the real one.
	taskCAKey = "bundle.crt"
)

var (
	errNotReady = errors.New("the Etcd is not ready")
	errNoCA     = errors.New("no certificate of the sidecar's CA in the secret")
)

// snapshotter takes a full snapshot of an Etcd.
type snapshotter func(context.Context, *api.Etcd) error

// presync remembers the snapshots before hibernations, one record for each namespace.
type presync struct {
	snapshot snapshotter

	mu       sync.Mutex
	attempts map[string]attempt
}

// attempt is the newest attempt in a namespace. While it runs, it has no end.
type attempt struct {
	number int
	end    time.Time
	err    error
}

func newPresync(snapshot snapshotter) *presync {
	return &presync{snapshot: snapshot, attempts: map[string]attempt{}}
}

// snapshotBeforeHibernation makes sure that a snapshot was tried before an Etcd with a store is scaled to zero.
func (r *Reconciler) snapshotBeforeHibernation(ctx context.Context, etcd *api.Etcd) error {
	if !etcd.HasStore() || etcd.Spec.Replicas != 0 {
		return nil
	}
	live, err := r.liveStatefulSet(ctx, etcd)
	if err != nil {
		return fail(CodeGetStatefulSet, operationPreSync, fmt.Sprintf("get StatefulSet %s", client.ObjectKeyFromObject(etcd)), err)
	}
	if live == nil || ptr.Deref(live.Spec.Replicas, 0) == 0 {
		return nil
	}
	return r.presync.ensure(ctx, etcd)
}

// ensure returns nil once an attempt in this namespace has succeeded, or once there were too many.
func (p *presync) ensure(ctx context.Context, etcd *api.Etcd) error {
	last, number, begin := p.next(etcd.Namespace)
	if begin {
		err := p.snapshot(ctx, etcd)
		p.finish(etcd.Namespace, number, err)
		return &notYet{why: fmt.Sprintf("attempt %d at a snapshot before hibernation was made.", number)}
	}
	if last.end.IsZero() {
		return &notYet{why: "a snapshot before hibernation is being taken."}
	}
	if last.err != nil {
		log.FromContext(ctx).Error(last.err, "hibernating without a snapshot", "attempts", last.number)
	}
	return nil
}

// next says which attempt was the newest and whether another one is to begin, and with which number.
func (p *presync) next(namespace string) (last attempt, number int, begin bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.attempts[namespace]
	if known && !last.end.IsZero() && time.Since(last.end) > attemptLifetime {
		last, known = attempt{}, false
	}
	running := known && last.end.IsZero()
	settled := known && (last.err == nil || last.number >= maxSnapshotAttempts)
	if running || settled {
		return last, last.number, false
	}
	number = last.number + 1
	p.attempts[namespace] = attempt{number: number}
	return last, number, true
}

func (p *presync) finish(namespace string, number int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts[namespace] = attempt{number: number, end: time.Now(), err: err}
}

// takeSnapshot asks the sidecars, through the client service, for a full snapshot.
func takeSnapshot(c client.Client) snapshotter {
	return func(ctx context.Context, etcd *api.Etcd) error {
		if !conditionTrue(etcd, api.ConditionReady) {
			return errNotReady
		}
		caller, scheme, err := backupCaller(ctx, c, etcd)
		if err != nil {
			return err
		}
		defer caller.CloseIdleConnections()
		url := fmt.Sprintf("%s://%s.%s:%d/snapshot/full", scheme, etcd.ClientServiceName(), etcd.Namespace, render.BackupPort(etcd))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		if err != nil {
			return fmt.Errorf("request %s: %w", url, err)
		}
		resp, err := caller.Do(req)
		if err != nil {
			return fmt.Errorf("post %s: %w", url, err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("post %s: status %s", url, resp.Status)
		}
		return nil
	}
}

func conditionTrue(etcd *api.Etcd, kind api.ConditionType) bool {
	for _, c := range etcd.Status.Conditions {
		if c.Type == kind {
			return c.Status == api.ConditionTrue
		}
	}
	return false
}

func backupCaller(ctx context.Context, c client.Client, etcd *api.Etcd) (*http.Client, string, error) {
	settings := etcd.Spec.Backup.TLS
	if settings == nil {
		return &http.Client{Timeout: snapshotCallTimeout, Transport: &http.Transport{}}, "http", nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: etcd.Namespace, Name: settings.TLSCASecretRef.Name}
	if err := c.Get(ctx, key, secret); err != nil {
		return nil, "", fmt.Errorf("get secret %s: %w", key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(secret.Data[ptr.Deref(settings.TLSCASecretRef.DataKey, taskCAKey)]) {
		return nil, "", fmt.Errorf("secret %s: %w", key, errNoCA)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return &http.Client{Timeout: snapshotCallTimeout, Transport: transport}, "https", nil
}
