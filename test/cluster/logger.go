package cluster

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// clientsLog is where client-go of this process writes to while a cluster runs; else what it says is lost.
var clientsLog atomic.Pointer[logr.Logger]

// captureClientLogs keeps client-go from writing into the output of a test. klog can change its logger only
// while nobody uses it, which is never certain once a client has been made: hence at the very beginning,
// and through a pointer.
func captureClientLogs() {
	klog.SetLogger(funcr.New(func(_, args string) {
		if log := clientsLog.Load(); log != nil {
			log.Info(args)
		}
	}, funcr.Options{}))
}

// logger writes to a file of its own in LogDir.
func (c *Cluster) logger(name string) (logr.Logger, error) {
	f, err := os.OpenFile(filepath.Join(c.LogDir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("open the log of %s: %w", name, err)
	}
	c.logs = append(c.logs, f)
	write := func(prefix, args string) { say(f, "%s %s\n", prefix, args) }
	return funcr.New(write, funcr.Options{LogTimestamp: true, Verbosity: 1}), nil
}

// say writes for a person to read. Where that fails nobody reads, and the work goes on.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
