// Package protect is the option of the stand-in for etcd-druid that guards the components of an Etcd: a validating
// webhook that refuses to change or delete what druid has made.
//
// Modelled after the etcd components webhook of etcd-druid v0.38.0-dev (July 2026): which objects it looks at, how it
// finds the Etcd, and who may do what:
//
//	the Etcd has the annotation that disables the protection     everybody
//	the Etcd is being deleted, request DELETE                    druid, exempt accounts
//	else druid                                                   yes
//	     the members' own account, leases                        yes
//	     exempt accounts                                         unless the newest reconciliation is Processing, Error or
//	                                                             Requeue; then only what is already being deleted
//	     everybody else                                          no
//
// A claim is guarded through the StatefulSet that carries all of the claim's labels; where there is none, or no Etcd of
// that name, everything is allowed. That an exempt account is refused for as long as a reconciliation fails is not an
// accident of this model.
//
// The certificate is made at start and lives in memory; the package writes its CA into its own webhook configuration
// and keeps it there. (The real one mounts a certificate that its chart made.) Messages are our own. Not modelled: jobs,
// which the real one registers for and allows, and the annotation that disables the runtime components.
package protect
