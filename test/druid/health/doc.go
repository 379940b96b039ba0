// Package health says what the status of an Etcd is, from what was read of the cluster. It is pure: the world and the
// time go in as values.
//
// Modelled after etcd-druid v0.38.0-dev (July 2026), with its quirks, because who acts on this status has to live with
// them:
//
//   - a member is Ready as long as its lease is younger than the unknown threshold (1m), whatever its pod does; after
//     that it is NotReady if its pod is gone or its containers are not ready, else Unknown; after the not-ready
//     threshold (5m) on top it is NotReady;
//   - a lease without holder or without renewal is no member at all;
//   - Ready counts Unknown members as ready, and takes the number of known members for the size of the cluster;
//   - a learner says Member, so AllMembersReady may include one that has no vote;
//   - DataVolumesReady looks at claims by name prefix, so it also hears of the claims of an Etcd whose name begins with
//     this one's;
//   - with replicas 0 the conditions keep their status and say that nothing was checked.
//
// Condition types that are not druid's are kept as they are. Reasons are the real ones, messages are our own.
//
// Not modelled: BootstrappedWithExistingCluster and LastSnapshotCompactionSucceeded. A store without
// deltaSnapshotPeriod, on which the real check panics, is treated as one with the sidecar's default of 20s.
package health
