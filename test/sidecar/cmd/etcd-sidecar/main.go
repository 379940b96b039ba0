// The etcd-sidecar command is the entry point of both stand-in images: "start-etcd" is etcd-wrapper, "server" is etcd-backup-restore.
//
// SIDECAR_SPEEDUP divides back-offs and timeouts (see package pace); a default can be linked in with
// -ldflags "-X main.speedup=10", for pods whose environment is rendered by somebody else.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/server"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/wrapper"
)

// speedup is the default of SIDECAR_SPEEDUP.
var speedup string

const usage = "usage: etcd-sidecar start-etcd|server [flags]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	log := logger()
	if err := run(os.Args[1], os.Args[2:], log); err != nil {
		log.Error("ending", zap.Error(err))
		os.Exit(1)
	}
}

func run(command string, arguments []string, log *zap.Logger) error {
	factor, given := os.LookupEnv("SIDECAR_SPEEDUP")
	if !given {
		factor = speedup
	}
	p, err := pace.Parse(factor)
	if err != nil {
		return err
	}
	switch command {
	case "start-etcd":
		return startEtcd(arguments, p, log)
	case "server":
		return serve(arguments, p, log)
	default:
		return errors.New(usage)
	}
}

func startEtcd(arguments []string, p pace.Pace, log *zap.Logger) error {
	c, err := wrapper.FromArgs(arguments, p, log)
	if err != nil {
		return err
	}
	ctx := onSignal(func(s os.Signal) {
		log.Info("caught signal", zap.Stringer("signal", s))
		if err := wrapper.CaptureExit(c.ExitCodeFile, s); err != nil {
			log.Error("exit is not recorded", zap.Error(err))
		}
	})
	syscall.Umask(0o077)
	return wrapper.Run(ctx, c)
}

func serve(arguments []string, p pace.Pace, log *zap.Logger) error {
	c, err := server.FromArgs(arguments, p, log)
	if err != nil {
		return err
	}
	if c.MemberLease || c.SnapshotLease {
		if c.Leases, err = server.InCluster(c.Namespace); err != nil {
			return err
		}
	}
	return server.New(c).Run(onSignal(func(s os.Signal) { log.Info("caught signal", zap.Stringer("signal", s)) }))
}

// onSignal returns a context that ends with the first SIGINT or SIGTERM, after note; a second one ends the process.
func onSignal(note func(os.Signal)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		note(<-signals)
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx
}

// logger writes JSON lines to standard output, as etcd does.
func logger() *zap.Logger {
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	encoder.EncodeDuration = zapcore.StringDurationEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(os.Stdout), zap.InfoLevel), zap.AddCaller())
}
