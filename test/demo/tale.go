package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

// The hero of the tale.
const (
	namespace = "shop"
	name      = "main"
	members   = 3
	before    = "slow"
	after     = "fast"
)

type tale struct {
	*stage.Stage
	*narrator
	options options

	writer     *stage.Writer
	start, end time.Time
	was        state
}

// state is what must be the same, or is counted, before and after.
type state struct {
	clusterID, term uint64
	pods            []corev1.Pod
}

func (t *tale) tell(ctx context.Context) error {
	for _, scene := range []func(context.Context) error{t.open, t.change, t.proof} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open makes the Etcd and starts the writer.
func (t *tale) open(ctx context.Context) error {
	t.chapter("An Etcd with %d members on storage class %q, and a writer that puts keys through all of them, all the time", members, before)
	e := stage.Etcd{Namespace: namespace, Name: name, Members: members, Class: before, Backup: true}
	if err := t.CreateEtcd(ctx, e); err != nil {
		return err
	}
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "get", "pvc", "-o", claimColumns); err != nil {
		return err
	}
	var err error
	if t.was, err = t.look(ctx); err != nil {
		return err
	}
	t.writer, err = t.Write(ctx, namespace, name, members)
	return err
}

const claimColumns = "custom-columns=CLAIM:.metadata.name,CLASS:.spec.storageClassName,SIZE:.status.capacity.storage,VOLUME:.spec.volumeName"

func (t *tale) look(ctx context.Context) (state, error) {
	pods, err := t.Pods(ctx, namespace, name)
	if err != nil {
		return state{}, err
	}
	m, err := stage.Ask(ctx, stage.Endpoints(namespace, name, members)[0], stage.Dial)
	return state{clusterID: m.ClusterID, term: m.Term, pods: pods}, err
}

func (t *tale) change(ctx context.Context) error {
	if t.options.naive != "" {
		return t.byHand(ctx)
	}
	patch := []string{"-n", namespace, "patch", "etcd", name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"storageClass":%q}}`, after)}
	t.chapter("The change is tried: refused, and explained")
	token, err := t.refusal(ctx, patch)
	if err != nil {
		return err
	}
	t.chapter("Confirmed with the command that the refusal printed, and tried again")
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "annotate", "etcd.druid.gardener.cloud", name, "volumes.druid.gardener.cloud/confirm="+token, "--overwrite"); err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	t.start = time.Now()
	if err := t.kubectl(ctx, t.Stage, patch...); err != nil {
		return fmt.Errorf("the confirmed change was refused: %w", err)
	}
	t.chapter("The rollout, live: what it does, and what it waits for")
	r, err := t.WaitRollout(ctx, namespace, name, 1, func(r *v1alpha1.VolumeRollout) bool {
		t.progress(r)
		return stage.InPhase(v1alpha1.Complete, v1alpha1.Aborted, v1alpha1.Superseded)(r)
	})
	if err != nil {
		return fmt.Errorf("wait for the rollout: %w", err)
	}
	if r.Status.Phase != v1alpha1.Complete {
		return fmt.Errorf("the rollout ended as %s: %s", r.Status.Phase, r.Status.Message)
	}
	t.end = time.Now()
	return nil
}

var confirmation = regexp.MustCompile(`volumes\.druid\.gardener\.cloud/confirm=(\d+-[0-9a-f]+)`)

// refusal tries the change and takes the token from what kubectl printed.
func (t *tale) refusal(ctx context.Context, patch []string) (string, error) {
	_, stderr, err := t.Kubectl(ctx, patch...)
	if err == nil {
		return "", errors.New("the unconfirmed change was not refused")
	}
	t.say("\n  $ kubectl %s\n%s", quote(patch), indent(stderr))
	found := confirmation.FindStringSubmatch(stderr)
	if found == nil {
		return "", errors.New("the refusal names no confirmation")
	}
	return found[1], nil
}
