// Package server is the stand-in for the sidecar container backup-restore, command "server".
//
// It serves the endpoints that etcd-wrapper, druid and people use:
//
//	/initialization/start?mode=full|sanity   begins to prepare the data directory, once
//	/initialization/status   New, Progress, Successful, Failed; reading the last two sets New again
//	/config                  the etcd configuration of this pod's member
//	/healthz                 200 while this sidecar leads (or there is no store), else 503
//	/snapshot/full[?final=true], /snapshot/delta, /snapshot/latest
//	/metrics
//
// The sidecar of the etcd leader takes the snapshots; the others pass requests for snapshots on to it, under the host of
// the leader's first client URL. Without a store, or without a leader that is healthy, they answer 405.
//
// Once its etcd runs, a sidecar corrects the member's peer URLs (a restored member has those of the snapshot library) and
// has etcd-wrapper restart etcd, renews the member's lease every heartbeat, and looks every re-election period whether its
// member leads, follows, or is a learner to be promoted. A learner cannot answer the question for its peer
// URLs, so that its promotion begins about 14 s after its start.
package server
