package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimedPath resolves a claim to the directory of its volume. The errors are those that people know from the kubelet.
func (n *Node) claimedPath(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (string, error) {
	name := pod.Name + "-" + volume.Name
	if volume.PersistentVolumeClaim != nil {
		name = volume.PersistentVolumeClaim.ClaimName
	}
	source, err := n.boundPath(ctx, pod, name, volume.Ephemeral != nil)
	if err != nil {
		return "", fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	return source.Path, checkHostPath(source)
}

func (n *Node) boundPath(ctx context.Context, pod *corev1.Pod, name string, ephemeral bool) (*corev1.HostPathVolumeSource, error) {
	claim, err := n.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	if ephemeral && !metav1.IsControlledBy(claim, pod) {
		return nil, errors.New("PVC was not created for the pod")
	}
	if err := checkBound(claim); err != nil {
		return nil, err
	}
	volume, err := n.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)
	}
	if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil, fmt.Errorf("PV %s is not bound to this PVC", volume.Name)
	}
	return directoryOf(volume)
}

func checkBound(claim *corev1.PersistentVolumeClaim) error {
	if claim.DeletionTimestamp != nil {
		return errors.New("PVC is being deleted")
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return errors.New("PVC is not bound")
	}
	return nil
}

// directoryOf is where the volume is on this machine.
func directoryOf(volume *corev1.PersistentVolume) (*corev1.HostPathVolumeSource, error) {
	switch {
	case volume.Spec.HostPath != nil:
		return volume.Spec.HostPath, nil
	case volume.Spec.Local != nil:
		directory := corev1.HostPathDirectory
		return &corev1.HostPathVolumeSource{Path: volume.Spec.Local.Path, Type: &directory}, nil
	default:
		return nil, fmt.Errorf("PV %s is of a kind that this node cannot mount", volume.Name)
	}
}
