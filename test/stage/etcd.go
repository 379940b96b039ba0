package stage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Etcd says what CreateEtcd makes.
type Etcd struct {
	Namespace, Name string
	Members         int    // 0 = 3
	Class           string // "" = slow
	Capacity        string // "" = 1Gi
	Backup          bool   // snapshots into a directory of the cluster
}

var etcdManifest = template.Must(template.New("etcd").Parse(`apiVersion: v1
kind: Namespace
metadata:
  name: {{.Namespace}}
{{- if .Backup}}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{.Name}}-backup
  namespace: {{.Namespace}}
stringData:
  hostPath: {{.Dir}}
{{- end}}
---
apiVersion: druid.gardener.cloud/v1alpha1
kind: Etcd
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
spec:
  replicas: {{.Members}}
  labels:
    app: {{.Name}}
  selector:
    matchLabels:
      app: {{.Name}}
  storageClass: {{.Class}}
  storageCapacity: {{.Capacity}}
  etcd:
    quota: 512Mi
    resources:
      requests:
        cpu: 500m
        memory: 256Mi
  backup:
{{- if .Backup}}
    fullSnapshotSchedule: "0 0 * * *"
    deltaSnapshotPeriod: 10s
    store:
      provider: Local
      container: backups
      prefix: {{.Namespace}}--{{.Name}}
      secretRef:
        name: {{.Name}}-backup
{{- else}} {}
{{- end}}
`))

// Manifest is the Etcd as a user would write it.
func (s *Stage) Manifest(e Etcd) string {
	if e.Members == 0 {
		e.Members = 3
	}
	if e.Class == "" {
		e.Class = "slow"
	}
	if e.Capacity == "" {
		e.Capacity = "1Gi"
	}
	var b strings.Builder
	data := struct {
		Etcd
		Dir string
	}{e, filepath.Join(s.Dir, "backups")}
	if err := etcdManifest.Execute(&b, data); err != nil {
		panic(fmt.Sprintf("render an Etcd: %v", err))
	}
	return b.String()
}

// CreateEtcd makes an Etcd and waits until all its members are ready.
func (s *Stage) CreateEtcd(ctx context.Context, e Etcd) error {
	if err := s.Apply(ctx, s.Manifest(e)); err != nil {
		return fmt.Errorf("create Etcd %s/%s: %w", e.Namespace, e.Name, err)
	}
	members := e.Members
	if members == 0 {
		members = 3
	}
	return s.MembersReady(ctx, e.Namespace, e.Name, members)
}

// MembersReady waits until so many pods of the Etcd are ready.
func (s *Stage) MembersReady(ctx context.Context, namespace, name string, members int) error {
	return s.until(ctx, &corev1.PodList{}, namespace, func() (bool, error) {
		pods, err := s.Pods(ctx, namespace, name)
		count := 0
		for i := range pods {
			if ready(&pods[i]) && pods[i].DeletionTimestamp == nil {
				count++
			}
		}
		return count == members, err
	})
}

// Pods of an Etcd's members.
func (s *Stage) Pods(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{volume.PartOfLabel: name, volume.ManagedByLabel: volume.ManagedByDruid})
	return pods.Items, err
}

// Claims of an Etcd's members.
func (s *Stage) Claims(ctx context.Context, namespace, name string) ([]corev1.PersistentVolumeClaim, error) {
	var claims corev1.PersistentVolumeClaimList
	err := s.Client.List(ctx, &claims, client.InNamespace(namespace), client.MatchingLabels{volume.PartOfLabel: name})
	return claims.Items, err
}

// Retained volumes of an Etcd.
func (s *Stage) Retained(ctx context.Context, namespace, name string) ([]corev1.PersistentVolume, error) {
	var volumes corev1.PersistentVolumeList
	err := s.Client.List(ctx, &volumes, client.MatchingLabels{volume.EtcdLabel: name, volume.EtcdNamespaceLabel: namespace})
	return volumes.Items, err
}

// Rollout returns the rollout of a volume generation; an error that IsNotFound where there is none.
func (s *Stage) Rollout(ctx context.Context, namespace, name string, generation int) (*v1alpha1.VolumeRollout, error) {
	var r v1alpha1.VolumeRollout
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("%s-v%d", name, generation)}, &r)
	return &r, err
}

// WaitRollout waits until the rollout satisfies the condition.
func (s *Stage) WaitRollout(ctx context.Context, namespace, name string, generation int, done func(*v1alpha1.VolumeRollout) bool) (*v1alpha1.VolumeRollout, error) {
	var last *v1alpha1.VolumeRollout
	err := s.until(ctx, &v1alpha1.VolumeRolloutList{}, namespace, func() (bool, error) {
		r, err := s.Rollout(ctx, namespace, name, generation)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		last = r
		return done(r), nil
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w; rollout %s is %s (%s): %s", err, last.Name, last.Status.Phase, last.Status.Reason, last.Status.Message)
	}
	return last, err
}

// InPhase is a condition for WaitRollout.
func InPhase(phases ...v1alpha1.Phase) func(*v1alpha1.VolumeRollout) bool {
	return func(r *v1alpha1.VolumeRollout) bool {
		for _, p := range phases {
			if r.Status.Phase == p {
				return true
			}
		}
		return false
	}
}

// Etcd reads the Etcd.
func (s *Stage) Etcd(ctx context.Context, namespace, name string) (*volume.Etcd, error) {
	var e volume.Etcd
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &e)
	return &e, err
}

// until asks done now and after every change of an object of the list's kind in the namespace.
func (s *Stage) until(ctx context.Context, list client.ObjectList, namespace string, done func() (bool, error)) error {
	for {
		again, err := s.watchOnce(ctx, list, namespace, done)
		if !again {
			return err
		}
	}
}

// watchOnce returns true where the watch ended (an API server that restarts ends it) and must be begun again.
func (s *Stage) watchOnce(ctx context.Context, list client.ObjectList, namespace string, done func() (bool, error)) (again bool, err error) {
	w, err := s.Client.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{}})
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	for {
		ok, err := done()
		if err != nil || ok {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case _, open := <-w.ResultChan():
			if !open {
				return ctx.Err() == nil, ctx.Err()
			}
		}
	}
}
