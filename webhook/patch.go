package webhook

import (
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// holding is the value of etcd-druid's annotations; only their presence counts.
const holding = "true"

// patches are the operations by which the object gets the marks that it must carry. They touch annotations only, and none that the
// client changed itself: those are refused by the validating webhook.
func patches(asked verdict.Request, m verdict.Marks) []jsonpatch.JsonPatchOperation {
	if asked.Before == nil {
		return nil
	}
	want := maps.Clone(asked.After.Annotations)
	if want == nil {
		want = map[string]string{}
	}
	mark(want, asked, volume.StampAnnotation, m.Stamp)
	mark(want, asked, volume.ConfirmedByAnnotation, m.Note)
	hold(want, asked, m)
	return annotationPatches(asked.After.Annotations, want)
}

func mark(want map[string]string, asked verdict.Request, key string, value *string) {
	sent, isSent := asked.After.Annotations[key]
	stored, isStored := asked.Before.Annotations[key]
	if isSent && (!isStored || sent != stored) {
		return // changed by the client, or marked by us already
	}
	if value == nil {
		delete(want, key)
		return
	}
	want[key] = *value
}

// hold adds etcd-druid's annotations to an allowed change. It also keeps them where a request drops them together with the stamp, as a PUT
// of a manifest does that knows neither: a rollout may rely on them.
func hold(want map[string]string, asked verdict.Request, m verdict.Marks) {
	_, stampSent := asked.After.Annotations[volume.StampAnnotation]
	for _, key := range []string{volume.SuspendAnnotation, volume.DisableProtectionAnnotation} {
		stored, isStored := asked.Before.Annotations[key]
		_, isSent := asked.After.Annotations[key]
		switch {
		case isSent:
		case m.Stamp != nil && isStored && !stampSent:
			want[key] = stored
		case m.Hold:
			want[key] = holding
		}
	}
}

func annotationPatches(sent, want map[string]string) []jsonpatch.JsonPatchOperation {
	if maps.Equal(sent, want) {
		return nil
	}
	if sent == nil {
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("add", "/metadata/annotations", want)}
	}
	keys := slices.Sorted(maps.Keys(sent))
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, ok := sent[key]; !ok {
			keys = append(keys, key)
		}
	}
	var ops []jsonpatch.JsonPatchOperation
	for _, key := range keys {
		path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		value, wanted := want[key]
		before, had := sent[key]
		switch {
		case !wanted:
			ops = append(ops, jsonpatch.NewOperation("remove", path, nil))
		case !had:
			ops = append(ops, jsonpatch.NewOperation("add", path, value))
		case value != before:
			ops = append(ops, jsonpatch.NewOperation("replace", path, value))
		}
	}
	return ops
}
