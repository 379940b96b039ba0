package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds main packages of this module, named by import path or as ./dir relative to the module's
// root, and returns a new directory that holds them; remove deletes it.
//
// What go build wrote last time stays in the cache and is linked again only if it changed. The returned
// directory holds hard links, so that a later build cannot change what a running cluster starts.
func Build(ctx context.Context, w io.Writer, packages ...string) (dir string, remove func(), err error) {
	c, err := findCheckout(ctx)
	if err != nil {
		return "", nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256([]byte(c.dir))
	programs := filepath.Join(cache, "programs-"+hex.EncodeToString(sum[:])[:12])
	if err := os.MkdirAll(filepath.Join(programs, "last"), 0o755); err != nil {
		return "", nil, fmt.Errorf("make the directory of programs: %w", err)
	}
	unlock, err := lock(ctx, w, filepath.Join(programs, "lock"))
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	removeStale(programs)
	dir, release, err := newRun(ctx, programs)
	if err != nil {
		return "", nil, err
	}
	if err := c.buildPrograms(ctx, filepath.Join(programs, "last"), dir, packages); err != nil {
		release()
		return "", nil, err
	}
	return dir, release, nil
}

// runPattern names the directories of runs. Each holds a lock for as long as its run lives: process
// ids would not do, they differ inside and outside of a cluster.
const (
	runPattern = "run-*"
	runLock    = ".lock"
)

func newRun(ctx context.Context, programs string) (dir string, release func(), err error) {
	if dir, err = os.MkdirTemp(programs, runPattern); err != nil {
		return "", nil, fmt.Errorf("make the directory of this run's programs: %w", err)
	}
	unlock, err := lock(ctx, io.Discard, filepath.Join(dir, runLock))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		unlock()
	}, nil
}

// removeStale deletes what runs that were killed have left.
func removeStale(programs string) {
	runs, err := filepath.Glob(filepath.Join(programs, runPattern))
	if err != nil {
		return // only a malformed pattern is an error
	}
	for _, run := range runs {
		if unlock, err := tryLock(filepath.Join(run, runLock)); err == nil {
			_ = os.RemoveAll(run)
			unlock()
		}
	}
}

func (c checkout) buildPrograms(ctx context.Context, last, dir string, packages []string) error {
	for _, pkg := range packages {
		name := filepath.Base(pkg)
		built := filepath.Join(last, name)
		// No stamp of the commit: every commit would link all of them again, and git refuses to name it where
		// the checkout belongs to another user, as in many a container.
		cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", built, pkg)
		cmd.Dir = c.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
		if err := os.Link(built, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("keep %s for this run: %w", name, err)
		}
	}
	return nil
}
