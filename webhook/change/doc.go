// Package change says in what two volume specs differ, field by field, without judging it.
//
// The entry point reads as a sentence: change.Between(before, after). The result keeps both specs, is sorted by field, and
// has one entry a field. Differences without an effect (another notation of the same quantity, a default spelled out) are
// no changes, because [volume.Spec] knows the defaults and compares by value.
//
//	set := change.Between(volume.Of(before), volume.Of(after))
//	if set.Empty() { ... }
//
// Pure. It does not know what is live in the cluster, nor what a change costs: that is the verdict's business.
package change
