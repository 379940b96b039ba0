// Command demo tells the main job as a story, on a real control plane and real etcd processes: an Etcd with three members
// runs under a writer; its storage class is changed, refused and explained, confirmed, rolled out; then every acknowledged
// write is read back from every member.
//
// Its last line holds what was measured. It exits with 1 if a write was lost, a member is not on the new class, or a
// promise was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

func main() {
	stage.Enter()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options of the command.
type options struct {
	keep      bool
	naive     string
	readiness time.Duration
	timeout   time.Duration
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.keep, "keep", false, "leave the cluster running and print how to use kubectl on it")
	flags.StringVar(&o.naive, "naive", "", "do it by hand instead, claim and pod by ordinal: graceful, or kill (the leader is killed)")
	flags.DurationVar(&o.readiness, "readiness-delay", 3*time.Second, "the members' initialDelaySeconds (etcd-druid's own is 15s)")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "give up after this time")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.naive != "" && o.naive != naiveGraceful && o.naive != naiveKill {
		return o, fmt.Errorf("-naive is graceful or kill, not %q", o.naive)
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := play(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	}
	return 0
}

func play(ctx context.Context, o options, stdout, stderr io.Writer) error {
	bounded, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	n := &narrator{out: stdout, began: time.Now()}
	n.chapter("A cluster: real API server, controllers, scheduler, etcd; three nodes in three zones")
	s, err := stage.Open(bounded, stage.Options{ReadinessDelay: o.readiness, Log: stderr, Keep: o.keep})
	if err != nil {
		return err
	}
	defer s.Close() //nolint:contextcheck // what was started must be stopped also when ctx is done
	t := &tale{Stage: s, narrator: n, options: o}
	err = t.tell(bounded)
	if err != nil {
		s.DumpOnFailure(stderr)
	}
	if o.keep && !errors.Is(err, context.Canceled) {
		n.say("The cluster keeps running. In another terminal:\n\n    %s get vr,etcd,pvc,pv -A\n\nPress Ctrl-C to end it.", s.KubectlPath)
		<-ctx.Done()
	}
	return err
}
