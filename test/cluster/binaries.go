package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// The versions that the nested modules under build pin; a test compares them.
const (
	KubernetesVersion = "v1.37.2"
	EtcdVersion       = "v3.7.3"
)

// kubernetesLinkFlags stamp the version, without which kubectl cannot parse what the server says, and
// that of client-go, which names the programs in the audit log. A module carries no commit, so the tag
// stands in its place; the date is that of the tag.
//
// They and the default environment are the whole of the build's settings: anything that changes how a
// package is compiled (-trimpath, CGO_ENABLED=0) would build every package a second time, because the
// rest of this repository would not find it in Go's build cache.
const kubernetesLinkFlags = "-s -w" +
	" -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1" +
	" -X k8s.io/component-base/version.gitMinor=37" +
	" -X k8s.io/component-base/version.gitTreeState=clean" +
	" -X k8s.io/component-base/version.gitCommit=" + KubernetesVersion +
	" -X k8s.io/component-base/version.buildDate=2026-10-27T12:01:04Z" +
	" -X k8s.io/client-go/pkg/version.gitVersion=" + KubernetesVersion +
	" -X k8s.io/client-go/pkg/version.gitCommit=" + KubernetesVersion

const etcdLinkFlags = "-s -w"

// heartbeat is how often a build that goes on says so.
const heartbeat = 30 * time.Second

// binary is one program that the cluster needs and that a nested module builds.
type binary struct {
	name, version, module, pkg, linkFlags string
}

func kubernetesBinary(name string) binary {
	return binary{name, KubernetesVersion, "kubernetes", "k8s.io/kubernetes/cmd/" + name, kubernetesLinkFlags}
}

func etcdBinary(name, dir string) binary {
	return binary{name, EtcdVersion, "etcd", "go.etcd.io/etcd/" + dir + "/v3", etcdLinkFlags}
}

// binaries lists all of them in the order in which they are built.
func binaries() []binary {
	return []binary{
		etcdBinary("etcd", "server"),
		etcdBinary("etcdctl", "etcdctl"),
		etcdBinary("etcdutl", "etcdutl"),
		kubernetesBinary("kube-apiserver"),
		kubernetesBinary("kube-controller-manager"),
		kubernetesBinary("kube-scheduler"),
		kubernetesBinary("kubectl"),
	}
}

// checkout is the source tree that the program runs from, and the Go toolchain in use there.
type checkout struct {
	dir, goVersion string
}

// findCheckout asks the go command, so that it works for a test binary as for `go run`, from any
// directory of the module.
func findCheckout(ctx context.Context) (checkout, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "-json", "GOMOD", "GOVERSION").Output()
	if err != nil {
		return checkout{}, fmt.Errorf("ask the go command for the module: %w", err)
	}
	var env struct{ GOMOD, GOVERSION string }
	if err := json.Unmarshal(out, &env); err != nil {
		return checkout{}, fmt.Errorf("read the go command's answer: %w", err)
	}
	c := checkout{dir: filepath.Dir(env.GOMOD), goVersion: env.GOVERSION}
	if !exists(c.module("kubernetes")) {
		return checkout{}, errors.New("the current directory is in no checkout of etcd-volumes: change into one")
	}
	return c, nil
}

// module is the directory of a nested module.
func (c checkout) module(name string) string {
	return filepath.Join(c.dir, "test", "cluster", "build", name)
}

// cachePath is where a binary is kept: the same path only for the same version, modules, flags and Go.
func (c checkout) cachePath(cache string, b binary) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(c.module(b.module), "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the module of %s: %w", b.name, err)
	}
	settings := fmt.Appendf(nil, "%q", []string{string(gomod), b.linkFlags, c.goVersion, runtime.GOOS, runtime.GOARCH})
	sum := sha256.Sum256(settings)
	dir := fmt.Sprintf("%s-%s-%s", b.name, b.version, hex.EncodeToString(sum[:])[:12])
	return filepath.Join(cache, dir, b.name), nil
}

// cacheDir is this project's directory in the user's cache.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(base, "etcd-volumes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache directory (set XDG_CACHE_HOME to a writable one): %w", err)
	}
	return dir, nil
}

// BuildBinaries builds what is not yet in the cache and returns the path of each binary by name.
// Progress goes to w; nothing is printed when all are there.
func BuildBinaries(ctx context.Context, w io.Writer) (map[string]string, error) {
	c, err := findCheckout(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, b := range binaries() {
		if paths[b.name], err = c.cachePath(cache, b); err != nil {
			return nil, err
		}
	}
	if complete(paths) {
		return paths, nil
	}
	return paths, c.buildMissing(ctx, w, cache, paths)
}

func complete(paths map[string]string) bool {
	for _, path := range paths {
		if !exists(path) {
			return false
		}
	}
	return true
}

func (c checkout) buildMissing(ctx context.Context, w io.Writer, cache string, paths map[string]string) error {
	unlock, err := lock(ctx, w, filepath.Join(cache, "binaries.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if complete(paths) { // by the one that was waited for
		return nil
	}
	began := time.Now()
	all := binaries()
	say(w, "building the control plane into %s (once; about 6 minutes on 2 cores)\n", cache)
	for i, b := range all {
		step := fmt.Sprintf("[%d/%d] %s %s", i+1, len(all), b.name, b.version)
		if exists(paths[b.name]) {
			say(w, "%s: in the cache\n", step)
			continue
		}
		if err := c.build(ctx, w, step, b, paths[b.name]); err != nil {
			return err
		}
		say(w, "%s: built, %s in all\n", step, time.Since(began).Round(time.Second))
	}
	return nil
}

// build puts one binary in place by renaming, so that a path in the cache that exists is complete.
func (c checkout) build(ctx context.Context, w io.Writer, step string, b binary, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache directory of %s: %w", b.name, err)
	}
	stop := beat(w, step)
	defer stop()
	unfinished := path + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil { // go build does not overwrite what is no program
		return fmt.Errorf("remove what an interrupted build of %s left: %w", b.name, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", b.linkFlags, "-o", unfinished, b.pkg)
	cmd.Dir = c.module(b.module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", b.name, err, out)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("put %s into the cache: %w", b.name, err)
	}
	return nil
}

// beat says now and every so often what is being built, until it is stopped.
func beat(w io.Writer, step string) (stop func()) {
	began := time.Now()
	done, stopped := make(chan struct{}), make(chan struct{})
	say(w, "%s: building\n", step)
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				say(w, "%s: building, %s so far\n", step, time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() { close(done); <-stopped }
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
