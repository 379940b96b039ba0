// Package controller is the controller of the stand-in for etcd-druid: it makes the components of an Etcd, keeps its
// status, and takes the components away again.
//
// Modelled after etcd-druid v0.38.0-dev (July 2026). One pass, as there: deletion, or spec (if it is its turn), status
// (always), and at the very end observedGeneration and the operation annotation. What binds who works beside it:
//
//   - It watches Etcds only. A StatefulSet that somebody changes or removes is noticed when the spec is reconciled next.
//   - The spec is reconciled when the Etcd is new, when an operation annotation asks for it, or with automatic
//     reconciliation; never while it is suspended. A suspension is said in a warning event at each pass. The status is
//     kept in every case, at least once per sync period.
//   - The operation annotations are removed after a pass that succeeded, and stay pending while suspended. An update
//     event of an Etcd whose newest operation has not succeeded starts no pass, unless its generation changed. Without
//     an operation annotation and without automatic reconciliation no update starts a pass, not even a deletion: it is
//     seen at the next one, within a sync period.
//   - Components are synced in a fixed order with the StatefulSet last; the first that fails ends the pass. A changed
//     claim template makes the API server refuse the whole patch, so that nothing else of it is applied: lastOperation
//     is Error, lastErrors has ERR_SYNC_STATEFULSET with the server's own words, and it is tried again with back-off up
//     to the sync period, for ever.
//   - A StatefulSet that is gone while pods of it are left is made again with as many replicas as the status has
//     members, and with everything else that is pending.
//   - The StatefulSet's metadata is replaced as a whole.
//   - Before it scales to zero an Etcd that has a store, it takes a full snapshot through the client service. After
//     three failures it goes on without. As with the real one, the record of these attempts is per namespace, not per
//     Etcd, and a success counts for an hour, so that it can be taken for another one.
//   - A finalizer holds the Etcd until its components are gone. Claims are left.
//   - Reads come from caches, except events; status is written by merge patch without a lock, so the list of conditions
//     is overwritten as a whole.
//
// Not modelled: EtcdOpsTask objects (the snapshot before hibernation is a plain call of the sidecar, and its record is
// lost on a restart), EtcdCopyBackupsTask, compaction, the finalizers on secrets, leader election, the annotation that
// disables the runtime components, and the feature gates.
package controller
