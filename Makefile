# `make` alone prints the help. Each target does its own set-up: on a fresh clone any of them can be the first.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:

# Tools are shared by all clones and pinned by the version in their file name: a bump builds a new one beside the old.
XDG_CACHE_HOME ?= $(HOME)/.cache
TOOLS   := $(XDG_CACHE_HOME)/etcd-volumes/tools
KEEP    ?=
NAIVE   ?=
FUZZTIME ?= 10s

# name-version | module path: one line a tool.
GOLANGCI_LINT  := $(TOOLS)/golangci-lint-v2.15.0
CONTROLLER_GEN := $(TOOLS)/controller-gen-v0.23.0
GOTESTSUM      := $(TOOLS)/gotestsum-v1.13.0
$(GOLANGCI_LINT):  PKG := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(CONTROLLER_GEN): PKG := sigs.k8s.io/controller-tools/cmd/controller-gen
$(GOTESTSUM):      PKG := gotest.tools/gotestsum
# Built in a directory of its own and moved into place: two makes at once do not meet.
$(GOLANGCI_LINT) $(CONTROLLER_GEN) $(GOTESTSUM):
	@mkdir -p $(TOOLS)
	@echo "building $(notdir $@) (once for this machine)" >&2
	@tmp=$$(mktemp -d $(TOOLS)/.build-XXXXXX); trap 'rm -rf "$$tmp"' EXIT; \
	  cd "$$tmp"; GOFLAGS= GOWORK=off GOBIN="$$tmp" go install $(PKG)@$(lastword $(subst -v, v,$(notdir $@))); \
	  mv "$$tmp/$(notdir $(PKG))" $@

# The suites that start a control plane: run one after the other, each with the machine to itself. All others are unit tests.
# `=` and not `:=`, so that go is asked only when needed.
SUITE  := /test/(cluster|e2e)(/|$$)|/test/druid(/live)?$$
SUITES  = $(shell go list ./... | grep -E '$(SUITE)')
UNITS   = $(shell go list ./... | grep -vE '$(SUITE)')
TEST := $(GOTESTSUM) --format pkgname-and-test-fails --

##@ Everyday
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
demo: ## A storage class changed under a running etcd. KEEP=1 leaves the cluster up; NAIVE=1 or NAIVE=kill: by hand.
	@echo "building the demo (the first time: some minutes, then the control plane)" >&2
	@go run ./test/demo $(if $(KEEP),-keep) $(if $(NAIVE),-naive=$(if $(filter 1,$(NAIVE)),graceful,$(NAIVE)))
test: unit cluster ## All tests, those on a real cluster included.
check: lint generated test ## All that CI runs, in CI's order.
build: ## The operator, into bin/.
	CGO_ENABLED=0 go build -trimpath -o bin/etcd-volumes ./cmd/etcd-volumes
fix: $(GOLANGCI_LINT) ## Format, and apply the linters' own fixes.
	$(GOLANGCI_LINT) fmt
	$(GOLANGCI_LINT) run --fix ./...
golden: ## Rewrite the golden files; read the diff before committing it.
	go test $$(grep -rl 'test/golden"' --include='*_test.go' cmd webhook reconciler test | xargs -n1 dirname | sort -u | sed 's|^|./|') -update

##@ Checks
unit: $(GOTESTSUM) $(GOLANGCI_LINT) ## Tests without a cluster, with the race detector, in random order.
	$(TEST) -race -shuffle=on -timeout 20m $(UNITS)
cluster: $(GOTESTSUM) ## Tests on a real cluster, one suite at a time.
	@go run ./test/cluster/cmd/local-cluster build >/dev/null
	@$(TEST) -count=1 -p 1 -timeout 40m $(SUITES)
lint: $(GOLANGCI_LINT) ## Formatting, linters, import direction.
	$(GOLANGCI_LINT) fmt --diff
	$(GOLANGCI_LINT) run ./...
	go mod tidy -diff
generated: $(CONTROLLER_GEN) ## Fail where generated files are stale.
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	  files=$$(find deploy/crd.yaml webhook reconciler test -name 'zz_generated*' -o -path deploy/crd.yaml | sort); \
	  for f in $$files; do mkdir -p "$$tmp/$$(dirname $$f)"; cp "$$f" "$$tmp/$$f"; done; \
	  $(MAKE) generate; stale=0; \
	  for f in $$files; do diff -u "$$tmp/$$f" "$$f" || stale=1; done; \
	  if (( stale )); then echo 'generated files were stale; they are up to date now, commit them' >&2; exit 1; fi
generate: $(CONTROLLER_GEN) ## DeepCopy methods and the CRD.
	$(CONTROLLER_GEN) object paths=./webhook/volume paths=./reconciler/v1alpha1 paths=./test/druid/api
	$(CONTROLLER_GEN) crd paths=./reconciler/v1alpha1 output:crd:stdout > deploy/crd.yaml
fuzz: ## Each fuzz target for FUZZTIME.
	@go list -f '{{$$p := .ImportPath}}{{range .TestGoFiles}}{{$$p}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$p}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | \
	while read -r pkg file; do \
	  [[ -n $$file ]] || continue; \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
	    echo "== $$pkg $$name"; go test "$$pkg" -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME); \
	  done; \
	done

.PHONY: help demo test check build fix golden unit cluster lint generated generate fuzz
