package stage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Operator is the account under which etcd-volumes acts.
const Operator = "system:serviceaccount:" + Namespace + ":" + Deployment

// AuditEvents reads the API server's audit log.
func AuditEvents(path string) ([]auditv1.Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer f.Close()
	var events []auditv1.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the line that is being written
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// JudgeDeletes judges promise 7 from the audit log: every delete that the operator asked for carried the preconditions
// that it must carry: UID and resourceVersion, and for an eviction the UID. It also returns how many deletes it saw.
func JudgeDeletes(events []auditv1.Event) (broken []string, seen int) {
	for _, e := range events {
		if e.User.Username != Operator || e.ObjectRef == nil {
			continue
		}
		switch {
		case e.Verb == "delete" && slices.Contains([]string{"persistentvolumeclaims", "statefulsets", "persistentvolumes", "pods"}, e.ObjectRef.Resource):
			seen++
			broken = append(broken, judgeDelete(e, options(e.RequestObject), true)...)
		case e.Verb == "deletecollection":
			broken = append(broken, "promise 7: a collection of "+e.ObjectRef.Resource+" was deleted")
		case e.Verb == "create" && e.ObjectRef.Subresource == "eviction":
			seen++
			broken = append(broken, judgeDelete(e, evictionOptions(e.RequestObject), false)...)
		}
	}
	return broken, seen
}

func judgeDelete(e auditv1.Event, o *metav1.DeleteOptions, version bool) []string {
	what := strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/") + " " + e.ObjectRef.Name
	switch {
	case o == nil || o.Preconditions == nil || o.Preconditions.UID == nil:
		return []string{"promise 7: " + what + " was deleted without a UID precondition"}
	case version && o.Preconditions.ResourceVersion == nil:
		return []string{"promise 7: " + what + " was deleted without a resourceVersion precondition"}
	}
	return nil
}

func options(raw *runtime.Unknown) *metav1.DeleteOptions {
	if raw == nil {
		return nil
	}
	var o metav1.DeleteOptions
	if json.Unmarshal(raw.Raw, &o) != nil {
		return nil
	}
	return &o
}

func evictionOptions(raw *runtime.Unknown) *metav1.DeleteOptions {
	if raw == nil {
		return nil
	}
	var eviction struct {
		DeleteOptions *metav1.DeleteOptions `json:"deleteOptions"`
	}
	if json.Unmarshal(raw.Raw, &eviction) != nil {
		return nil
	}
	return eviction.DeleteOptions
}
