package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// podsGetter is the client that the library gets. Two of its calls are not what a kubelet does, and are replaced:
//
//   - the library updates whole pods; here the status is patched;
//   - the library deletes a pod from the API when its grace is over, or at once when its status shows no running
//     container; here that only ends the pod, and the worker deletes it when the last process is gone.
type podsGetter struct {
	typedcorev1.PodsGetter
	node *Node
}

// Pods returns the client for the pods of a namespace.
func (g podsGetter) Pods(namespace string) typedcorev1.PodInterface {
	return podClient{PodInterface: g.PodsGetter.Pods(namespace), node: g.node}
}

type podClient struct {
	typedcorev1.PodInterface
	node *Node
}

// UpdateStatus patches the status of a pod. A pod that is gone or replaced needs none.
func (c podClient) UpdateStatus(ctx context.Context, pod *corev1.Pod, _ metav1.UpdateOptions) (*corev1.Pod, error) {
	_, err := c.node.patchStatus(ctx, pod)
	return pod, err
}

// Delete ends the pod if it is here. If it is not, the API is all that is left of it.
func (c podClient) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		return nil // only the worker of a pod asks for its deletion on its own account
	}
	if c.node.provider.byUID(*options.Preconditions.UID) != nil {
		return nil // its worker was asked by the event that made the library ask
	}
	return c.PodInterface.Delete(ctx, name, options)
}

// patchStatus brings our part of a pod's status into the API. It is not found if it is gone or replaced.
func (n *Node) patchStatus(ctx context.Context, pod *corev1.Pod) (found bool, err error) {
	pods := n.client.CoreV1().Pods(pod.Namespace)
	current, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get pod %s: %w", podName(pod), err)
	}
	patch, err := statusPatch(current, mergedStatus(current.Status, pod.Status))
	if err != nil || patch == nil {
		return true, err
	}
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch status of pod %s: %w", podName(pod), err)
	default:
		return true, nil
	}
}

// statusPatch is the patch from the present status to the wanted one; nil if they are equal. It names the pod by UID.
func statusPatch(current *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: current.Status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	after, err := json.Marshal(corev1.Pod{Status: status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compute status patch: %w", err)
	}
	var content map[string]any
	if err := json.Unmarshal(patch, &content); err != nil {
		return nil, fmt.Errorf("decode status patch: %w", err)
	}
	if len(content) == 0 {
		return nil, nil
	}
	content["metadata"] = map[string]any{"uid": current.UID}
	return json.Marshal(content)
}

// deletePod takes a pod from the API whose processes are gone, after its last status was written; and its directory.
// It tries until it works or the node ends.
func (n *Node) deletePod(ctx context.Context, pod *corev1.Pod) {
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		err := n.tryDeletePod(ctx, pod)
		if err == nil || ctx.Err() != nil {
			return
		}
		n.config.Log.Error(err, "Pod is not deleted, trying again", "pod", podName(pod))
		if !sleep(ctx, delay) {
			return
		}
	}
}

func (n *Node) tryDeletePod(ctx context.Context, pod *corev1.Pod) error {
	if n.isGone(pod) {
		return n.removeDir(pod)
	}
	found, err := n.patchStatus(ctx, pod)
	if err != nil {
		return err
	}
	if err := n.removeDir(pod); err != nil || !found {
		return err
	}
	return n.removeFromAPI(ctx, pod)
}

// isGone tells whether the informer knows that a pod is gone from the API. A request would not tell: the API server
// forbids a node to ask for pods that are not its own, or no more.
func (n *Node) isGone(pod *corev1.Pod) bool {
	current, err := n.lister.Pods(pod.Namespace).Get(pod.Name)
	return apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID
}

func (n *Node) removeFromAPI(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod of this name
	}
	return fmt.Errorf("delete pod %s: %w", podName(pod), err)
}
