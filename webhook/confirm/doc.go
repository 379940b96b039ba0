// Package confirm is how a person says yes: the token that fits exactly one change of exactly these volumes, the note of
// who gave it, and the stamp that a confirmed change leaves on the Etcd.
//
// A token is derived from all that a person agrees to: the Etcd's UID, the volume generation that the change would
// become, the operation, the specs before and after, and the UIDs of the claims that would be destroyed. Once the change is
// stamped the generation moves on, so a token that is replayed, left behind or copied to another Etcd fits nothing.
// It is not a secret: it proves that the explanation was seen, not who saw it. Authority is checked by the webhook.
//
//	token := confirm.Token(ask)
//	if confirm.Given(annotations) == token { stamp := confirm.StampOf(ask, confirmedBy, requestedBy, held) }
//
// Pure: no clock, no I/O, imports only the vocabulary.
package confirm
