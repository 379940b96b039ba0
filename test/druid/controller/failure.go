package controller

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// The codes of lastErrors.
const (
	CodeSyncServiceAccount = "ERR_SYNC_SERVICE_ACCOUNT"
	CodeSyncRole           = "ERR_SYNC_ROLE"
	CodeSyncRoleBinding    = "ERR_SYNC_ROLE_BINDING"
	CodeSyncMemberLease    = "ERR_SYNC_MEMBER_LEASE"
	CodeSyncSnapshotLease  = "ERR_SYNC_SNAPSHOT_LEASE"
	CodeSyncBudget         = "ERR_SYNC_POD_DISRUPTION_BUDGET"
	CodeSyncClientService  = "ERR_SYNC_CLIENT_SERVICE"
	CodeSyncPeerService    = "ERR_SYNC_PEER_SERVICE"
	CodeSyncConfigMap      = "ERR_SYNC_CONFIGMAP"
	CodeSyncStatefulSet    = "ERR_SYNC_STATEFULSET"
	CodeGetStatefulSet     = "ERR_GET_STATEFULSET"
)

const (
	operationSync    = "Sync"
	operationPreSync = "PreSync"
	operationDelete  = "TriggerDelete"
)

// failure is an error that goes into lastErrors. Other errors are retried, but not reported there.
type failure struct {
	code      string
	operation string
	what      string
	cause     error
	at        time.Time
}

func fail(code, operation, what string, cause error) error {
	return &failure{code: code, operation: operation, what: what, cause: cause, at: time.Now().UTC()}
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: %s: %s: cause: %v", f.operation, f.code, f.what, f.cause)
}

func (f *failure) Unwrap() error { return f.cause }

// lastErrors are the failures among the errors.
func lastErrors(errs []error) []api.LastError {
	var out []api.LastError
	for _, err := range errs {
		if f, ok := errors.AsType[*failure](err); ok {
			out = append(out, api.LastError{Code: f.code, Description: f.Error(), ObservedAt: metav1.NewTime(f.at)})
		}
	}
	return out
}

// notYet is what a component says that is not finished and is no failure either.
type notYet struct{ why string }

func (n *notYet) Error() string { return n.why }
