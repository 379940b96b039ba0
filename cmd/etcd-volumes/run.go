package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// errUsage is a mistake on the command line: one line, and exit code 2.
type errUsage struct{ error }

const usage = `etcd-volumes changes the disks under a running etcd: explained, confirmed, one member at a time.

Usage:
  etcd-volumes [manager] [flags]   run the webhook server, the reconciler and the certificates
  etcd-volumes relax-crd [flags]   take the rules that forbid volume changes out of etcd-druid's CRD
  etcd-volumes version             print the version

The API server is found as kubectl finds it: KUBECONFIG, inside a pod its service account, else ~/.kube/config.
Flags of a command: etcd-volumes <command> --help
`

// run is the program: it carries out one command and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdout, stderr)
	var wrong errUsage
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return exitOK
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintf(stderr, "etcd-volumes: %v; see etcd-volumes --help\n", err)
		return exitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "etcd-volumes: %v\n", err)
		return exitError
	}
}

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	command, rest := split(args)
	switch command {
	case "manager":
		o := managerDefaults()
		if err := parse(o.flags(), rest, stdout); err != nil {
			return err
		}
		if err := o.validate(); err != nil {
			return errUsage{err}
		}
		return manage(ctx, o, stderr)
	case "relax-crd":
		o := relaxDefaults()
		if err := parse(o.flags(), rest, stdout); err != nil {
			return err
		}
		return relax(ctx, o, stdout)
	case "version":
		_, err := fmt.Fprintln(stdout, version())
		return err
	case "help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return errUsage{fmt.Errorf("unknown command %q", command)}
}

// split finds the command. Without one it is manager; a lone --help is about the program.
func split(args []string) (string, []string) {
	switch {
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
		return "help", nil
	case len(args) == 0 || strings.HasPrefix(args[0], "-"):
		return "manager", args
	}
	return args[0], args[1:]
}

// parse reads the flags. With --help it prints them and returns pflag.ErrHelp.
func parse(flags *pflag.FlagSet, args []string, stdout io.Writer) error {
	flags.SetOutput(io.Discard) // one line to stderr, ours
	flags.Usage = func() {
		_, _ = fmt.Fprintf(stdout, "Flags of etcd-volumes %s:\n%s", flags.Name(), flags.FlagUsagesWrapped(100))
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return errUsage{err}
	case flags.NArg() > 0:
		return errUsage{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	return nil
}

// release is set by the build of a release.
var release = ""

func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
