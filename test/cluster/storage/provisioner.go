package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisioner makes and removes the directories of volumes.
type provisioner struct {
	client kubernetes.Interface
	dir    string
}

var _ controller.Provisioner = (*provisioner)(nil)

// Provision makes the directory of a volume and returns the volume.
func (p *provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	class := options.StorageClass
	zone, state, err := p.prepare(ctx, options)
	if err != nil {
		return nil, state, fmt.Errorf("failed to provision volume with StorageClass %q: %w", class.Name, err)
	}
	path := p.path(options.PVName)
	if err := makeDirectory(path); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return volume(options, path, zone), controller.ProvisioningFinished, nil
}

// prepare decides whether and where there will be a volume. The words are
// those of the external provisioner, whose events people know.
func (p *provisioner) prepare(ctx context.Context, options controller.ProvisionOptions) (zone string, _ controller.ProvisioningState, _ error) {
	params, err := parse(options.StorageClass.Parameters)
	if err != nil {
		return "", controller.ProvisioningFinished, rpcError("InvalidArgument", err.Error())
	}
	if err := supported(options.PVC); err != nil {
		return "", controller.ProvisioningFinished, err
	}
	if err := wait(ctx, params.delay); err != nil {
		return "", controller.ProvisioningNoChange, err
	}
	if params.failure != "" {
		return "", controller.ProvisioningFinished, rpcError("Internal", params.failure)
	}
	if params.exceeds(options.PVC.Spec.Resources.Requests[corev1.ResourceStorage]) {
		return "", controller.ProvisioningReschedule, rpcError("ResourceExhausted", "out of capacity")
	}
	zone, err = p.zone(ctx, options)
	return zone, controller.ProvisioningFinished, err
}

// Delete removes the directory of a volume. The API has seen to it that no pod
// uses the claim: it would not have been gone otherwise.
func (p *provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	path := p.path(volume.Name)
	if volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != path {
		return fmt.Errorf("delete volume %s: it does not lead to its directory", volume.Name)
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("delete volume %s: %w", volume.Name, err)
	}
	return nil
}

func (p *provisioner) path(volume string) string {
	return filepath.Join(p.dir, volume)
}

// zone returns that of the selected node, or any where there is none.
func (p *provisioner) zone(ctx context.Context, options controller.ProvisionOptions) (string, error) {
	if options.SelectedNodeName == "" {
		return p.anyZone(ctx, options.StorageClass)
	}
	node, err := p.client.CoreV1().Nodes().Get(ctx, options.SelectedNodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("error getting topology of node %s: %w", options.SelectedNodeName, err)
	}
	zone := node.Labels[corev1.LabelTopologyZone]
	if zone == "" {
		return "", fmt.Errorf("node %s has no label %s", node.Name, corev1.LabelTopologyZone)
	}
	if !allows(options.StorageClass, zone) {
		return "", fmt.Errorf("selected node '%s' topology 'map[%s:%s]' is not in allowed topologies", node.Name, corev1.LabelTopologyZone, zone)
	}
	return zone, nil
}

func (p *provisioner) anyZone(ctx context.Context, class *storagev1.StorageClass) (string, error) {
	nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("error listing nodes: %w", err)
	}
	var zones []string
	for _, node := range nodes.Items {
		if zone := node.Labels[corev1.LabelTopologyZone]; zone != "" && allows(class, zone) {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones) // a zone with many nodes is not more likely than one with few
	zones = slices.Compact(zones)
	if len(zones) == 0 {
		return "", errors.New("no available topology found")
	}
	return zones[rand.IntN(len(zones))], nil //nolint:gosec // spreading volumes, not a secret
}

// allows reads allowedTopologies: terms are alternatives, the expressions of a
// term hold together. A key other than the zone cannot be satisfied here.
func allows(class *storagev1.StorageClass, zone string) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(term corev1.TopologySelectorTerm) bool {
		for _, expression := range term.MatchLabelExpressions {
			if expression.Key != corev1.LabelTopologyZone || !slices.Contains(expression.Values, zone) {
				return false
			}
		}
		return true
	})
}

func supported(claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.Selector != nil {
		return errors.New("claim Selector is not supported")
	}
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return errors.New("claim data source is not supported")
	}
	return nil
}

// makeDirectory is content with a directory that exists: provisioning may have
// been interrupted before the volume was recorded.
func makeDirectory(path string) error {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return fmt.Errorf("create volume directory: %w", err)
	}
	// Whatever user the pod runs as may write, and the umask must not take that away.
	if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // see above
		return fmt.Errorf("open volume directory to all users: %w", err)
	}
	return nil
}

func volume(options controller.ProvisionOptions, path, zone string) *corev1.PersistentVolume {
	claim, class := options.PVC, options.StorageClass
	inZone := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone},
	}}}
	reclaim := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			PersistentVolumeReclaimPolicy: reclaim,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				// A mount of a directory that is not there must fail, not begin an empty one.
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{inZone}}},
		},
	}
}

// rpcError has the form in which errors of a real driver arrive.
func rpcError(code, description string) error {
	return fmt.Errorf("rpc error: code = %s desc = %s", code, description)
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
