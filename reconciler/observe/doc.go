// Package observe reads everything that is known of one Etcd, once a pass, and turns it into a plan.Snapshot. It is the
// only reader that decides anything, and it changes nothing.
//
// All reads are uncached: what feeds a destructive step must not be old. One Get an object, lists by label. What does not
// exist is nil; only a failed look is an error, and then nothing is planned at all. An Etcd that has nothing to do is looked at with
// a handful of reads; members, leases and etcd itself are asked only while a rollout goes on.
//
// Two questions are put to the API server as dry runs, because only it can answer them: would a new claim be accepted,
// and might this pod be evicted. The planner says when they matter (plan.Wants).
package observe
