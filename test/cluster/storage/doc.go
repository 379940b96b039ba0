// Package storage provides the volumes of the local cluster: a dynamic
// provisioner, a resizer and the storage classes that go with them.
//
// # What it promises
//
// A claim of one of our classes gets a PersistentVolume of type hostPath whose
// directory is made for it alone and writable by any user, with node affinity
// to one zone: that of the node which the scheduler chose, or with immediate
// binding any that the class allows. A volume that is released is deleted
// with its directory, or kept with its directory, as its reclaim policy says at
// that time. Nothing outside the directory given to New is ever removed.
//
// A claim that asks for more than it has is expanded as Kubernetes 1.37 shows
// it: condition Resizing, the volume's capacity, condition
// FileSystemResizePending, the claim's capacity, conditions gone; with
// allocatedResources and allocatedResourceStatuses along the way.
//
// # What it models, and what not
//
// Modelled after the external provisioner and resizer of CSI, whose controller
// library it runs on: events, finalizer, retries (faster than the real ones),
// rescheduling when a zone is out of capacity. Expansion ends without a look at
// the pods, where a real one may wait until a pod mounts the volume. Capacity
// is a number: nobody keeps a pod from writing more. Not modelled: snapshots,
// clones, block volumes, topology other than the zone, attaching.
//
// Class parameters let a test choose what happens; see the Parameter constants.
package storage
