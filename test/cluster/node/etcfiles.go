package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// clusterDomain is the DNS domain of the cluster.
const clusterDomain = "cluster.local"

// hostname is the host name of a pod, at most 63 characters long.
func hostname(pod *corev1.Pod) string {
	name := pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

// fullHostname is the name under which DNS knows a pod with a subdomain; without one it is the host name.
func fullHostname(pod *corev1.Pod) string {
	if pod.Spec.Subdomain == "" {
		return hostname(pod)
	}
	return strings.Join([]string{hostname(pod), pod.Spec.Subdomain, pod.Namespace, "svc", clusterDomain}, ".")
}

// hostsFile is the /etc/hosts of a pod.
func hostsFile(pod *corev1.Pod, ip string) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	b.WriteString("fe00::\tip6-localnet\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	if full := fullHostname(pod); full != hostname(pod) {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", ip, full, hostname(pod))
	} else {
		fmt.Fprintf(&b, "%s\t%s\n", ip, hostname(pod))
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.String()
}

// resolver is the content of a resolv.conf.
type resolver struct {
	nameservers, searches, options []string
}

// parseResolver reads a resolv.conf.
func parseResolver(text string) resolver {
	var r resolver
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			r.nameservers = append(r.nameservers, fields[1])
		case "search":
			r.searches = fields[1:]
		case "options":
			r.options = append(r.options, fields[1:]...)
		}
	}
	return r
}

func (r resolver) String() string {
	var b strings.Builder
	if len(r.searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(r.searches, " "))
	}
	for _, server := range r.nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(r.options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(r.options, " "))
	}
	return b.String()
}

// podResolver is the resolv.conf of a pod by its DNS policy; host is that of the machine.
func podResolver(pod *corev1.Pod, dns string, host resolver) resolver {
	var r resolver
	switch policy := pod.Spec.DNSPolicy; {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSDefault, policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork:
		r = host
	default:
		services := "svc." + clusterDomain
		r = resolver{
			nameservers: []string{dns},
			searches:    []string{pod.Namespace + "." + services, services, clusterDomain},
			options:     []string{"ndots:5"},
		}
	}
	if pod.Spec.DNSConfig == nil {
		return r
	}
	return r.with(pod.Spec.DNSConfig)
}

// with adds the DNS configuration of a pod. An option given there replaces the one of the same name.
func (r resolver) with(config *corev1.PodDNSConfig) resolver {
	options := slices.Clone(r.options)
	for _, option := range config.Options {
		options = slices.DeleteFunc(options, func(o string) bool { return strings.SplitN(o, ":", 2)[0] == option.Name })
		text := option.Name
		if option.Value != nil {
			text += ":" + *option.Value
		}
		options = append(options, text)
	}
	return resolver{
		nameservers: unique(slices.Concat(r.nameservers, config.Nameservers)),
		searches:    unique(slices.Concat(r.searches, config.Searches)),
		options:     options,
	}
}

// unique drops repetitions and keeps the order.
func unique(values []string) []string {
	var kept []string
	for _, value := range values {
		if !slices.Contains(kept, value) {
			kept = append(kept, value)
		}
	}
	return kept
}

// writeEtc writes the files that every container of a pod finds in /etc, and returns their mounts.
func (n *Node) writeEtc(pod *corev1.Pod, ip string) ([]mount, error) {
	dir := filepath.Join(n.podDir(pod), "etc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create etc: %w", err)
	}
	host := ""
	if raw, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		host = string(raw)
	}
	name := hostname(pod)
	if pod.Spec.HostNetwork {
		name = n.config.Name
	}
	files := []struct{ name, content string }{
		{"hosts", hostsFile(pod, ip)},
		{"hostname", name + "\n"},
		{"resolv.conf", podResolver(pod, n.config.DNS, parseResolver(host)).String()},
		{"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
		{"passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nnonroot:x:65532:65532:nonroot:/:/bin/false\n"},
		{"group", "root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"},
	}
	mounts := make([]mount, 0, len(files))
	for _, file := range files {
		path := filepath.Join(dir, file.name)
		if err := os.WriteFile(path, []byte(file.content), 0o644); err != nil {
			return nil, fmt.Errorf("write etc: %w", err)
		}
		mounts = append(mounts, mount{Kind: mountBind, Source: path, Target: "/etc/" + file.name})
	}
	return mounts, nil
}
