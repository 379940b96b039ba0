// Package members talks to the etcd processes of one Etcd: it asks each for its health, and moves leadership.
//
// Every member is asked at its own address, so that an answer is that member's own and not that of whoever the client
// Service leads to. TLS is as the Etcd's spec.etcd.clientUrlTls says; the Secrets are read by name in every call, so that
// a rotation needs nothing. A member that does not answer in time is reported as such and is no error.
//
// # Decisions
//
// 2026-12-01: alarms are taken from the Status answers. The Alarm call of etcd goes through raft even when it only lists,
// and an observer should not write into the log of what it observes.
//
// 2026-12-01: connections live for one call. A pass makes three of them in some milliseconds; a pool would have to be kept right
// across restarts, new addresses and rotated certificates.
package members
