package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

// Ways to do it by hand.
const (
	naiveGraceful = "graceful"
	naiveKill     = "kill"
)

// byHand is the procedure that admins follow without us: hold etcd-druid, recreate the StatefulSet, then delete claim and
// pod by ordinal, and wait for each. Nobody moves the leadership away.
func (t *tale) byHand(ctx context.Context) error {
	t.chapter("By hand (%s): StatefulSet recreated, then claim and pod by ordinal", t.options.naive)
	if err := t.recreateSet(ctx); err != nil {
		return err
	}
	t.start = time.Now()
	for i := range members {
		if err := t.replaceByHand(ctx, i); err != nil {
			return fmt.Errorf("replace member %d by hand: %w", i, err)
		}
	}
	t.end = time.Now()
	return nil
}

func (t *tale) recreateSet(ctx context.Context) error {
	// The webhook stands in the way of a change by hand, as it should: the admin of this tale does not have it.
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		if err := t.kubectl(ctx, t.Stage, "delete", kind, stage.Deployment); err != nil {
			return err
		}
	}
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "annotate", "etcd", name, "druid.gardener.cloud/suspend-etcd-spec-reconcile=true"); err != nil {
		return err
	}
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "patch", "etcd", name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"storageClass":%q}}`, after)); err != nil {
		return err
	}
	manifest, _, err := t.Kubectl(ctx, "-n", namespace, "get", "statefulset", name, "-o", "json")
	if err != nil {
		return fmt.Errorf("read the StatefulSet: %w", err)
	}
	if manifest, err = withClass(manifest, after); err != nil {
		return err
	}
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "delete", "statefulset", name, "--cascade=orphan"); err != nil {
		return err
	}
	if _, stderr, err := t.KubectlStdin(ctx, strings.NewReader(manifest), "create", "-f", "-"); err != nil {
		return fmt.Errorf("create the StatefulSet: %w: %s", err, stderr)
	}
	return nil
}

func withClass(manifest, class string) (string, error) {
	var set map[string]any
	if err := json.Unmarshal([]byte(manifest), &set); err != nil {
		return "", fmt.Errorf("read the StatefulSet: %w", err)
	}
	metadata := set["metadata"].(map[string]any)
	for _, key := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
		delete(metadata, key)
	}
	delete(set, "status")
	templates := set["spec"].(map[string]any)["volumeClaimTemplates"].([]any)
	templates[0].(map[string]any)["spec"].(map[string]any)["storageClassName"] = class
	out, err := json.Marshal(set)
	return string(out), err
}

func (t *tale) replaceByHand(ctx context.Context, i int) error {
	pod := fmt.Sprintf("%s-%d", name, i)
	claim := name + "-" + pod
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "delete", "pvc", claim, "--wait=false"); err != nil {
		return err
	}
	if t.options.naive == naiveKill {
		if err := t.killLeader(ctx, i); err != nil {
			return err
		}
	}
	if err := t.kubectl(ctx, t.Stage, "-n", namespace, "delete", "pod", pod); err != nil {
		return err
	}
	return t.waitByHand(ctx, claim)
}

// killLeader kills the member's etcd if it leads.
func (t *tale) killLeader(ctx context.Context, i int) error {
	m, err := stage.Ask(ctx, stage.Endpoints(namespace, name, members)[i], stage.Dial)
	if err != nil {
		return err
	}
	if m.ID != m.Leader {
		return nil
	}
	pid, err := t.ContainerPID(namespace, fmt.Sprintf("%s-%d", name, i), "etcd")
	if err != nil {
		return err
	}
	t.say("  killing the leader")
	return syscall.Kill(pid, syscall.SIGKILL)
}

// waitByHand waits as an admin would: all members are ready, and the claim is bound on the new class.
func (t *tale) waitByHand(ctx context.Context, claim string) error {
	if err := t.MembersReady(ctx, namespace, name, members); err != nil {
		return err
	}
	claims, err := t.Claims(ctx, namespace, name)
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Name == claim && c.Status.Phase == corev1.ClaimBound && c.DeletionTimestamp == nil && *c.Spec.StorageClassName == after {
			return nil
		}
	}
	return fmt.Errorf("claim %s is not on class %s although all members are ready", claim, after)
}
