package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

func TestWhichUpdatesStartAPass(t *testing.T) {
	etcd := func(generation int64, state api.OperationState, requested bool) *api.Etcd {
		e := &api.Etcd{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		if state != "" {
			e.Status.ObservedGeneration = ptr.To(int64(1))
			e.Status.LastOperation = &api.LastOperation{Type: api.OperationReconcile, State: state}
		}
		if requested {
			metav1.SetMetaDataAnnotation(&e.ObjectMeta, api.AnnotationOperation, api.OperationValueReconcile)
		}
		return e
	}
	for name, tc := range map[string]struct {
		before, after *api.Etcd
		onRequest     bool
		automatic     bool
	}{
		"status only":                       {etcd(1, api.OperationSucceeded, false), etcd(1, api.OperationSucceeded, false), false, false},
		"spec":                              {etcd(1, api.OperationSucceeded, false), etcd(2, api.OperationSucceeded, false), false, true},
		"request after success":             {etcd(1, api.OperationSucceeded, false), etcd(1, api.OperationSucceeded, true), true, true},
		"request after failure":             {etcd(1, api.OperationError, false), etcd(1, api.OperationError, true), false, false},
		"request and spec after failure":    {etcd(1, api.OperationError, false), etcd(2, api.OperationError, true), true, true},
		"never reconciled":                  {etcd(1, "", false), etcd(1, "", false), false, true},
		"never reconciled, with request":    {etcd(1, "", false), etcd(1, "", true), true, true},
		"spec while suspended, no request":  {etcd(1, api.OperationSucceeded, false), etcd(2, api.OperationSucceeded, false), false, true},
		"status of a failure, with request": {etcd(1, api.OperationProcessing, true), etcd(1, api.OperationError, true), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.onRequest, wakesOnUpdate(tc.before, tc.after, false))
			assert.Equal(t, tc.automatic, wakesOnUpdate(tc.before, tc.after, true))
		})
	}
}
