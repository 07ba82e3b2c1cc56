# `make help` lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# The binary is static and names no folder of the machine that built it. What else is
# compiled with the same flags comes from the same build cache.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE ?= rollcall:dev
# Extra flags of every `go test`, such as GOTESTFLAGS='-count=1 -v'.
GOTESTFLAGS ?=
TESTTIMEOUT ?= 10m
BENCHTIME ?= 1s
BENCH ?= .
FUZZTIME ?= 1m
CHAOS ?= 10m
SEED ?=
# Arguments of the server that `make run` starts.
ARGS ?=

# The race detector links C.
RACE := CGO_ENABLED=1 $(GO)

# The root module and the one with the tests that drive whole clusters.
MODULES := . integration

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CURDIR)/bin/golangci-lint-$(GOLANGCI_VERSION)
BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da
BENCHSTAT := $(CURDIR)/bin/benchstat-$(BENCHSTAT_VERSION)

COMPOSE := $(shell if docker compose version >/dev/null 2>&1; then echo docker compose; else echo docker-compose; fi)
# A client without the buildx plugin can only use the engine's own builder.
DOCKER_ENV = $(shell docker buildx version >/dev/null 2>&1 || echo DOCKER_BUILDKIT=0)

# $(call each-module,command) runs the command in each module's folder, in all of
# them even when one fails.
each-module = @rc=0; for m in $(MODULES); do echo "== module $$m"; (cd "$$m" && $(1)) || rc=1; done; exit $$rc

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

## Running and building

.PHONY: run
run: ## start a standalone node (ARGS='--port 8858' adds flags)
	$(GO) run ./cmd/rollcall server $(ARGS)

.PHONY: build
build: ## build the static binary bin/rollcall
	$(GO) build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/rollcall ./cmd/rollcall

.PHONY: proto
proto: ## generate Go code from the .proto files
	@command -v protoc >/dev/null || { echo 'protoc is missing: apt-get install protobuf-compiler' >&2; exit 1; }
	$(GO) build -o bin/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go
	@shopt -s nullglob; files=(server/wire/*.proto raftstore/*.proto); \
	  [ $${#files[@]} -gt 0 ] || { echo 'no .proto files'; exit 0; }; \
	  protoc --plugin=protoc-gen-go=bin/protoc-gen-go --proto_path=. --go_out=. --go_opt=paths=source_relative "$${files[@]}"; \
	  printf 'generated from %s\n' "$${files[@]}"

.PHONY: tools
tools: $(GOLANGCI) ## install the pinned linter into bin/

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

$(BENCHSTAT):
	GOBIN=$(CURDIR)/bin $(GO) install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
	mv bin/benchstat $@

## Checks

.PHONY: check
check: fmt-check lint test race ## fmt-check, lint, test, race

.PHONY: fmt
fmt: $(GOLANGCI) ## format all Go files
	$(GOLANGCI) fmt

.PHONY: fmt-check
fmt-check: $(GOLANGCI) ## fail when a Go file is not formatted
	$(GOLANGCI) fmt --diff

.PHONY: lint
lint: $(GOLANGCI) ## run the linters over both modules
	$(call each-module,$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...)

.PHONY: test
test: ## all tests that need no special rights, both modules
	$(call each-module,$(GO) test -timeout $(TESTTIMEOUT) $(GOTESTFLAGS) ./...)

# All is compiled first, which takes all processors, and the longest packages begin.
# raftstore goes alone: beside others its clusters would miss the times within which
# leaders must be heard.
.PHONY: race
race: ## the root module's tests and the nodes that integration starts under the race detector
	$(RACE) list -race -export -deps -test ./... >/dev/null
	$(RACE) test -race -vet=off -p 2 -timeout $(TESTTIMEOUT) $(GOTESTFLAGS) ./server/... ./client/... $$($(GO) list ./... | grep -v '/raftstore$$')
	$(RACE) test -race -vet=off -timeout $(TESTTIMEOUT) $(GOTESTFLAGS) ./raftstore
	cd integration && ROLLCALL_RACE=1 $(GO) test -vet=off -timeout $(TESTTIMEOUT) $(GOTESTFLAGS) .

# Each story has several processes and hundreds of clients of its own.
.PHONY: test-cluster
test-cluster: build ## the stories of several nodes, the long ones too, against the static binary
	cd integration && ROLLCALL_TEST_CLUSTER=1 ROLLCALL_BINARY=$(CURDIR)/bin/rollcall $(GO) test -count=1 -parallel 4 -timeout $(TESTTIMEOUT) $(GOTESTFLAGS) \
	  -run '^Test(Cluster|Ephemeral|Persistent|Consistent|Life|Fault|Rolling|Kubernetes|Client)_|^TestC(099|14[0-9]|15[0-9]|16[0-9]|17[0-9])_' .

.PHONY: test-chaos
test-chaos: build ## faults by chance for CHAOS (10m), under clients; SEED=n repeats the choices of a run
	cd integration && ROLLCALL_TEST_CHAOS=$(CHAOS) ROLLCALL_TEST_SEED=$(SEED) ROLLCALL_BINARY=$(CURDIR)/bin/rollcall \
	  $(GO) test -count=1 -v -timeout 0 -run '^TestChaos$$' .

.PHONY: test-clients
test-clients: build ## unmodified clients in their own runtimes, as far as their registries are in reach
	cd integration && ROLLCALL_TEST_CLIENTS=1 ROLLCALL_BINARY=$(CURDIR)/bin/rollcall $(GO) test -count=1 -v -timeout 2h -run '^TestRuntimes$$' .

.PHONY: test-compose
test-compose: build ## the image and the compose file, driven from outside (needs a container engine)
	scripts/test-compose.sh

# What does not depend on how busy or fast the machine is, or hardly.
STEADY := .unit:(ratio OR cpu-ratio OR "allocs/op" OR "B/instance" OR "B/subscription" OR "B/conn" OR "RSS-MB")

.PHONY: bench
bench: $(BENCHSTAT) ## benchmarks (BENCH=regexp, BENCHTIME=1s or 1x), compared with the kept ones
	@mapfile -t pkgs < <(grep -rl --include='*_test.go' --exclude-dir=integration '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	  [ $${#pkgs[@]} -gt 0 ] || { echo 'no benchmarks'; exit 0; }; \
	  $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -timeout 60m "$${pkgs[@]}" | tee bin/bench.txt
	@echo; echo 'Ratios, allocations and memory beside docs/benchmarks/baseline.txt:'
	@$(BENCHSTAT) -filter '$(STEADY)' $(wildcard docs/benchmarks/baseline.txt) bin/bench.txt

.PHONY: bench-baseline
bench-baseline: ## keep the results of the last `make bench` as those to compare with
	cp bin/bench.txt docs/benchmarks/baseline.txt

.PHONY: bench-growth
bench-growth: ## cost of an operation as a node holds more, with the drawing in docs/benchmarks
	$(GO) test ./server -run '^$$' -bench Growth -benchtime $(BENCHTIME) -timeout 30m | tee bin/growth.txt
	cd integration && $(GO) run ./benchplot -json ../docs/benchmarks/growth.json < ../bin/growth.txt && \
	  $(GO) run ./benchplot -svg ../docs/benchmarks/growth.svg < ../docs/benchmarks/growth.json

.PHONY: bench-cluster
bench-cluster: build ## benchmarks of three real processes (BENCH=regexp)
	cd integration && ROLLCALL_BINARY=$(CURDIR)/bin/rollcall $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime 1x -timeout 30m .

.PHONY: simulate
simulate: ## the protocol of ephemeral data through SEEDS (100000) simulated runs, from FIRST (1)
	ROLLCALL_SIM_SEEDS=$(or $(SEEDS),100000) ROLLCALL_SIM_FIRST=$(or $(FIRST),1) $(GO) test -count=1 -timeout 0 -v -run '^TestSimulate$$' ./distro

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (1m)
	@mapfile -t targets < <(grep -rHoE --include='*_test.go' --exclude-dir=integration '^func Fuzz[A-Za-z0-9_]+' . | sort); \
	  [ $${#targets[@]} -gt 0 ] || { echo 'no fuzz targets'; exit 0; }; \
	  for t in "$${targets[@]}"; do \
	    dir=$$(dirname "$${t%%:*}"); name=$${t##*func }; echo "== $$name in $$dir"; \
	    $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	  done

## Containers

.PHONY: image
image: build ## build the container image rollcall:dev
	rm -rf bin/image && mkdir -p bin/image/data && cp bin/rollcall bin/image/
	$(DOCKER_ENV) docker build -t $(IMAGE) -f Dockerfile bin/image

.PHONY: up
up: image ## start docker-compose.yml
	$(COMPOSE) up -d

.PHONY: down
down: ## stop what `make up` started; the data volumes stay
	$(COMPOSE) down

.PHONY: logs
logs: ## follow the containers' logs
	$(COMPOSE) logs -f
