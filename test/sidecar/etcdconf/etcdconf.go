// Package etcdconf reads the etcd configuration that druid mounts into the sidecar and turns it into the
// configuration of one member.
//
// druid writes one file for all members: the advertised URLs are maps from member to URLs and the name is a
// placeholder. The sidecar picks its own member out of it.
package etcdconf

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"sigs.k8s.io/yaml"
)

// The two values of initial-cluster-state.
const (
	StateNew      = "new"
	StateExisting = "existing"
)

// File is one parsed configuration file.
type File struct {
	raw              map[string]any
	MemberNamePrefix string              `json:"member-name-prefix"`
	InitialCluster   string              `json:"initial-cluster"`
	PeerURLs         map[string][]string `json:"initial-advertise-peer-urls"`
	ClientURLs       map[string][]string `json:"advertise-client-urls"`
}

// Read parses the file at path.
func Read(path string) (File, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the path is where the pod mounts its configuration
	if err != nil {
		return File{}, fmt.Errorf("read etcd configuration: %w", err)
	}
	f, err := Parse(data)
	if err != nil {
		return File{}, fmt.Errorf("read etcd configuration %s: %w", path, err)
	}
	return f, nil
}

// Parse parses the text of a file.
func Parse(data []byte) (File, error) {
	f := File{}
	if err := yaml.Unmarshal(data, &f); err != nil {
		return File{}, fmt.Errorf("parse: %w", err)
	}
	if err := yaml.Unmarshal(data, &f.raw); err != nil {
		return File{}, fmt.Errorf("parse: %w", err)
	}
	return f, nil
}

// Member returns the name of the member that runs in pod.
func (f File) Member(pod string) string {
	if f.MemberNamePrefix == "" {
		return pod
	}
	return f.MemberNamePrefix + "-" + pod
}

// Size returns the number of members in initial-cluster.
func (f File) Size() (int, error) {
	urls, err := types.NewURLsMap(f.InitialCluster)
	if err != nil {
		return 0, fmt.Errorf("parse initial-cluster %q: %w", f.InitialCluster, err)
	}
	return len(urls), nil
}

// MemberPeerURLs returns the peer URLs that member advertises.
func (f File) MemberPeerURLs(member string) ([]string, error) {
	return urlsOf(f.PeerURLs, member, "peer")
}

// MemberClientURLs returns the client URLs that member advertises.
func (f File) MemberClientURLs(member string) ([]string, error) {
	return urlsOf(f.ClientURLs, member, "client")
}

func urlsOf(all map[string][]string, member, kind string) ([]string, error) {
	urls := all[member]
	if len(urls) == 0 {
		return nil, fmt.Errorf("no %s URLs of member %s", kind, member)
	}
	for _, text := range urls {
		if _, err := url.Parse(text); err != nil {
			return nil, fmt.Errorf("parse %s URL of member %s: %w", kind, member, err)
		}
	}
	return urls, nil
}

// PeerTLS reports whether all of the member's peer URLs use TLS.
func (f File) PeerTLS(member string) (bool, error) {
	urls, err := f.MemberPeerURLs(member)
	if err != nil {
		return false, err
	}
	for _, text := range urls {
		if !strings.HasPrefix(text, "https://") {
			return false, nil
		}
	}
	return true, nil
}

// Restricted returns initial-cluster reduced to the given members, in its own order.
// etcd refuses to join a cluster whose member count differs from initial-cluster.
func (f File) Restricted(members map[string]bool) string {
	var kept []string
	for entry := range strings.SplitSeq(f.InitialCluster, ",") {
		name, _, _ := strings.Cut(entry, "=")
		if members[name] {
			kept = append(kept, entry)
		}
	}
	return strings.Join(kept, ",")
}

// Render returns the configuration of one member in etcd's own format.
func (f File) Render(member, initialCluster, state string) ([]byte, error) {
	peers, err := f.MemberPeerURLs(member)
	if err != nil {
		return nil, err
	}
	clients, err := f.MemberClientURLs(member)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(f.raw)
	out["name"] = member
	out["initial-advertise-peer-urls"] = strings.Join(peers, ",")
	out["advertise-client-urls"] = strings.Join(clients, ",")
	out["initial-cluster"] = initialCluster
	out["initial-cluster-state"] = state
	data, err := yaml.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("render etcd configuration of %s: %w", member, err)
	}
	return data, nil
}
