package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
)

// passOn sends a request to the sidecar of the etcd leader.
func (s *Server) passOn(w http.ResponseWriter, req *http.Request) {
	client, err := s.httpClient()
	if err != nil {
		s.refuse(w, http.StatusMethodNotAllowed, err)
		return
	}
	target, err := s.leaderSidecar(req.Context())
	if err != nil {
		s.refuse(w, http.StatusMethodNotAllowed, err)
		return
	}
	if err := healthyAt(req.Context(), client, target); err != nil {
		s.refuse(w, http.StatusMethodNotAllowed, err)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = client.Transport
	proxy.ServeHTTP(w, req)
}

// leaderSidecar returns where the leader's sidecar listens: beside the leader, under the
// scheme of its client URL and the port of this sidecar.
func (s *Server) leaderSidecar(ctx context.Context) (*url.URL, error) {
	status, err := s.status(ctx, s.config.Conn.Timeout)
	if err != nil {
		return nil, err
	}
	if status.Leader == 0 {
		return nil, errNoLeader
	}
	client, err := s.config.Conn.Local()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	for _, m := range list.Members {
		if m.ID != status.Leader || len(m.ClientURLs) == 0 {
			continue
		}
		etcd, err := url.Parse(m.ClientURLs[0])
		if err != nil {
			return nil, fmt.Errorf("parse client URL of the leader: %w", err)
		}
		return &url.URL{Scheme: etcd.Scheme, Host: net.JoinHostPort(etcd.Hostname(), strconv.Itoa(s.config.Port))}, nil
	}
	return nil, errors.New("leader has no client URL")
}

func healthyAt(ctx context.Context, client *http.Client, sidecar *url.URL) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, sidecar.JoinPath("healthz").String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("look after leading sidecar: %w", err)
	}
	defer resp.Body.Close()
	var h health
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		return fmt.Errorf("look after leading sidecar: %w", err)
	}
	if !h.Health {
		return errors.New("leading sidecar is not healthy")
	}
	return nil
}

// httpClient reaches other sidecars and etcd-wrapper. Like the real sidecar it trusts etcd's CA for both.
func (s *Server) httpClient() (*http.Client, error) {
	if !s.tls() {
		return &http.Client{Transport: http.DefaultTransport}, nil
	}
	pem, err := os.ReadFile(s.config.Conn.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}, nil
}
