package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// refreshPeriod is how often volumes from the API are compared with their source.
const refreshPeriod = 30 * time.Second

// volume is a volume of a pod that is ready to be mounted.
type volume struct {
	path     string
	readOnly bool
}

// setUpVolumes makes all volumes of a pod ready. On an error nothing needs to be undone: it is called again until it
// succeeds, and what it has made is removed with the pod.
func (n *Node) setUpVolumes(ctx context.Context, pod *corev1.Pod, tokens *tokenCache) (map[string]volume, error) {
	volumes := make(map[string]volume, len(pod.Spec.Volumes))
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		ready, err := n.setUpVolume(ctx, pod, v, tokens)
		if err != nil {
			errs = append(errs, mountError(v, err))
			continue
		}
		volumes[v.Name] = ready
	}
	return volumes, errors.Join(errs...)
}

// mountError words a failure as the kubelet does in its events.
func mountError(v *corev1.Volume, err error) error {
	if isClaim(v) {
		return fmt.Errorf("Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%s]: %w", v.Name, v.Name, err) //nolint:staticcheck // the kubelet's own words
	}
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
}

func isClaim(v *corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
}

func (n *Node) setUpVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, tokens *tokenCache) (volume, error) {
	own := filepath.Join(n.podDir(pod), "volumes", v.Name)
	switch {
	case isClaim(v):
		path, err := n.claimedPath(ctx, pod, v)
		if err != nil {
			return volume{}, err
		}
		readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
		return volume{path: path, readOnly: readOnly}, n.prepareDir(path, pod, 0o755)
	case v.HostPath != nil:
		return volume{path: v.HostPath.Path}, checkHostPath(v.HostPath)
	case v.EmptyDir != nil, v.VolumeSource == corev1.VolumeSource{}:
		return volume{path: own}, n.prepareDir(own, pod, 0o777)
	default:
		if err := os.MkdirAll(own, 0o755); err != nil {
			return volume{}, fmt.Errorf("create volume: %w", err)
		}
		return volume{path: own, readOnly: true}, n.fillVolume(ctx, pod, v, own, tokens)
	}
}

// fillVolume writes the content that a volume has by the API right now, if it differs from what is there.
func (n *Node) fillVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, dir string, tokens *tokenCache) error {
	files, err := n.volumeContent(ctx, pod, v, tokens)
	if err != nil {
		return err
	}
	if same(dir, files) {
		return nil
	}
	return writeAtomically(dir, files, n.fsGroup(pod))
}

// refreshVolumes brings the volumes of a pod that come from the API up to date. A source that is gone or cannot be read
// leaves the volume as it is, as with the kubelet.
func (n *Node) refreshVolumes(ctx context.Context, pod *corev1.Pod, tokens *tokenCache) error {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.DownwardAPI == nil {
			continue
		}
		if err := n.fillVolume(ctx, pod, v, filepath.Join(n.podDir(pod), "volumes", v.Name), tokens); err != nil {
			errs = append(errs, mountError(v, err))
		}
	}
	return errors.Join(errs...)
}

// same tells whether a directory has exactly the wanted content.
func same(dir string, files map[string]fileContent) bool {
	found := 0
	root := filepath.Join(dir, dataLink)
	target, err := filepath.EvalSymlinks(root)
	if err != nil {
		return false
	}
	err = filepath.WalkDir(target, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found++
		name, err := filepath.Rel(target, path)
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		if wanted, ok := files[name]; err != nil || !ok || string(raw) != string(wanted.data) {
			return errors.Join(err, errDifferent)
		}
		return nil
	})
	return err == nil && found == len(files)
}

var errDifferent = errors.New("content differs")

// fsGroup is the group that owns the volumes of a pod; nil if none is asked for or the user namespace knows it not.
func (n *Node) fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.FSGroup == nil || !n.gids.has(*pod.Spec.SecurityContext.FSGroup) {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// prepareDir creates the directory of a writable volume and hands it over to the pod's group. If the group owns the
// directory already, so it does what is in it.
func (n *Node) prepareDir(path string, pod *corev1.Pod, mode os.FileMode) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("create volume: %w", err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("open volume: %w", err)
		}
	}
	gid := n.fsGroup(pod)
	if gid == nil {
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Errorf("stat volume: %w", err)
	}
	if int64(stat.Gid) == *gid && stat.Mode&unix.S_ISGID != 0 {
		return nil
	}
	return giveToGroup(path, int(*gid))
}

// giveToGroup changes the group of all that is in a directory and lets the group write.
func giveToGroup(root string, gid int) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, gid); err != nil {
			return err
		}
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.Chmod(path, info.Mode().Perm()|0o770|os.ModeSetgid)
		case info.Mode().IsRegular():
			return os.Chmod(path, info.Mode().Perm()|0o660)
		default:
			return nil
		}
	})
	if err != nil {
		return fmt.Errorf("give volume to group %d: %w", gid, err)
	}
	return nil
}

// checkHostPath checks a path of the machine by its type, or creates it where the type says so.
func checkHostPath(source *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return createHostPath(source.Path, kind)
	}
	if err != nil {
		return fmt.Errorf("stat host path: %w", err)
	}
	if mode, ok := hostPathModes[kind]; ok && info.Mode().Type() != mode {
		return fmt.Errorf("hostPath type check failed: %s is not of type %s", source.Path, kind)
	}
	return nil
}

// hostPathModes are the types of file that the types of host paths ask for; the unset type asks for none.
var hostPathModes = map[corev1.HostPathType]os.FileMode{
	corev1.HostPathDirectory:         os.ModeDir,
	corev1.HostPathDirectoryOrCreate: os.ModeDir,
	corev1.HostPathFile:              0,
	corev1.HostPathFileOrCreate:      0,
	corev1.HostPathSocket:            os.ModeSocket,
	corev1.HostPathCharDev:           os.ModeDevice | os.ModeCharDevice,
	corev1.HostPathBlockDev:          os.ModeDevice,
}

func createHostPath(path string, kind corev1.HostPathType) error {
	switch kind {
	case corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("create host path: %w", err)
		}
		return nil
	case corev1.HostPathFileOrCreate:
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("create host path: %w", err)
		}
		return file.Close()
	case corev1.HostPathDirectory, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev:
	}
	return fmt.Errorf("hostPath type check failed: %s does not exist", path)
}

// volumeMounts are the mounts of a container's volumes.
func volumeMounts(container *corev1.Container, volumes map[string]volume, variables map[string]string) ([]mount, error) {
	mounts := make([]mount, 0, len(container.VolumeMounts))
	for _, m := range container.VolumeMounts {
		v, ok := volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("volume %q of mount %s does not exist", m.Name, m.MountPath)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, variables)
		}
		source, err := subPath(v, sub)
		if err != nil {
			return nil, err
		}
		target := m.MountPath
		if !filepath.IsAbs(target) {
			target = "/" + target
		}
		mounts = append(mounts, mount{Kind: mountBind, Source: source, Target: filepath.Clean(target), ReadOnly: m.ReadOnly || v.readOnly})
	}
	return mounts, nil
}

// subPath is a path in a volume; a directory is created where there is nothing.
func subPath(v volume, sub string) (string, error) {
	if sub == "" {
		return v.path, nil
	}
	if !filepath.IsLocal(sub) {
		return "", fmt.Errorf("subPath %q leaves the volume", sub)
	}
	path := filepath.Join(v.path, sub)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("create subPath %q: %w", sub, err)
		}
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("resolve subPath %q: %w", sub, err)
	}
	root, err := filepath.EvalSymlinks(v.path)
	if err != nil {
		return "", fmt.Errorf("resolve volume: %w", err)
	}
	if resolved != root && !strings.HasPrefix(resolved, root+"/") {
		return "", fmt.Errorf("subPath %q leaves the volume", sub)
	}
	return resolved, nil
}
