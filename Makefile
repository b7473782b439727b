# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Two commands are all a newcomer needs, as root: "make demo" and "make test".
# This file calls tools and holds no logic of its own.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# What runs side by side, tools/steps.sh starts.
.NOTPARALLEL:

# The build does not ask git for a revision (a checkout owned by somebody else
# would fail it); VERSION is stamped instead. With net and os/user in Go, the tests share
# the builds of their dependencies with the static programs.
export GOFLAGS += -buildvcs=false -tags=netgo,osusergo

MODULE   := github.com/podweir/podweir
VERSION  ?= $(shell tools/version.sh 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X $(MODULE)/plugin/version.stamped=$(VERSION)
GO_BUILD := CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)'
# What ships has no paths of this machine, and resolves names as its system does.
GO_SHIP  := $(GO_BUILD) -trimpath -tags=

# How long each fuzz target runs in "make fuzz" and in "make test-all".
FUZZTIME      ?= 3s
LONG_FUZZTIME ?= 2m
# The emulated kernels of "make test" and "make gate", and of "make test-all".
KERNELS     ?= 6.1,newest
ALL_KERNELS ?= 6.1,6.12,newest
# C that we write; bpf/headers is the kernel's and libbpf's.
C_FILES  = $(shell find bpf e2e/lab e2e/rivals -name headers -prune -o -name '*.[ch]' -print)
SH_FILES = .ci/run $(shell find bpf e2e tools -name '*.sh')
GO_FILES = $(shell find bpf compat e2e plugin tools -name '*.go' 2>/dev/null)
# A module without Go only pins what a script builds, and Go's tools refuse it.
NESTED   = $(foreach mod,$(shell find e2e plugin tools -name go.mod -printf '%h\n' 2>/dev/null),$(if $(wildcard $(mod)/*.go),$(mod)))

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

##@ Run

.PHONY: demo
demo: perfrig ## Shape real pods and print the comparison table (root, < 4 minutes).
	bin/perfrig demo

.PHONY: build
build: ## Build the static binaries bin/podweir-cni and bin/podweir (no clang needed).
	$(GO_BUILD) -o bin/ ./plugin/cmd/podweir-cni ./plugin/cmd/podweir

.PHONY: plugin
plugin: ## Build bin/kubectl-podweir, the plugin of kubectl for the whole cluster.
	cd plugin/cmd/kubectl-podweir && $(GO_BUILD) -tags= -o $(CURDIR)/bin/ .

.PHONY: refplugins
refplugins: ## Build the reference CNI plugins into bin/ref.
	cd e2e/k8s/components && CGO_ENABLED=0 go build -o $(CURDIR)/bin/ref/ \
		$$(sed -n 's,^\t\(github.com/containernetworking/[^ ]*\)$$,\1,p' go.mod)

# gVisor looks into Go's runtime, and panics with a release of Go that it does not know.
.PHONY: runsc
runsc: export GOTOOLCHAIN = go1.24.13
runsc: ## Build gVisor's runsc, and what runs in its sandbox, into bin/gvisor.
	cd e2e/refruntimes && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/bin/gvisor/ tool
	cd e2e/k8s && CGO_ENABLED=0 GOTOOLCHAIN=auto go build -trimpath -o $(CURDIR)/bin/gvisor/ ./work

.PHONY: npa
npa: ## Build the AWS Network Policy Agent's driver and programs into bin/npa (clang).
	cd e2e/npa && CGO_ENABLED=0 go build -o $(CURDIR)/bin/npa/npa .
	e2e/npa/compile.sh bin/npa

# The name under which the image is loaded. The tag is the version of the source: one name
# never means two images.
IMAGE    ?= localhost/podweir/podweir:$(VERSION)
# Time of the image and of its files: that of the commit, in seconds since 1970.
CREATED  ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)

.PHONY: image
image: ## Build the container image for amd64 and arm64 into bin/image, with SBOMs; load it if docker runs.
	for arch in amd64 arm64; do GOARCH=$$arch $(GO_SHIP) -o bin/image/$$arch/ ./plugin/cmd/podweir ./plugin/cmd/podweir-cni; done
	digest=$$(tools/image/image.sh '$(VERSION)' '$(REVISION)' $(CREATED) '$(IMAGE)') && \
		echo "$$digest" | tee bin/image/digest
	if docker info >/dev/null 2>&1; then docker load -i bin/image/podweir-docker.tar; fi

##@ Check

# The tiers are lists of targets of this file; each target also runs by itself. Those
# joined by + run side by side, and those joined by a comma one after the other: what
# compiles beside what waits, and nothing beside what measures. Which tests a tier has, the tests say (plugin/testutil/mark).
QUICK = vet+test-short+chart-render+test-pages
TEST  = setup tools check-generate lint+test-functional+test-kernels test-unit+chart-test+test-pages test-timed
GATE  = test setup-cluster image+components+test-nested test-cluster,matrix-fast+test-kernels-rest test-coverage
ALL   = setup tools runsc lint,lint-nested+chart-test check-generate test-unit+test-nested+test-pages \
	test-functional,check-image,long-fuzz+test-kernels test-timed test-coverage \
	test-cluster matrix-all test-cilium bench

.PHONY: quick
quick: ## Vet, unit tests that do not wait, the chart, and all tests that read pages (no root, 10 seconds).
	tools/steps.sh -m '$(MAKE)' $(QUICK)

.PHONY: test
test: rights ## What a change must pass: linters, unit tests, the chart, the kernel, real traffic (root, installs what it needs, ten minutes; longer the first time).
	TIER=test tools/steps.sh -m '$(MAKE)' $(TEST)

# "gate" is what .ci/run calls.
.PHONY: gate
gate: rights ## test, then more of it on other kernels, a real cluster and the fast rows of the CNI matrix (root, half an hour; longer the first time).
	TIER=gate tools/steps.sh -m '$(MAKE)' $(GATE)

.PHONY: test-all
test-all: rights ## Everything, on every kernel, with long fuzzing, every row and benchmarks; its result is written to docs/contributing/testing.md (root, hours).
	TIER=all tools/steps.sh -k -m '$(MAKE)' -r docs/contributing/testing.md $(ALL)

# Some steps, such as STEPS="setup lint"; ci.yml has the gate in jobs.
STEPS ?=
.PHONY: run-steps
run-steps: rights
	TIER=gate tools/steps.sh -m '$(MAKE)' $(STEPS)

# The tier that a step is run for: test, gate or all.
TIER ?= test
export PODWEIR_TIER = $(TIER)

.PHONY: rights
rights:
	@tools/rights.sh $(firstword $(filter gate test-all,$(MAKECMDGOALS)) $(if $(filter run-steps,$(MAKECMDGOALS)),gate))

# What several steps need that run side by side.
.PHONY: tools
tools: build refplugins npa tiers setup-kernels bin/tools/gotestsum

.PHONY: tiers
tiers:
	CGO_ENABLED=0 go build -o bin/tools/tiers ./tools/tiers

.PHONY: vet
vet:
	go vet ./...

.PHONY: test-short
test-short: ## Unit tests without those that wait; results are cached.
	go test -short -timeout 2m -skip '^TestPrivileged' ./...
	cd plugin/cmd/kubectl-podweir && CGO_ENABLED=0 go test -short -count=1 -timeout 5m ./...

# Go's cache of results does not see that a page or the chart, outside of the tests'
# module, is another: -count=1, or the linked program.
.PHONY: chart-render
chart-render: ## Hold the rendered chart against its goldens, and pages against the chart.
	cd tools/charttest && CGO_ENABLED=0 go test -c -o $(CURDIR)/bin/tools/charttest . && \
		$(CURDIR)/bin/tools/charttest -test.run '^Test(GoldenRenders|SettingsAreFlags|DashboardQueries|AlertsReadMetricsThatExist)$$'

.PHONY: test-pages
test-pages: check-figures ## Hold pages against what nested modules know; test-short and test-unit do it for the product's.
	cd e2e/matrix && CGO_ENABLED=0 go test -count=1 -timeout 5m ./...

# Four packages at a time: some wait more than they compute.
.PHONY: test-unit
test-unit: ## Tests that need no privileges, and every fuzz corpus, under the race detector.
	CGO_ENABLED=1 go test -race -p 4 -timeout 20m -skip '^TestPrivileged' ./...
	cd plugin/cmd/kubectl-podweir && CGO_ENABLED=0 go test -count=1 -timeout 5m ./...

.PHONY: test-nested
test-nested: ## The same of the nested modules under e2e and tools, without the race detector.
	cd e2e/cilium && CGO_ENABLED=0 go test -timeout 5m ./...
	cd e2e/k8s && CGO_ENABLED=0 go vet ./... && CGO_ENABLED=0 go test -count=1 -timeout 5m -skip '^TestPrivileged' ./work ./cluster
	cd e2e/flannel && CGO_ENABLED=0 go test -timeout 5m ./plugin

.PHONY: chart-test
chart-test: ## Lint and render the chart, hold it against its goldens, and check it as an EKS add-on.
	cd tools/charttest && CGO_ENABLED=0 go test -count=1 -timeout 10m ./...

# The tag of a release, vX.Y.Z; "dry-run" takes the chart's version and the notes of
# "Unreleased".
RELEASE ?= dry-run

# Where kubectl podweir runs.
PLUGIN_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: release-plugin
release-plugin: ## Build kubectl podweir for all platforms into bin/release-plugin, pack and check it (no registry).
	cd plugin/cmd/kubectl-podweir && for p in $(PLUGIN_PLATFORMS); do \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO_SHIP) -o $(CURDIR)/bin/release-plugin/$$p/ .; done
	tools/plugin.sh '$(VERSION)' '$(CREATED)' $(PLUGIN_PLATFORMS)

.PHONY: release-check
# The chart as it is names this image.
release-check: IMAGE = localhost/podweir/podweir:$(shell sed -n 's/^  tag: //p' chart/values.yaml)
release-check: image release-plugin ## Put what a release has into bin/release and check it; pushes nothing.
	cd e2e/k8s/components && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/bin/tools/helm helm.sh/helm/v3/cmd/helm
	tools/release.sh '$(RELEASE)' bin/tools/helm

.PHONY: docs
docs: bin/docs/bin/mkdocs ## Build the documentation as a site into bin/site; fail if a link is broken.
	NO_MKDOCS_2_WARNING=1 bin/docs/bin/mkdocs build --strict -f tools/docs/mkdocs.yml

# The release whose pages are published, such as 0.1.0. Commits to the branch gh-pages
# of this clone; whoever may, pushes it.
DOCS_RELEASE ?= $(shell sed -n 's/^version: //p' chart/Chart.yaml)

.PHONY: docs-release
docs-release: docs ## Add the documentation as the pages of DOCS_RELEASE to the branch gh-pages, which has all releases; pushes nothing.
	cd tools/docs && PATH=$(CURDIR)/bin/docs/bin:$$PATH NO_MKDOCS_2_WARNING=1 mike deploy --branch gh-pages --update-aliases '$(DOCS_RELEASE)' latest
	cd tools/docs && PATH=$(CURDIR)/bin/docs/bin:$$PATH NO_MKDOCS_2_WARNING=1 mike set-default --branch gh-pages latest

bin/docs/bin/mkdocs: tools/docs/requirements.txt
	python3 -m venv bin/docs
	bin/docs/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

.PHONY: check-image
check-image: image ## Build the image once more, elsewhere and without a cache, and compare the digests.
	tools/image/reproduce.sh '$(VERSION)' '$(REVISION)' '$(CREATED)' '$(IMAGE)'

GOTESTSUM = bin/tools/gotestsum --format=standard-verbose --hide-summary=skipped,output

# Packages side by side and cases of a package side by side: these tests wait for four
# fifths of their time.
.PHONY: test-functional
test-functional: build refplugins npa tiers vmrig bin/tools/gotestsum ## Privileged tests that judge no times, beside one another (root).
	$(GOTESTSUM) --jsonfile=bin/functional.json --packages="$$(bin/tools/tiers packages $(TIER) shared)" \
		-- -count=1 -p 4 -parallel 8 -timeout 20m -run "$$(bin/tools/tiers pattern $(TIER) shared)" \
		| grep -v --line-buffered '^=== '
	bin/vmrig report -host bin/functional.json

# What measures may meet a moment in which the machine gives it no processor: up to two
# tests that fail run once more, and the end of the output names them. "make test-all" hides
# none.
.PHONY: test-timed
test-timed: build refplugins tiers vmrig bin/tools/gotestsum ## Privileged tests that judge times and rates, one at a time (root; an idle machine).
	: >bin/timed.again
	$(GOTESTSUM) --jsonfile=bin/timed.json --rerun-fails=$(if $(filter all,$(TIER)),0,1) --rerun-fails-max-failures=2 --rerun-fails-report=bin/timed.again --packages="$$(bin/tools/tiers packages $(TIER) alone)" \
		-- -count=1 -p 1 -parallel 4 -timeout 40m -run "$$(bin/tools/tiers pattern $(TIER) alone)" \
		| grep -v --line-buffered '^=== '
	cat bin/timed.again
	bin/vmrig report -host bin/timed.json

# The timeout is that of a kernel's machine.
.PHONY: test-kernels
ifeq ($(TIER),all)
test-kernels: setup-kernels ## The privileged tests that are marked for it, on the kernels of KERNELS, emulated (root).
	bin/vmrig test -tier all -k $(ALL_KERNELS) -timeout 4h
else
test-kernels: setup-kernels
	bin/vmrig test -tier test -k $(KERNELS) -timeout 20m
endif

.PHONY: test-kernels-rest
test-kernels-rest: setup-kernels ## Those that only "make gate" has, likewise.
	bin/vmrig test -tier gate -without test -k $(KERNELS) -timeout 60m

.PHONY: test-coverage
test-coverage: ## Fail if a privileged test was skipped by every kernel.
	bin/vmrig report -tier $(TIER) -host bin/functional.json -host bin/timed.json $(if $(filter all,$(TIER)),bin/kernels/all.json,bin/kernels/test.json bin/kernels/gate.json)

# Seven minutes of files that are written, half of them in place.
.PHONY: rewrites
rewrites: ## Have primary CNIs write each of their files 10,000 times, in every way; podweir is never out of the chain.
	go test -count=1 -timeout 60m -run '^TestRewrites$$' ./plugin/agent/delivery -rewrites 10000

.PHONY: coexistence
coexistence: TIER = all
coexistence: build refplugins npa setup-kernels ## Every neighbour in every order on every kernel (root).
	go test -count=1 -timeout 40m -run '^TestPrivileged' ./e2e/coexist
	bin/vmrig test -timeout 60m -dir bin/coexistence ./e2e/coexist

.PHONY: test-cluster
test-cluster: setup-cluster image plugin bin/tools/gotestsum ## Install the chart in a real Kubernetes cluster of this machine and hold it to its promises (root).
	cd e2e/k8s && CGO_ENABLED=0 $(CURDIR)/$(GOTESTSUM) --packages=. -- -count=1 -timeout $(if $(filter all,$(TIER)),90m,30m)

# Directory for the logs of rows, also of those that pass.
ROW_LOGS ?=

# Rows of "make matrix", as regular expressions for whole names; all that can run
# here if empty.
ROWS ?=
# How many run side by side, each in a cluster of its own.
JOBS ?= 2
MATRIX_PAGE = docs/reference/support.md

.PHONY: matrix-command
matrix-command:
	cd e2e/matrix && CGO_ENABLED=0 go build -o $(CURDIR)/bin/matrix .

.PHONY: matrix
matrix: setup-cluster image matrix-command ## Run podweir beside each primary CNI of ROWS in a real cluster; the table of docs/reference/support.md is rewritten (root, an hour; 40 minutes more the first time).
	bin/matrix -jobs $(JOBS) -page $(MATRIX_PAGE) -logs '$(ROW_LOGS)' $(ROWS)

# Every row, without a change to the checkout.
.PHONY: matrix-all
matrix-all: MATRIX_PAGE = bin/support.md
matrix-all: matrix

.PHONY: matrix-fast
matrix-fast: setup-cluster image matrix-command ## The same for the fast rows, without the page (root, 8 minutes).
	bin/matrix -fast

.PHONY: test-cilium
test-cilium: setup setup-cluster image ## What the Cilium rows of the matrix do not show: its bandwidth manager on and off, podweir's chain handed over, the bandwidth plugin (root; Cilium is built once).
	cd e2e/k8s && CGO_ENABLED=0 go test -v -count=1 -timeout 40m -run '^TestPrivileged' ./cilium

.PHONY: outdated
outdated: matrix-command ## Print how far each neighbour that tests build is behind its newest release, and write it to docs/reference/support.md.
	bin/matrix -outdated -page $(MATRIX_PAGE)

.PHONY: matrix-page
matrix-page: matrix-command ## Write the table of docs/reference/support.md from its rows and the last results; runs nothing.
	bin/matrix -render -page $(MATRIX_PAGE)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (3s).
	tools/fuzz.sh $(FUZZTIME)

.PHONY: long-fuzz
long-fuzz: ## Run every fuzz target for LONG_FUZZTIME (2m).
	tools/fuzz.sh $(LONG_FUZZTIME)

# What reads bytes that others write: the runtime, the API server, other CNIs and
# the authors of pods. FUZZCOUNT is for each target.
DECODERS  = plugin/agent/(cri|kube|nri) |compat/(conflist|detect) |plugin/netconf |plugin/units
FUZZCOUNT ?= 10000000x

.PHONY: fuzz-decoders
fuzz-decoders: ## Run the fuzz targets of what reads others' bytes for FUZZCOUNT (10000000x) executions each, one processor (hours).
	tools/fuzz.sh $(FUZZCOUNT) '$(DECODERS)' -parallel=1 -fuzzminimizetime=10x

.PHONY: lint
lint: bin/tools/golangci-lint bin/tools/actionlint ## All linters and formatters in the product's module, without changing a file.
	@echo gofmt; test -z "$$(gofmt -l $(GO_FILES) | tee -a /dev/stderr)"
	go mod tidy -diff
	go run ./tools/tiers names >/dev/null
	bin/tools/golangci-lint run
	clang-format-19 --Werror -n $(C_FILES)
	shellcheck $(SH_FILES)
	bin/tools/actionlint -shellcheck shellcheck

.PHONY: lint-nested
lint-nested: bin/tools/golangci-lint ## The Go linters in the nested modules, whose dependencies take them minutes.
	for dir in $(NESTED); do (cd $$dir && CGO_ENABLED=0 $(CURDIR)/bin/tools/golangci-lint run); done

.PHONY: check-figures
check-figures: ## Fail unless every figure in README.md and docs is what the committed results give.
	go run ./tools/perfrig quote -check

.PHONY: size
size: ## Count lines of Go, words of documentation and modules, beside their targets.
	tools/size.sh

.PHONY: perfrig
perfrig: setup-demo build refplugins
	CGO_ENABLED=0 go build -o bin/perfrig ./tools/perfrig

# The build that "bin/perfrig run -profile loads" takes beside that of the checkout.
BEFORE ?= $(shell git describe --tags --abbrev=0 2>/dev/null || echo HEAD~1)

.PHONY: before
before: ## Build bin/podweir-cni-before from the commit BEFORE, to be measured beside today's.
	rm -rf bin/before
	git worktree prune
	git worktree add --quiet --detach bin/before '$(BEFORE)'
	cd bin/before && $(GO_BUILD) -o $(CURDIR)/bin/podweir-cni-before ./plugin/cmd/podweir-cni
	git worktree remove --force bin/before

# What "make perf" measures: costs, loads, rivals or scale.
PROFILE ?= costs

.PHONY: perf
perf: perfrig ## Take the campaign of PROFILE (root, 20 minutes to hours; goes on where it was interrupted).
	bin/perfrig run -profile '$(PROFILE)'

# One baseline of each is kept: the new one takes the place of the old.
DAY = $(shell date -u +%F)

.PHONY: perf-rivals
perf-rivals: perfrig ## Take the campaign beside Cilium's and Calico's limits, and publish it: docs/results and every figure (root, 50 minutes).
	bin/perfrig run -profile rivals
	rm -rf docs/results/*-netns-rivals
	mkdir docs/results/$(DAY)-netns-rivals
	cp bin/perf/rivals/samples.jsonl docs/results/$(DAY)-netns-rivals/
	$(MAKE) figures

.PHONY: bench
bench: perfrig ## Measure caps, latency, ADD, memory and cost per packet; fail if a target is missed (root, 20 minutes).
	bin/perfrig run -profile costs
	bin/perfrig report -check bin/perf/costs/samples.jsonl

##@ Change

.PHONY: figures
figures: ## Rewrite what README.md and docs quote of docs/results; measures nothing.
	go run ./tools/perfrig quote

.PHONY: update-chart
update-chart: ## Rewrite the chart's goldens and docs/examples.
	cd tools/charttest && UPDATE=1 CGO_ENABLED=0 go test -count=1 ./...

.PHONY: fmt
fmt: bin/tools/golangci-lint ## Format Go and C.
	bin/tools/golangci-lint fmt
	clang-format-19 -i $(C_FILES)

.PHONY: generate
generate: ## Rebuild the BPF objects and bindings with the clang of bpf/CLANG_VERSION.
	go generate ./bpf/... ./e2e/lab/wiremeter ./e2e/rivals

.PHONY: check-generate
check-generate: ## Fail unless the committed BPF objects are what the source gives.
	bpf/check-generate.sh

.PHONY: update-budget
update-budget: setup-kernels ## Write what the verifier spends on each program on each kernel to bpf/verifier-budget.json (root).
	tools/budget.sh

.PHONY: setup
setup: ## Install the Debian packages that tests and linters need and are missing.
	tools/setup.sh test

.PHONY: setup-demo
setup-demo: ## Install the Debian packages that the demo needs and are missing.
	tools/setup.sh demo

.PHONY: setup-cluster
setup-cluster: ## Install what the Kubernetes cluster of the tests needs and is missing.
	tools/setup.sh e2e

.PHONY: components
components: setup-cluster ## Build Kubernetes, containerd and the images of that cluster (root, once; minutes).
	e2e/k8s/setup.sh

.PHONY: vmrig
vmrig:
	CGO_ENABLED=0 go build -o bin/vmrig ./tools/vmrig

.PHONY: setup-kernels
setup-kernels: vmrig # and what boots them (root, once).
	tools/vmrig/setup.sh

.PHONY: clean
clean: ## Remove what this file builds.
	rm -rf bin

# Tools are Go modules with their versions in tools/*.mod, apart from the
# product's own dependencies; built once, and again when the version changes.
# The longest of all builds gives way to the tests that run beside it.
bin/tools/golangci-lint: tools/tools.mod tools/tools.sum
	nice go build -modfile=tools/tools.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/tools/actionlint: tools/actionlint.mod tools/actionlint.sum
	go build -modfile=tools/actionlint.mod -o $@ github.com/rhysd/actionlint/cmd/actionlint

bin/tools/gotestsum: tools/gotestsum.mod tools/gotestsum.sum
	CGO_ENABLED=0 go build -modfile=tools/gotestsum.mod -o $@ gotest.tools/gotestsum
