package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultPath is the search path of a container that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// expand replaces $(NAME) by the variable of that name. $$ stands for a dollar sign, and a reference to an unknown
// variable stays as it is.
func expand(text string, variables map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		switch text[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			name, _, closed := strings.Cut(text[i+2:], ")")
			if !closed {
				b.WriteByte('$')
				continue
			}
			value, known := variables[name]
			if !known {
				value = "$(" + name + ")"
			}
			b.WriteString(value)
			i += len(name) + 2
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

// expandAll expands each of the texts.
func expandAll(texts []string, variables map[string]string) []string {
	expanded := make([]string, 0, len(texts))
	for _, text := range texts {
		expanded = append(expanded, expand(text, variables))
	}
	return expanded
}

// environment resolves the variables of a container, in the order the kubelet does: those of services, then envFrom,
// then env, of which each may refer to the ones before.
func (n *Node) environment(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (map[string]string, error) {
	host, port, err := net.SplitHostPort(n.config.APIServer)
	if err != nil {
		return nil, fmt.Errorf("parse address of API server: %w", err)
	}
	services := map[string]string{
		"KUBERNETES_SERVICE_HOST":       host,
		"KUBERNETES_SERVICE_PORT":       port,
		"KUBERNETES_SERVICE_PORT_HTTPS": port,
	}
	variables := map[string]string{}
	for _, source := range container.EnvFrom {
		values, err := n.envFrom(ctx, pod.Namespace, source)
		if err != nil {
			return nil, err
		}
		for name, value := range values {
			variables[source.Prefix+name] = value
		}
	}
	for _, variable := range container.Env {
		value, found, err := n.envValue(ctx, pod, container, variable, overlay(services, variables))
		if err != nil {
			return nil, err
		}
		if found {
			variables[variable.Name] = value
		}
	}
	return overlay(services, variables), nil
}

// overlay returns both maps in one; the second prevails.
func overlay(below, above map[string]string) map[string]string {
	both := maps.Clone(below)
	maps.Copy(both, above)
	return both
}

// processEnv is the environment a process starts with.
func processEnv(pod *corev1.Pod, uid int64, variables map[string]string) []string {
	home := "/"
	if uid == 0 {
		home = "/root"
	}
	all := overlay(map[string]string{"PATH": defaultPath, "HOME": home, "HOSTNAME": hostname(pod)}, variables)
	env := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

func (n *Node) envFrom(ctx context.Context, namespace string, source corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case source.ConfigMapRef != nil:
		object, err := n.client.CoreV1().ConfigMaps(namespace).Get(ctx, source.ConfigMapRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, unlessOptional(err, source.ConfigMapRef.Optional)
		}
		return object.Data, nil
	case source.SecretRef != nil:
		object, err := n.client.CoreV1().Secrets(namespace).Get(ctx, source.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, unlessOptional(err, source.SecretRef.Optional)
		}
		return texts(object.Data), nil
	default:
		return nil, nil
	}
}

// unlessOptional forgives that an object is missing if it may be.
func unlessOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

func texts(data map[string][]byte) map[string]string {
	converted := make(map[string]string, len(data))
	for key, value := range data {
		converted[key] = string(value)
	}
	return converted
}

// envValue resolves one variable; an optional one may not be found.
func (n *Node) envValue(ctx context.Context, pod *corev1.Pod, container *corev1.Container, variable corev1.EnvVar, known map[string]string) (value string, found bool, err error) {
	source := variable.ValueFrom
	switch {
	case source == nil:
		return expand(variable.Value, known), true, nil
	case source.FieldRef != nil:
		value, err = fieldValue(pod, source.FieldRef.FieldPath)
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err = resourceValue(pod, container, source.ResourceFieldRef)
		return value, true, err
	case source.ConfigMapKeyRef != nil:
		ref := source.ConfigMapKeyRef
		values, err := n.envFrom(ctx, pod.Namespace, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: ref.LocalObjectReference, Optional: ref.Optional,
		}})
		return keyOf("ConfigMap", pod.Namespace, ref.Name, ref.Key, ref.Optional, values, err)
	case source.SecretKeyRef != nil:
		ref := source.SecretKeyRef
		values, err := n.envFrom(ctx, pod.Namespace, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: ref.LocalObjectReference, Optional: ref.Optional,
		}})
		return keyOf("Secret", pod.Namespace, ref.Name, ref.Key, ref.Optional, values, err)
	default:
		return "", false, fmt.Errorf("variable %s has an unknown source", variable.Name)
	}
}

func keyOf(kind, namespace, name, key string, optional *bool, values map[string]string, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, found := values[key]
	if !found && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, namespace, name)
	}
	return value, found, nil
}

// podMaps are the fields of a pod that the downward API knows whole and by key.
var podMaps = map[string]func(*corev1.Pod) map[string]string{
	"metadata.labels":      func(p *corev1.Pod) map[string]string { return p.Labels },
	"metadata.annotations": func(p *corev1.Pod) map[string]string { return p.Annotations },
}

// podFields are the other ones that it knows.
var podFields = map[string]func(*corev1.Pod) string{
	"metadata.name":           func(p *corev1.Pod) string { return p.Name },
	"metadata.namespace":      func(p *corev1.Pod) string { return p.Namespace },
	"metadata.uid":            func(p *corev1.Pod) string { return string(p.UID) },
	"spec.nodeName":           func(p *corev1.Pod) string { return p.Spec.NodeName },
	"spec.serviceAccountName": func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
	"status.podIP":            func(p *corev1.Pod) string { return p.Status.PodIP },
	"status.podIPs":           func(p *corev1.Pod) string { return p.Status.PodIP },
	"status.hostIP":           func(p *corev1.Pod) string { return p.Status.HostIP },
	"status.hostIPs":          func(p *corev1.Pod) string { return p.Status.HostIP },
}

// fieldValue resolves a field of a pod as the downward API knows it.
func fieldValue(pod *corev1.Pod, path string) (string, error) {
	if field, key, ok := subscript(path); ok && podMaps[field] != nil {
		return podMaps[field](pod)[key], nil
	}
	if values := podMaps[path]; values != nil {
		return quotedLines(values(pod)), nil
	}
	if value := podFields[path]; value != nil {
		return value(pod), nil
	}
	return "", fmt.Errorf("unsupported field path %q", path)
}

// subscript takes metadata.labels['key'] apart.
func subscript(path string) (field, key string, ok bool) {
	field, rest, found := strings.Cut(path, "['")
	if !found || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return field, strings.TrimSuffix(rest, "']"), true
}

func quotedLines(values map[string]string) string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(key + "=" + strconv.Quote(values[key]))
	}
	return b.String()
}

// resourceValue resolves a resource of a container; where no limit is set, the node is the limit.
func resourceValue(pod *corev1.Pod, container *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != container.Name {
		other := containerNamed(pod, ref.ContainerName)
		if other == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		container = other
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := container.Resources.Limits
	if kind == "requests" {
		list = container.Resources.Requests
	}
	quantity, set := list[corev1.ResourceName(name)]
	if !set && kind == "limits" {
		quantity, set = capacity()[corev1.ResourceName(name)]
	}
	if !set {
		quantity = resource.Quantity{}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return strconv.FormatInt(divideUp(quantity.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(divideUp(quantity.Value(), divisor.Value()), 10), nil
}

func divideUp(value, divisor int64) int64 {
	return (value + divisor - 1) / divisor
}

// containerNamed finds a container of a pod; nil if there is none.
func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
