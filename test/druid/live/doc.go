// Package live tests the stand-in for etcd-druid where it is used: as a pod of the local cluster, with real members.
//
// What needs no pods is tested beside the packages; here are the members' rendering end to end, the webhook with its
// certificate, the garbage collector's way through it, and the snapshot before hibernation.
package live
