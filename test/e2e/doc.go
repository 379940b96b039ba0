// Package e2e proves the main job on the local cluster: real control plane, real etcd, etcd-volumes deployed from
// deploy/ with two replicas, etcd-druid's stand-in beside it.
//
// All tests share one stage and run one after another, each with an Etcd in a namespace of its own, each with a writer
// through all members. Whatever a test does, its cleanup reads every acknowledged write back from every member and has
// the promises judged from the recorded history of every object.
package e2e
