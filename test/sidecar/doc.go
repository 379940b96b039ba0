// Package sidecar stands in for the two containers of a pod that etcd-druid renders: etcd (etcd-wrapper, command start-etcd) and
// backup-restore (etcd-backup-restore, command server). One binary, cmd/etcd-sidecar, is both; its first argument chooses.
//
// It is written after etcd-druid v0.38.0-dev (July 2026, what is rendered), etcd-backup-restore v0.44.0-dev
// (July 2026) and etcd-wrapper (June 2026), so that a pod rendered for those images runs with it unchanged: same arguments,
// environment, mounts, ports and probes. Flags that it does not need are logged and ignored.
//
//	etcd container                        backup-restore container
//	  status, start, status ...  ------>    initializer: look, validate, restore or replace
//	  GET /config                ------>    this member's configuration
//	  etcd 3.7, /readyz          <------    status: heartbeat, election, promotion, snapshots
//	  POST /stop                 <------    peer URLs corrected after a restore
//
// # Modelled
//
// What decides about data: the decision table of package initializer, the validation of package datadir, full and
// delta snapshots by etcd's own library and watch (snapshots, restore, store), with the trap that a full snapshot
// under the NOSPACE alarm restores with the alarm. What others see: member and snapshot leases (leases), the sidecar's
// HTTP API and its hand-over between leaders (server), readiness and orderly end of etcd (wrapper), learner and promotion (member). What takes
// time: all back-offs, timeouts and periods are those of the real ones; package pace can shorten the former two.
//
// # Not modelled
//
// Object stores, compaction jobs, copying and syncing backups, defragmentation, the Exponential
// garbage collection, authentication of etcd users, profiling, a second store, scaling out of existing clusters by the
// StatefulSet's annotations, the format of the real delta snapshots.
//
// # Decisions
//
// 2026-12-01: etcd is 3.7, as everywhere in this project, although the real etcd-wrapper embeds an older minor version:
// what is relied on (learners, alarms, leadership hand-over, snapshots) is the same.
//
// 2026-12-01: the configuration is handed over without a file in the home directory. Pods whose containers are processes of one
// machine share that directory, and three members would overwrite each other's.
//
// 2026-12-01: the data of a removed member is refused by the member ID in its write-ahead log, as newer sidecars than the one modelled do.
package sidecar
