package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	dumpTimeout = 15 * time.Second
	dumpLines   = 25       // of each log
	tailBytes   = 64 << 10 // read from the end of a log
)

// DumpOnFailure writes what helps to understand a failure, and has Stop keep the directory: pods, claims
// and events, and the end of every log.
func (c *Cluster) DumpOnFailure(w io.Writer) {
	c.keep = true
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	if err := c.Failure(); err != nil {
		say(w, "--- parts that gave up\n%v\n", err)
	}
	for _, args := range []string{
		"get nodes,pods,persistentvolumeclaims,persistentvolumes --all-namespaces --output=wide",
		"get events --all-namespaces --sort-by=.metadata.creationTimestamp",
	} {
		stdout, _, err := c.Kubectl(ctx, strings.Fields(args+" --request-timeout=5s")...)
		say(w, "--- kubectl %s\n%s", args, lastLines(stdout, 4*dumpLines))
		if err != nil {
			say(w, "%v\n", err)
		}
	}
	for _, path := range c.logFiles() {
		name, err := filepath.Rel(c.LogDir, path)
		if text := tail(path, dumpLines); err == nil && text != "" {
			say(w, "--- %s\n%s", name, text)
		}
	}
	say(w, "--- all of it: %s\n", c.LogDir)
}

// logFiles are the logs of components and containers, but not the audit log, in a fixed order.
func (c *Cluster) logFiles() []string {
	var all []string
	for _, pattern := range []string{"*.log", "pods/*/*/*.log"} {
		files, err := filepath.Glob(filepath.Join(c.LogDir, pattern))
		if err == nil { // only a malformed pattern is an error
			all = append(all, files...)
		}
	}
	return slices.DeleteFunc(all, func(path string) bool { return path == c.AuditLog })
}

// PodLogs is what the containers of a pod have written, all of them and all restarts, each under a
// heading; also of a pod that is gone.
func (c *Cluster) PodLogs(namespace, pod string) (string, error) {
	files, err := filepath.Glob(filepath.Join(c.podLogs(), namespace+"_"+pod, "*", "*.log"))
	if err != nil {
		return "", fmt.Errorf("find the logs of pod %s/%s: %w", namespace, pod, err)
	}
	var b strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the logs of pod %s/%s: %w", namespace, pod, err)
		}
		container := filepath.Base(filepath.Dir(path))
		fmt.Fprintf(&b, "--- %s, restart %s\n%s", container, strings.TrimSuffix(filepath.Base(path), ".log"), text)
	}
	return b.String(), nil
}

// tail is the last lines of a file, and what went wrong if it cannot be read.
func tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error() + "\n"
	}
	defer f.Close()
	if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil && !errors.Is(err, os.ErrInvalid) {
		_, err = f.Seek(0, io.SeekStart) // shorter than that
		if err != nil {
			return err.Error() + "\n"
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error() + "\n"
	}
	return lastLines(string(text), lines)
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
