package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RotateAnnotation on the Secret asks for a rotation of the authority; each new value asks once.
const RotateAnnotation = "volumes.druid.gardener.cloud/rotate"

// errUnreadable says that the Secret does not hold together. Only the leader makes it anew.
var errUnreadable = errors.New("secret can not be read")

// Keeper keeps the certificates of one replica.
type Keeper struct {
	options Options
	gauges  *gauges
	files   filesSource

	reader client.Reader // uncached: what is decided here must not be based on yesterday's Secret
	writer client.Writer
	live   client.Reader // cached: what the API server has, for the readiness probe
	serve  atomic.Pointer[tls.Certificate]

	mu    sync.Mutex // one pass at a time: refresh and lead are two runnables
	state *State     // as last read
}

// Refresh is the duty of every replica: read or create the Secret, sign a certificate where one is due, fill in
// an empty caBundle.
func (k *Keeper) Refresh(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.refresh(ctx); err != nil {
		return err
	}
	_, err := k.inject(ctx, configuration.bare)
	return err
}

// Lead is the duty of the leader: inject the bundle, and take the rotation as many steps further as can be taken now.
func (k *Keeper) Lead(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		secret, err := k.refresh(ctx)
		if errors.Is(err, errUnreadable) {
			return errors.Join(err, k.found(ctx, secret))
		}
		if err != nil {
			return err
		}
		injected, err := k.inject(ctx, func(c configuration, bundle []byte) bool { return !c.holds(bundle) })
		if err != nil {
			return err
		}
		more, err := k.advance(ctx, secret, injected)
		if err != nil || !more {
			return err
		}
	}
}

// advance takes one step of the rotation, and reports whether there was one to take.
func (k *Keeper) advance(ctx context.Context, secret *corev1.Secret, injected bool) (bool, error) {
	next, err := Next(k.state, k.options.Policy, Facts{
		Now: k.options.Now(), Injected: injected, Request: secret.Annotations[RotateAnnotation],
	})
	if err != nil || next == k.state {
		return false, err
	}
	return true, k.write(ctx, secret, next)
}

// refresh reads the Secret, or creates it, and signs a certificate where one is due.
func (k *Keeper) refresh(ctx context.Context) (*corev1.Secret, error) {
	secret, err := k.load(ctx)
	if err != nil {
		return nil, err
	}
	state, err := Decode(secret.Data)
	if err != nil {
		return secret, fmt.Errorf("%w: %s: %w", errUnreadable, client.ObjectKeyFromObject(secret), err)
	}
	k.state = state
	return secret, k.sign()
}

// sign makes a certificate where there is none, where it was signed by another authority, or where two thirds of its
// life are over.
func (k *Keeper) sign() error {
	now, ca := k.options.Now(), k.state.Current
	old := k.serve.Load()
	if old == nil || old.Leaf.CheckSignatureFrom(ca.Certificate) != nil || Due(old.Leaf, now) {
		fresh, err := Issue(ca, k.options.names(), now, k.options.Policy.CertificateLife)
		if err != nil && old == nil {
			return err
		}
		if err == nil { // else the authority has ended: the leader is about to replace it
			old = fresh
			k.serve.Store(fresh)
		}
	}
	k.gauges.observe(k.state, old.Leaf)
	return nil
}

// load reads the Secret; where there is none, or an empty one, it writes the first state. Who loses that race reads what
// the winner wrote.
func (k *Keeper) load(ctx context.Context) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: k.options.Namespace, Name: k.options.Secret}
	secret := &corev1.Secret{}
	err := k.reader.Get(ctx, key, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read secret %s: %w", key, err)
	}
	if !missing && len(secret.Data) > 0 {
		return secret, nil
	}
	if missing {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"app.kubernetes.io/name": "etcd-volumes"},
		}, Type: corev1.SecretTypeOpaque}
	}
	if err := k.found(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		return nil, err
	}
	if err := k.reader.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("read secret %s: %w", key, err)
	}
	return secret, nil
}

// found writes the first state into a Secret that does not exist, is empty or can not be read. A state that is in memory
// is put back instead: the API server trusts it still.
func (k *Keeper) found(ctx context.Context, secret *corev1.Secret) error {
	state := k.state
	if state == nil {
		var err error
		if state, err = Begin(k.options.Policy, k.options.Now()); err != nil {
			return err
		}
		state.Request = secret.Annotations[RotateAnnotation]
	}
	return k.write(ctx, secret, state)
}

// write stores the state. A Secret that was changed since it was read is left alone.
func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, state *State) error {
	data, err := state.Encode()
	if err != nil {
		return err
	}
	stored := secret.DeepCopy()
	stored.Data = data
	if stored.ResourceVersion == "" {
		err = k.writer.Create(ctx, stored, client.FieldOwner(FieldManager))
	} else {
		err = k.writer.Update(ctx, stored, client.FieldOwner(FieldManager))
	}
	if err != nil {
		return fmt.Errorf("write secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// inject writes the bundle into each configuration that is due, and reports whether all configurations, read back,
// hold it. No configuration at all counts as not injected.
func (k *Keeper) inject(ctx context.Context, due func(configuration, []byte) bool) (bool, error) {
	bundle := k.state.Bundle()
	before, err := configurations(ctx, k.reader, k.options.Configuration)
	if err != nil {
		return false, err
	}
	for _, c := range before {
		if !due(c, bundle) {
			continue
		}
		if err := k.apply(ctx, c, bundle); err != nil {
			return false, err
		}
	}
	after, err := configurations(ctx, k.reader, k.options.Configuration)
	if err != nil {
		return false, err
	}
	for _, c := range after {
		if !c.holds(bundle) {
			return false, nil
		}
	}
	return len(after) > 0, nil
}

func (k *Keeper) apply(ctx context.Context, c configuration, bundle []byte) error {
	if err := Verify(bundle, k.serve.Load().Leaf, k.options.names()[0], k.options.Now()); err != nil {
		return fmt.Errorf("bundle for %s %s withheld: %w", c.kind, k.options.Configuration, err)
	}
	err := k.writer.Apply(ctx, c.apply(c, k.options.Configuration, bundle), client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply caBundle to %s %s: %w", c.kind, k.options.Configuration, err)
	}
	k.gauges.injections.WithLabelValues(c.kind).Inc()
	return nil
}

// pause is how long a loop sleeps when nothing wakes it: at least once a minute the wall clock is looked at.
func (k *Keeper) pause() time.Duration {
	return max(min(time.Minute, k.options.Policy.Hold/4, k.options.Policy.CertificateLife/20), 100*time.Millisecond)
}
