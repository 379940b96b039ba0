// Package webhook is the door: it judges each request that touches the volumes of an Etcd, explains what it refuses, and marks what was
// confirmed.
//
//	AdmissionRequest -> decode -> change -> verdict -> explain -> Response
//
// Two webhooks, one set of rules. The mutating one runs first and never refuses: it notes who set a confirmation, stamps a confirmed
// change, holds etcd-druid for the time of the rollout, and keeps our annotations where a request drops them; nothing but annotations is
// touched. The validating one decides again from the stored object, the new one and the cluster, compares what is marked with what must
// be, and refuses or allows. So a mutating webhook that did not run, or another one that tampers, is noticed.
//
// What always passes: requests that neither change the volume spec in effect nor touch our annotations, changes of an Etcd of which nothing
// is live yet, and changes back to what is live everywhere.
//
// What is refused: everything that is not understood (subresources, other kinds, deletions, objects that can not be read), and everything
// whose facts can not be looked up in time. The handler's own deadline is shorter than the webhook's timeout, so that the refusal is ours.
//
// Neither webhook writes anything; a dry run is judged like any other request.
//
// # Decisions
//
// 2026-12-01: StatefulSets, storage classes and rollouts are read from informers where a request is only explained, claims and volumes through
// the manager's client. A request that carries a confirmation, or would pass, is judged by uncached reads alone. Pods and leases are always
// read uncached, by name: a cache of them would hold every pod and every node's heartbeat of the cluster for the sake of three.
//
// 2026-12-01: objects are decoded with regard to case, as the API server does. encoding/json would take an unknown field
// "StorageClass" for spec.storageClass, and so be told another change than the one that is stored.
//
// 2026-12-01: the door knows no exempt user, not even the operator: its own writes do not touch what is judged.
package webhook
