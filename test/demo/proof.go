package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

// settle is how long the writer goes on after the rollout's end, so that what comes late is seen too.
const settle = 2 * time.Second

// result is what the last line says.
type result struct {
	replaced, acknowledged, lost, elections, restarts int
	gap                                               time.Duration
}

func (t *tale) proof(ctx context.Context) error {
	t.chapter("The proof")
	if err := t.keepWriting(ctx); err != nil {
		return err
	}
	acks := t.writer.Stop()
	gaps := stage.Gaps(acks, t.start, t.end, 3)
	r := result{acknowledged: len(acks), gap: gaps[0].Long}
	for _, g := range gaps {
		t.say("no write acknowledged for %d ms, at %s", g.Long.Milliseconds(), t.clock(g.From))
	}
	broken, err := t.examine(ctx, acks, &r)
	if err != nil {
		return err
	}
	for _, b := range broken {
		t.say("BROKEN  %s", b)
	}
	t.say("\ndemo: members_replaced=%d acknowledged_writes=%d lost_writes=%d longest_write_gap_ms=%d leader_elections=%d unexpected_restarts=%d seconds=%d",
		r.replaced, r.acknowledged, r.lost, r.gap.Milliseconds(), r.elections, r.restarts, int(time.Since(t.began).Seconds()))
	switch {
	case r.lost > 0:
		return fmt.Errorf("%d acknowledged writes were lost", r.lost)
	case r.replaced != members:
		return fmt.Errorf("%d of %d members are on the new class", r.replaced, members)
	case len(broken) > 0 && t.options.naive == "":
		return fmt.Errorf("%d promises were broken", len(broken))
	}
	return nil
}

func (t *tale) keepWriting(ctx context.Context) error {
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// examine fills the result and returns the broken promises.
func (t *tale) examine(ctx context.Context, acks []stage.Ack, r *result) ([]string, error) {
	if len(acks) == 0 {
		return nil, errors.New("no write was acknowledged at all")
	}
	broken, err := t.readBack(ctx, acks, r)
	if err != nil {
		return nil, err
	}
	more, err := t.compareCluster(ctx, r)
	if err != nil {
		return nil, err
	}
	broken = append(broken, more...)
	if t.options.naive != "" {
		return broken, nil
	}
	more, err = t.promises(ctx)
	return append(broken, more...), err
}

// readBack reads every acknowledged write from every member alone.
func (t *tale) readBack(ctx context.Context, acks []stage.Ack, r *result) ([]string, error) {
	var broken []string
	for i, endpoint := range stage.Endpoints(namespace, name, members) {
		lost, err := stage.Lost(ctx, endpoint, stage.Dial, acks)
		if err != nil {
			return nil, err
		}
		t.say("%s-%d has %d of %d acknowledged writes", name, i, len(acks)-len(lost), len(acks))
		r.lost = max(r.lost, len(lost))
		if len(lost) > 0 {
			broken = append(broken, fmt.Sprintf("promise 10: %s-%d lacks %d acknowledged writes, the first is %s", name, i, len(lost), lost[0].Key))
		}
	}
	return broken, nil
}

// compareCluster compares members, claims and pods with what they were.
func (t *tale) compareCluster(ctx context.Context, r *result) ([]string, error) {
	is, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	var broken []string
	t.say("etcd cluster ID: %x before, %x after", t.was.clusterID, is.clusterID)
	if is.clusterID != t.was.clusterID {
		broken = append(broken, "promise 10: the etcd cluster ID changed")
	}
	r.elections = int(is.term - t.was.term)
	r.restarts = restarts(is.pods)
	t.say("container restarts: %d", r.restarts)
	claims, err := t.Claims(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		if c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == after && c.Status.Phase == corev1.ClaimBound {
			r.replaced++
		}
	}
	return broken, t.kubectl(ctx, t.Stage, "-n", namespace, "get", "pvc", "-o", claimColumns)
}

func restarts(pods []corev1.Pod) int {
	count := 0
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			count += int(c.RestartCount)
		}
	}
	return count
}

// promises reads broken ones off the history of all objects and the audit log.
func (t *tale) promises(ctx context.Context) ([]string, error) {
	if err := t.kubectl(ctx, t.Stage, "get", "pv", "-l", "volumes.druid.gardener.cloud/etcd="+name,
		"-o", "custom-columns=RETAINED:.metadata.name,CLAIM:.spec.claimRef.name,CLASS:.spec.storageClassName,POLICY:.spec.persistentVolumeReclaimPolicy,STATUS:.status.phase"); err != nil {
		return nil, err
	}
	retained, err := t.Retained(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	broken := stage.Judge(t.History.Events(), namespace, name, stage.SecondsAtMost)
	if len(retained) != members {
		broken = append(broken, fmt.Sprintf("promise 2: %d of %d old volumes are retained", len(retained), members))
	}
	etcd, err := t.Etcd(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	for key := range etcd.Annotations {
		if strings.HasPrefix(key, "druid.gardener.cloud/") {
			broken = append(broken, "promise 8: annotation "+key+" was left on the Etcd")
		}
	}
	audit, err := stage.AuditEvents(t.AuditLog)
	if err != nil {
		return nil, err
	}
	more, seen := stage.JudgeDeletes(audit)
	t.say("\n%d deletes in the audit log, each with its preconditions; %d broken promises", seen-len(more), len(broken)+len(more))
	return append(broken, more...), nil
}
