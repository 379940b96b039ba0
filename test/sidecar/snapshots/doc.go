// Package snapshots takes the full and delta snapshots of the etcd that the sidecar leads.
//
// One goroutine owns all state: requests, timers and the watch's events are served in turn, as in the real sidecar. So an
// on-demand delta holds what the watch has delivered so far, which may be a moment behind etcd; a delta without
// events answers with no snapshot; and a failed snapshot ends the run, to be started again after a back-off.
//
// A full snapshot is etcd's own, checked against its hash and stored as it is. Whatever is in the database is in it,
// alarms too. Its name carries the revision read just before, so it may hold more than it says, never less.
//
// Not modelled: garbage collection by the Exponential policy and of old deltas by age, defragmentation, rotating credentials.
package snapshots
