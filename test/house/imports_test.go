package house_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/etcd-volumes/etcd-volumes"

// mayImport is the table: each package of the product, and which others it may import.
var mayImport = map[string][]string{
	"webhook/volume":      nil,
	"webhook/confirm":     {"webhook/volume"},
	"webhook/change":      {"webhook/volume"},
	"webhook/verdict":     {"webhook/volume", "webhook/change", "webhook/confirm"},
	"webhook/explain":     {"webhook/change", "webhook/verdict"},
	"webhook":             {"webhook/volume", "webhook/confirm", "webhook/change", "webhook/verdict", "webhook/explain", "reconciler/v1alpha1"},
	"reconciler/v1alpha1": nil,
	"reconciler/plan":     {"webhook/volume", "webhook/confirm", "reconciler/v1alpha1"},
	"reconciler/members":  {"webhook/volume"},
	"reconciler/backup":   {"webhook/volume", "reconciler/members"},
	"reconciler/observe":  {"webhook/volume", "webhook/confirm", "reconciler/plan", "reconciler/members", "reconciler/v1alpha1"},
	"reconciler/act":      {"webhook/volume", "webhook/confirm", "reconciler/plan", "reconciler/v1alpha1"},
	"reconciler/report":   {"webhook/volume", "webhook/confirm", "reconciler/plan", "reconciler/v1alpha1"},
	"reconciler": {
		"webhook/volume", "webhook/confirm", "reconciler/v1alpha1", "reconciler/plan", "reconciler/members", "reconciler/backup",
		"reconciler/observe", "reconciler/act", "reconciler/report",
	},
	"certs":  nil,
	"deploy": nil,
	"cmd/etcd-volumes": {
		"webhook", "webhook/volume", "webhook/confirm", "webhook/change", "webhook/verdict", "webhook/explain",
		"reconciler", "reconciler/v1alpha1", "reconciler/plan", "reconciler/members", "reconciler/backup", "reconciler/observe",
		"reconciler/act", "reconciler/report", "certs", "deploy",
	},
}

// pure are the packages that decide and do no I/O.
var pure = []string{
	"webhook/volume", "webhook/confirm", "webhook/change", "webhook/verdict", "webhook/explain",
	"reconciler/plan", "reconciler/report", "reconciler/v1alpha1",
}

// impure are what pure packages may not import.
var impure = []string{"context", "net", "net/http", "os", "log", "log/slog", "math/rand", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}

// foreign are libraries with a place of their own, and the packages that may import them.
var foreign = map[string][]string{
	"github.com/gomarkdown/markdown":             {"webhook/explain"},
	"github.com/stretchr/testify":                nil,
	"github.com/virtual-kubelet/virtual-kubelet": nil,
	"go.etcd.io/etcd/server/v3":                  nil,
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	list.Dir = root(t)
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

func TestEveryPackageOfTheProductHasARowInTheTable(t *testing.T) {
	var rows []string
	for name := range mayImport {
		rows = append(rows, module+"/"+name)
	}
	packages := goList(t, "./...")
	packages = slices.DeleteFunc(packages, func(p string) bool { return strings.HasPrefix(p, module+"/test") })
	assert.ElementsMatch(t, packages, rows)
}

func TestTheShippedProgramHoldsNothingOfTheTests(t *testing.T) {
	for _, dep := range goList(t, "-deps", "./cmd/etcd-volumes") {
		for _, banned := range []string{
			module + "/test", "github.com/stretchr", "github.com/virtual-kubelet", "go.etcd.io/etcd/server", "go.etcd.io/etcd/etcdutl",
			"go.etcd.io/bbolt", "sigs.k8s.io/sig-storage-lib-external-provisioner", "github.com/vishvananda", "github.com/miekg/dns",
			"sigs.k8s.io/controller-runtime/pkg/envtest", "k8s.io/kubernetes",
		} {
			assert.Falsef(t, strings.HasPrefix(dep, banned), "the program holds %s", dep)
		}
	}
}

// linter finds the tool that make builds, in the version that the Makefile pins. A rule that nobody judged has not passed, so
// the test fails without it.
func linter(t *testing.T) string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	require.NoError(t, err)
	name := regexp.MustCompile(`golangci-lint-v[0-9.]+`).FindString(string(makefile))
	require.NotEmpty(t, name, "the Makefile pins no golangci-lint")
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	path := filepath.Join(cache, "etcd-volumes", "tools", name)
	require.FileExists(t, path, "the linter is not built yet: `make unit` and `make lint` build it")
	return path
}

func TestTheLinterRefusesExactlyTheImportsThatTheTableDoesNotAllow(t *testing.T) {
	tool := linter(t)
	skeleton := t.TempDir()
	want := seed(t, skeleton)

	rules, err := os.ReadFile(filepath.Join(root(t), ".golangci.yml"))
	require.NoError(t, err)
	write(t, filepath.Join(skeleton, ".golangci.yml"), string(rules)) // paths are told relative to it

	run := exec.CommandContext(t.Context(), tool, "run", "--enable-only", "depguard",
		"--output.json.path", "stdout", "--output.text.path", os.DevNull, "--show-stats=false", "--issues-exit-code", "0", "./...")
	run.Dir = skeleton
	run.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOLANGCI_LINT_CACHE="+t.TempDir())
	var complaints strings.Builder
	run.Stderr = &complaints
	out, err := run.Output()
	require.NoError(t, err, complaints.String())
	var report struct {
		Issues []struct {
			FromLinter string
			Text       string
			Pos        struct{ Filename string }
		}
	}
	require.NoError(t, json.Unmarshal(out, &report), "%s", out)
	var got []string
	for _, issue := range report.Issues {
		require.Equal(t, "depguard", issue.FromLinter, issue.Text)
		_, rest, ok := strings.Cut(issue.Text, "import '")
		require.True(t, ok, issue.Text)
		path, _, ok := strings.Cut(rest, "'")
		require.True(t, ok, issue.Text)
		got = append(got, filepath.ToSlash(filepath.Dir(issue.Pos.Filename))+" imports "+path)
	}
	slices.Sort(got)
	assert.Equal(t, want, slices.Compact(got))
}

// seed writes the skeleton of the house with every import of interest, and returns those that are to be refused, sorted.
func seed(t *testing.T, dir string) []string {
	t.Helper()
	var want []string
	targets := []string{"test/fixture"}
	for name := range mayImport {
		targets = append(targets, name)
	}
	slices.Sort(targets)
	for _, target := range targets {
		write(t, filepath.Join(dir, target, "seed", "seed.go"), "package seed\n")
	}
	requires := thirdParty(t, dir)
	write(t, filepath.Join(dir, "go.mod"), "module "+module+"\n\ngo 1.26.0\n"+requires)
	for from, allowed := range mayImport {
		imports := map[string]bool{}
		for _, target := range targets {
			if target != from {
				imports[module+"/"+target+"/seed"] = !slices.Contains(allowed, target)
			}
		}
		for _, path := range impure {
			imports[path] = slices.Contains(pure, from)
		}
		for path, welcome := range foreign {
			imports[path] = !slices.Contains(welcome, from)
		}
		var source strings.Builder
		source.WriteString("package seeded\n\nimport (\n")
		for path, refused := range imports {
			fmt.Fprintf(&source, "\t_ %q\n", path)
			if refused {
				want = append(want, from+" imports "+path)
			}
		}
		source.WriteString(")\n")
		write(t, filepath.Join(dir, from, "seeded.go"), source.String())
	}
	slices.Sort(want)
	return want
}

// thirdParty makes an empty module for each library, and returns the lines of go.mod that point to it.
func thirdParty(t *testing.T, dir string) string {
	t.Helper()
	var lines strings.Builder
	libraries := []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}
	for path := range foreign {
		libraries = append(libraries, path)
	}
	for i, path := range libraries {
		version := "v0.0.0"
		if strings.HasSuffix(path, "/v3") {
			version = "v3.0.0"
		}
		local := fmt.Sprintf(".third/%d", i)
		write(t, filepath.Join(dir, local, "go.mod"), "module "+path+"\n\ngo 1.26.0\n")
		write(t, filepath.Join(dir, local, "library.go"), "package library\n")
		fmt.Fprintf(&lines, "require %s %s\nreplace %s => ./%s\n", path, version, path, local)
	}
	return lines.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
