// Package plan decides. From a [Snapshot] of one Etcd and everything that belongs to it, [Next] says which single [Step]
// comes next, and [Check] judges that step a second time, by the promises alone and without knowing how Next got there.
//
// Pure: no clock, no client, no randomness. The same snapshot and the same time give the same step.
//
//	step := plan.Next(snap, now)
//	if err := plan.Check(snap, step); err != nil { step = plan.Refuse(step, err) }
//
// # One member
//
//	Waiting ----> Leaving ------> Provisioning -----> Resyncing ------> Soaking ----> Replaced
//	old claim     old claim is    old claim is gone,  pod runs on the   proven, not   proven
//	of the stamp  being deleted   new one not bound   new volume        long enough
//
// Each state is read from the cluster: the UID of the live claim against the UIDs of the confirmed stamp, the labels
// and annotations on the old volume (the record of who the member was), the member's lease, and etcd's own word.
// The status of a rollout is never asked for a member's state. It says whether the rollout has ended, when a snapshot was last asked for,
// and since when something is waited for.
//
// # Decisions
//
// 2026-12-01: a member is to be replaced exactly if its live claim is named, by UID, in the confirmed stamp. A claim
// that is neither named nor as wanted stops the rollout with a request for a new confirmation.
//
// 2026-12-01: a member that does not answer may be the leader. It is taken only once all others name a leader among themselves.
//
// 2026-12-01: the proof of resync compares the member's ID with those on all of its retained volumes, not only with
// the newest: so a rollout that takes over from a superseded one needs no record of its own of a member that never came up.
//
// 2026-12-01: the order is Retain, dry-run of the eviction, leadership, claim, pod. Leadership moves as late as possible, and is
// looked at again before the pod goes.
//
// 2026-12-01: a rollout that is deleted while its stamp is neither fulfilled nor called off is made anew and goes on. The way to abort is
// to change the spec back, which the door lets pass unconfirmed before the StatefulSet is made anew; after that the change back is
// confirmed like any other.
//
// 2026-12-01: etcd's list counts: where it is longer than the Etcd has members, someone who is no more still has a vote, and no
// member is taken out. A majority is one of the list.
//
// 2026-12-01: a rollout is of the members that were confirmed. If the Etcd asks for more or fewer by now it waits, and it is neither
// complete nor called off.
//
// 2026-12-01: a claim that never got a volume (its class does not provision) holds no data and has nothing to retain; it is
// deleted if the stamp names it. That is the way out of a change to a class that never provisions.
//
// 2026-12-01: a database must fit twice into the new capacity: defragmentation and resync write a second copy.
//
// 2026-12-01: volumes of claims that are gone keep Retain until their time is over even when rollout and Etcd are gone; their
// labels alone lead back to them.
package plan
