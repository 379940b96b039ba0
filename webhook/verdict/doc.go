// Package verdict decides about one request on an Etcd: does it pass, is it refused and why, or is it a confirmed change.
//
// It turns values into a value: a [Request] (the Etcd before and after, and who asks) and [Facts] (what was looked up in the
// cluster, each known or unknown) become a [Verdict]. Both webhooks call it with the same rules: the mutating one to learn what must
// be written on the Etcd, the validating one to decide, and to compare what is written.
//
//	v := verdict.Of(request, facts)
//	switch v.Outcome { case verdict.Pass: ... case verdict.Refuse: ... case verdict.Allow: ... }
//
// What it promises:
//   - a change with an effect is allowed only with a confirmation that fits it, by a person who is known;
//   - a fact that is needed and unknown refuses;
//   - all rules are heard, in a fixed order; each stands alone;
//   - the translator picks the least destructive operation and says why nothing less will do.
//
// What it refuses to know: how anything is worded (package explain), how facts are looked up (package webhook), the clock
// ([Facts] carries the time).
//
// # Decisions
//
// 2026-12-01: a confirmation that stands on the stored Etcd counts also where the request that makes the change drops it (a plain PUT of
// a manifest): the token says yes to exactly this change, whoever carries it.
//
// 2026-12-01: an annotation of ours that a request drops is restored by the mutating webhook; one that a request changes is left as sent
// and refused by the validating webhook, so that a forger hears of it.
//
// 2026-12-01: one member that is not ready does not refuse a change while a rollout runs: it may be the rollout's own member in flight,
// waiting for a class that never provisions, and the change is the way out. Otherwise all members must be ready.
//
// 2026-12-01: claims that are already as wanted are not destroyed: of a half-finished rollout only the rest is replaced.
package verdict
