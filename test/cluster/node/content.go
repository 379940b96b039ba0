package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultFileMode is the mode of files in volumes that set none.
const defaultFileMode int32 = 0o644

// volumeContent is what a volume that is filled from the API holds right now.
func (n *Node) volumeContent(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, tokens *tokenCache) (map[string]fileContent, error) {
	switch {
	case v.ConfigMap != nil:
		return n.configMapContent(ctx, pod.Namespace, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.Secret != nil:
		return n.secretContent(ctx, pod.Namespace, v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return n.downwardContent(pod, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		return n.projectedContent(ctx, pod, v.Projected, tokens)
	default:
		return nil, fmt.Errorf("volume %s is of a kind that this node does not know", v.Name)
	}
}

func (n *Node) configMapContent(ctx context.Context, namespace, name string, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]fileContent, error) {
	object, err := n.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	for key, value := range object.BinaryData {
		data[key] = value
	}
	return keyFiles(data, items, mode, optional)
}

func (n *Node) secretContent(ctx context.Context, namespace, name string, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]fileContent, error) {
	object, err := n.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	return keyFiles(object.Data, items, mode, optional)
}

// keyFiles are the files of a config map or secret: one for each key, or those that items ask for.
func keyFiles(data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]fileContent, error) {
	files := map[string]fileContent{}
	if len(items) == 0 {
		for key, value := range data {
			files[key] = fileContent{data: value, mode: fileMode(mode, nil)}
		}
		return files, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && optional != nil && *optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		if !filepath.IsLocal(item.Path) {
			return nil, fmt.Errorf("path %q of key %s leaves the volume", item.Path, item.Key)
		}
		files[filepath.Clean(item.Path)] = fileContent{data: value, mode: fileMode(mode, item.Mode)}
	}
	return files, nil
}

// fileMode is the mode of a file, else that of its volume, else the default.
func fileMode(ofVolume, ofFile *int32) os.FileMode {
	mode := defaultFileMode
	if ofVolume != nil {
		mode = *ofVolume
	}
	if ofFile != nil {
		mode = *ofFile
	}
	return os.FileMode(mode).Perm()
}

func (n *Node) downwardContent(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32) (map[string]fileContent, error) {
	files := map[string]fileContent{}
	for _, item := range items {
		value, err := downwardValue(pod, item)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", item.Path, err)
		}
		files[filepath.Clean(item.Path)] = fileContent{data: []byte(value), mode: fileMode(mode, item.Mode)}
	}
	return files, nil
}

func downwardValue(pod *corev1.Pod, item corev1.DownwardAPIVolumeFile) (string, error) {
	if item.FieldRef != nil {
		return fieldValue(pod, item.FieldRef.FieldPath)
	}
	if item.ResourceFieldRef == nil {
		return "", fmt.Errorf("no source given")
	}
	container := containerNamed(pod, item.ResourceFieldRef.ContainerName)
	if container == nil {
		return "", fmt.Errorf("container %s not found", item.ResourceFieldRef.ContainerName)
	}
	return resourceValue(pod, container, item.ResourceFieldRef)
}

func (n *Node) projectedContent(ctx context.Context, pod *corev1.Pod, source *corev1.ProjectedVolumeSource, tokens *tokenCache) (map[string]fileContent, error) {
	files := map[string]fileContent{}
	for _, s := range source.Sources {
		part, err := n.projectionContent(ctx, pod, s, source.DefaultMode, tokens)
		if err != nil {
			return nil, err
		}
		for path, file := range part {
			files[path] = file
		}
	}
	return files, nil
}

func (n *Node) projectionContent(ctx context.Context, pod *corev1.Pod, s corev1.VolumeProjection, mode *int32, tokens *tokenCache) (map[string]fileContent, error) {
	switch {
	case s.ServiceAccountToken != nil:
		token, err := tokens.get(ctx, n, pod, s.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		return map[string]fileContent{filepath.Clean(s.ServiceAccountToken.Path): {data: []byte(token), mode: fileMode(mode, nil)}}, nil
	case s.ConfigMap != nil:
		return n.configMapContent(ctx, pod.Namespace, s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
	case s.Secret != nil:
		return n.secretContent(ctx, pod.Namespace, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return n.downwardContent(pod, s.DownwardAPI.Items, mode)
	default:
		return nil, fmt.Errorf("projected source is of a kind that this node does not know")
	}
}

// tokenCache holds the service account tokens of one pod. Its volumes are set up and refreshed by different goroutines.
type tokenCache struct {
	mu     sync.Mutex
	tokens map[tokenKey]issuedToken
}

type tokenKey struct {
	audience string
	seconds  int64
}

type issuedToken struct {
	token           string
	issued, expires time.Time
}

// due tells whether a token is to be replaced: after four fifths of its life, or a day.
func (t issuedToken) due(now time.Time) bool {
	life := t.expires.Sub(t.issued)
	return now.Sub(t.issued) > min(life*4/5, 24*time.Hour)
}

func newTokenCache() *tokenCache {
	return &tokenCache{tokens: map[tokenKey]issuedToken{}}
}

// get returns a token that is good for a while, bound to the pod.
func (c *tokenCache) get(ctx context.Context, n *Node, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) (string, error) {
	seconds := int64(3600)
	if source.ExpirationSeconds != nil {
		seconds = *source.ExpirationSeconds
	}
	key := tokenKey{audience: source.Audience, seconds: seconds}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if cached, ok := c.tokens[key]; ok && !cached.due(now) {
		return cached.token, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	response, err := n.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	c.tokens[key] = issuedToken{token: response.Status.Token, issued: now, expires: response.Status.ExpirationTimestamp.Time}
	return response.Status.Token, nil
}
