// Package render says what the components of an Etcd look like. It is pure: an Etcd in, objects out.
//
// Each function sets, on an object that may already exist, what druid sets on it, and leaves the rest alone; so it is
// what the callback of a create-or-patch does. The StatefulSet is the exception, as with the real one: its whole
// metadata is replaced, so that labels, annotations and finalizers which others put there do not survive druid's next
// reconciliation.
//
// Modelled after etcd-druid v0.38.0-dev (July 2026): names, labels, owner, ports, arguments, environment, mounts,
// probes, security contexts, host aliases, init container, claim template and etcd configuration are what the real one
// renders with its feature gates off, so that the real etcd-wrapper and etcd-backup-restore, or what stands in for
// them, accept their arguments unchanged. Providers of backup stores: all that the real one knows.
//
// Not modelled: additional advertised peer URLs, joining an existing cluster, the freelist type (behind an alpha gate),
// compaction jobs. The init container that hands a local backup directory to user 65532 calls chown through a shell and
// goes on when it fails (the real one does not): in the user namespace of a cluster without root there is no such user,
// and all containers run as the one that there is.
package render
