// Package backup asks the backup sidecars of one Etcd for snapshots, through its client Service; whoever answers passes the
// request on to the leader's sidecar. TLS is as the Etcd's spec.backup.tls says.
//
// The answer to a request is a hint only: that a snapshot was taken is proven by the lease that the sidecar renews.
package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/members"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

const (
	defaultPort = 8080
	// patience bounds one request. A snapshot that takes longer is proven by the lease all the same.
	patience = time.Minute
	// largestAnswer bounds what is read of an answer.
	largestAnswer = 64 << 10
)

// Client reaches the sidecars of any Etcd.
type Client struct {
	// Reader reads the Secrets; uncached.
	Reader client.Reader
	// Address is where the sidecars answer; nil means the Etcd's client Service, see Endpoint.
	Address func(etcd *volume.Etcd) string
}

// Full asks for a full snapshot and returns the revision that it contains, 0 if the sidecar does not say.
func (c Client) Full(ctx context.Context, etcd *volume.Etcd) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conf, err := members.TLS(ctx, c.Reader, etcd.Namespace, etcd.Spec.Backup.TLS)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}
	url := c.address(etcd) + "/snapshot/full"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask for a full snapshot: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or given up
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("ask for a full snapshot: %s answered %s", url, resp.Status)
	}
	var taken struct {
		LastRevision int64 `json:"lastRevision"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, largestAnswer)).Decode(&taken) != nil {
		return 0, nil
	}
	return taken.LastRevision, nil
}

func (c Client) address(etcd *volume.Etcd) string {
	if c.Address != nil {
		return c.Address(etcd)
	}
	return Endpoint(etcd)
}

// Endpoint is the address of the sidecars behind the client Service.
func Endpoint(etcd *volume.Etcd) string {
	port, scheme := defaultPort, "http"
	if etcd.Spec.Backup.Port != nil {
		port = int(*etcd.Spec.Backup.Port)
	}
	if etcd.Spec.Backup.TLS != nil {
		scheme = "https"
	}
	host := volume.ClientServiceName(etcd.Name) + "." + etcd.Namespace + ".svc"
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}
