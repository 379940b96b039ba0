// Package report says what was seen and done: the status of rollouts, the condition VolumesUpToDate of the Etcd, and events.
//
// Pure: from a snapshot, the step that was taken, what became of it and the time, to values. It remembers nothing but what the
// old status holds: since when something is waited for, and who members were before.
//
// Reasons are CamelCase and stable; the sentences are for people.
package report
