// Package reconciler carries out confirmed volume changes. One pass for one Etcd:
//
//	observe -> plan -> check -> act -> report
//
// It reads everything uncached (observe), decides on one step (plan.Next), has the step judged a second time by the promises
// alone (plan.Check), performs it (act), and writes down what was seen and done (report). A step that Check refuses is
// reported and never performed.
//
// # The safety claim
//
// At any moment, also after a crash between any two writes:
//
//  1. no claim is deleted unless its UID stands in the confirmed stamp;
//  2. no claim is deleted unless its volume is set to Retain and bears our marks;
//  3. at most one member of an Etcd is out because of us, and all others are caught-up voters of one cluster when it is taken;
//  4. no claim is deleted while the live StatefulSet has the old template;
//  5. the StatefulSet comes back from its kept manifest, with nothing but the claim template changed;
//  6. every delete carries UID and resourceVersion (an eviction: the UID) of an uncached read;
//  7. what was set on foreign objects is put back as it was.
//
// Nothing but the cluster says where a rollout stands: the stamp and the UIDs of live claims, the marks on old volumes, the kept
// manifest, leases, and etcd's own word; but for whether the rollout has ended and when a snapshot was last asked for, which its status
// says. A status that is lost is made anew.
//
// # Decisions
//
// 2026-12-01: all reads are uncached, not only those before a delete: a pass is some twenty Gets by name, an idle one
// fewer than ten, and there is one truth in it. Watches are metadata only and say when to look, never what is there.
//
// 2026-12-01: Replace of three members or more is carried out; other operations wait with the reason OperationNotSupported.
package reconciler
