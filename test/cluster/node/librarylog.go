package node

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
)

// libraryLog lets the library log to our logger: warnings as they are, what is chatty at a higher level.
type libraryLog struct {
	log logr.Logger
	err error
}

var _ vklog.Logger = &libraryLog{}

const chatty = 4

// Debug logs at the chatty level.
func (l *libraryLog) Debug(args ...any) { l.log.V(chatty + 1).Info(fmt.Sprint(args...)) }

// Debugf logs at the chatty level.
func (l *libraryLog) Debugf(format string, args ...any) { l.Debug(fmt.Sprintf(format, args...)) }

// Info logs at the chatty level.
func (l *libraryLog) Info(args ...any) { l.log.V(chatty).Info(fmt.Sprint(args...)) }

// Infof logs at the chatty level.
func (l *libraryLog) Infof(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }

// Warn logs a warning.
func (l *libraryLog) Warn(args ...any) {
	l.log.V(1).Info(fmt.Sprint(args...), "cause", errorText(l.err))
}

// Warnf logs a warning.
func (l *libraryLog) Warnf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...)) }

// Error logs an error.
func (l *libraryLog) Error(args ...any) {
	cause := l.err
	if cause == nil {
		cause = errors.New(fmt.Sprint(args...))
	}
	l.log.Error(cause, fmt.Sprint(args...))
}

// Errorf logs an error.
func (l *libraryLog) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// Fatal logs an error; ending the process is not a library's business.
func (l *libraryLog) Fatal(args ...any) { l.Error(args...) }

// Fatalf logs an error.
func (l *libraryLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// WithField returns a logger that tells the field with each message.
func (l *libraryLog) WithField(key string, value any) vklog.Logger {
	return &libraryLog{log: l.log.WithValues(key, value), err: l.err}
}

// WithFields returns a logger that tells the fields with each message.
func (l *libraryLog) WithFields(all vklog.Fields) vklog.Logger {
	var next vklog.Logger = l
	for key, value := range all {
		next = next.WithField(key, value)
	}
	return next
}

// WithError returns a logger that tells the error with each message.
func (l *libraryLog) WithError(err error) vklog.Logger {
	return &libraryLog{log: l.log, err: err}
}
