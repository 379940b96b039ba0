// Package druid is a stand-in for etcd-druid in the tests' world, and the manifests that run it there.
//
// Modelled after etcd-druid v0.38.0-dev (July 2026). It is our own code, written after reading and running the real
// one; the parts and what each of them models, and does not, are told in the packages below:
//
//	api         the Etcd resource in Go: the fields that are used, names, labels, annotations
//	crds        its CustomResourceDefinition, with and without the CEL rules that pin the volumes
//	render      what the components of an Etcd look like (pure)
//	health      what its status is (pure)
//	controller  the passes: spec, status, deletion
//	protect     the webhook that guards the components, as an option
//	cmd/druid   the command; it runs as a pod
//
// In one sentence: an Etcd becomes the same objects with the same names, arguments and order of events as with the real
// one, its status follows the same rules with the same flaws, a changed claim template is stuck in the same way, and
// the same annotations hold it back. What the real one does besides — EtcdOpsTask, EtcdCopyBackupsTask, compaction,
// finalizers on secrets, feature gates, leader election, disabled runtime components, joining an existing cluster — is
// not here.
//
// Wording is our own throughout, except for what is API: names, reasons, codes, keys, arguments.
package druid
