package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

// narrator prints the story. Each line of progress carries the time since the beginning.
type narrator struct {
	out   io.Writer
	began time.Time
	last  string
}

func (n *narrator) chapter(format string, args ...any) {
	fmt.Fprintf(n.out, "\n== %s\n", fmt.Sprintf(format, args...))
}

func (n *narrator) say(format string, args ...any) {
	fmt.Fprintf(n.out, "%s\n", fmt.Sprintf(format, args...))
}

// clock is the time since the beginning.
func (n *narrator) clock(at time.Time) string {
	d := at.Sub(n.began)
	return fmt.Sprintf("%d:%04.1f", int(d.Minutes()), d.Seconds()-60*float64(int(d.Minutes())))
}

// kubectl runs a command, shown as a user would type it, with what the real kubectl printed.
func (n *narrator) kubectl(ctx context.Context, s *stage.Stage, args ...string) error {
	fmt.Fprintf(n.out, "\n  $ kubectl %s\n", quote(args))
	stdout, stderr, err := s.Kubectl(ctx, args...)
	for _, text := range []string{stderr, stdout} {
		if text = strings.TrimRight(text, "\n"); text != "" {
			fmt.Fprintln(n.out, indent(text))
		}
	}
	return err
}

func quote(args []string) string {
	words := make([]string, 0, len(args))
	for _, a := range args {
		if strings.ContainsAny(a, " {}\"'$") {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// progress prints where the rollout stands, once for each change.
func (n *narrator) progress(r *v1alpha1.VolumeRollout) {
	if r.Status.Phase == "" {
		return // just made: nothing has been seen yet
	}
	var members []string
	for _, m := range r.Status.Members {
		members = append(members, m.Name+" "+strings.ToLower(string(m.Phase)))
	}
	line := fmt.Sprintf("%-10s %4s  %s", r.Status.Phase, r.Status.Progress, strings.Join(members, ", "))
	if r.Status.Message != "" {
		line += "\n" + strings.Repeat(" ", 8) + r.Status.Message
	}
	if line == n.last {
		return
	}
	n.last = line
	fmt.Fprintf(n.out, "%6s  %s\n", n.clock(time.Now()), line)
}
