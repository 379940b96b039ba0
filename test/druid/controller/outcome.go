package controller

import (
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// outcome is how a step ended: done, to be looked at again later, or failed.
type outcome struct {
	after time.Duration
	why   string
	errs  []error
}

func (o outcome) done() bool { return o.after == 0 && len(o.errs) == 0 }

func (o outcome) result() (ctrl.Result, error) {
	return ctrl.Result{RequeueAfter: o.after}, errors.Join(o.errs...)
}

func failed(errs ...error) outcome { return outcome{errs: errs} }

func later(after time.Duration, why string) outcome { return outcome{after: after, why: why} }

// ofSync is the outcome of the sync of a component.
func ofSync(err error, interval time.Duration) outcome {
	if err == nil {
		return outcome{}
	}
	if n, ok := errors.AsType[*notYet](err); ok {
		return later(interval, n.why)
	}
	return failed(err)
}
