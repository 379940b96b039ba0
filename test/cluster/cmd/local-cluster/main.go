// Command local-cluster runs a local Kubernetes cluster of real processes, for trying things by hand.
// See package cluster for what it is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
)

const usage = `usage:
  local-cluster build                        build the control plane into the cache, once
  local-cluster up [--dir D] [--keep] [--image NAME=PROGRAM]...
                                             run a cluster until interrupted
`

func main() {
	node.MaybeShim()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	command := "help"
	if len(args) > 0 {
		command = args[0]
	}
	var err error
	switch command {
	case "build":
		err = build(stdout, stderr)
	case "up":
		err = up(args[1:], stdout, stderr)
	case "help", "-h", "--help":
		say(stdout, usage)
	default:
		say(stderr, usage)
		return 2
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		say(stderr, "local-cluster: %v\n", err)
		return 1
	}
	return 0
}

// errUsage stands for a mistake that the flag set has already explained.
var errUsage = errors.New("usage")

func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

func build(stdout, stderr io.Writer) error {
	ctx, stop := interruptible()
	defer stop()
	paths, err := cluster.BuildBinaries(ctx, stderr)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		say(stdout, "%s\n", paths[name])
	}
	return nil
}

// images are the values of the repeatable flag --image.
type images map[string]node.Image

func (i images) String() string { return "" }

func (i images) Set(value string) error {
	name, path, ok := strings.Cut(value, "=")
	if !ok || name == "" || path == "" {
		return errors.New("want NAME=PROGRAM")
	}
	i[name] = node.Image{Path: path}
	return nil
}

func up(args []string, stdout, stderr io.Writer) error {
	o := cluster.Options{Log: stderr}
	table := images{}
	flags := flag.NewFlagSet("local-cluster up", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Dir, "dir", "", "state and logs of the cluster (default: a new temporary directory)")
	flags.BoolVar(&o.Keep, "keep", false, "leave the directory in place at the end")
	flags.Var(table, "image", "as `NAME=PROGRAM`, the program that stands for an image; repeatable")
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	o.Images = table
	cluster.Enter()
	ctx, stop := interruptible()
	defer stop()
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	defer c.Stop()
	say(stdout, "\nfrom another terminal:\n  %s get nodes\nlogs are in %s; Ctrl-C ends the cluster\n", c.KubectlPath, c.LogDir)
	<-ctx.Done()
	return nil
}

// say writes for a person to read.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
