// Package certs keeps the webhook server's certificates: it makes them, renews them, tells the API server which
// authority to trust, and changes that authority without one failed request. Nothing is mounted, nothing restarts.
//
// # What it promises
//
// One Secret holds the certificate authority (CA) and where its rotation stands. Every replica reads it and signs a
// short-lived certificate of its own, in memory, swapped in between two handshakes. Only the leader changes the CA, in
// steps that can each be repeated and that are resumed from the Secret alone:
//
//	steady   --- at 2/3 of the CA's life, or asked to ---> staged     a second CA is made; the bundle holds both
//	staged   --- bundle seen in the API for Hold --------> promoted   certificates are signed by the second CA
//	promoted --- no certificate of the first can live ---> steady     the first CA is dropped from the bundle
//
// So at every instant the certificate of every replica verifies under the bundle that the API server has. The Secret is
// created by whichever replica comes first: a lost race is seen by AlreadyExists or Conflict and ends in reading what the
// other one wrote. A deleted Secret is put back from memory; one that can not be read is made anew, by the leader alone.
//
// The bundle goes into caBundle of both webhook configurations, all entries in each write, by server-side apply under the
// field manager [FieldManager], only where the bytes differ, and only after our own certificate was verified under it.
// The configurations are watched and repaired. A replica that does not lead fills in an empty caBundle, so that a fresh
// installation gets ready before a leader is elected; it never replaces one.
//
// [Keeper.Ready] reports ready when a TLS handshake with ourselves succeeds under the live caBundle and the Service's DNS
// name: what the API server will do.
//
// [ModeFiles] takes a mounted certificate instead, for instance of cert-manager with its cainjector.
//
// # What it does not model
//
// No intermediate authorities, no revocation. The CA's key is readable for each replica, and for all who may read Secrets
// in the operator's namespace: they can pose as the webhook.
//
// # Decisions
//
// 2026-12-01: the first CA is dropped when the last certificate that it may have signed has ended, not after a fixed
// hold: a replica that was cut off for hours still serves with a trusted certificate when it is back.
//
// 2026-12-01: time is compared by the wall clock, once a minute at least. The monotonic clock stands still while a
// machine sleeps.
package certs
