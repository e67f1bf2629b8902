# The work of the repository. Everything but the wheel is a Go command; the steps of check are the functions of .ci/check.

FUZZTIME ?= 10000x
BENCH ?= .
PKG ?= ./...
SEED ?= 1
SEEDS ?= 50
OPS ?= 40000
PROGRAMS ?= 100000
FAULTY ?= 1000
SOAK ?= 1h
MUTANTS ?= 100
MUTATED ?= ./mem/... ./driver/... ./tensor/... ./snapshot/... ./trace/... ./replay/... ./collective/...

.PHONY: help build test check fmt fuzz bench campaign mutants remat soak gpu policies pictures compare wheel release clean

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' Makefile
	@echo 'steps of check, each also: bash .ci/check STEP'
	@bash .ci/check

build: ## build the programs into bin/
	go build -o bin/ ./cmd/...

test: ## the tests, as README.md says
	go test ./...

check: ## everything that a change must pass
	bash .ci/check fmt vet lint tidy vuln test order builds race invariants cross libashlar python browser fuzz smoke

fmt: ## format every file
	go tool gofumpt -w .

fuzz: ## every fuzz target on FUZZTIME inputs (default 10000x)
	FUZZTIME=$(FUZZTIME) bash .ci/check fuzz

campaign: ## random histories, 10^9 operations in some hours: make campaign SEED=1 SEEDS=50 OPS=40000
	go test -v -tags invariants -timeout 0 ./internal/campaign -seed $(SEED) -seeds $(SEEDS) -ops $(OPS)
	go test -timeout 0 ./mem/paged -run 'TestCampaign$$' -seed $(SEED) -ops $$(($(SEEDS)*$(OPS)))
	go test -timeout 0 ./mem/arena -run 'TestCampaign$$' -seed $(SEED) -ops $$(($(SEEDS)*$(OPS)))
	go test -timeout 0 ./mem/planned -run 'TestHistories$$' -histories $(SEEDS)
	go test -timeout 0 ./mem/layer -run RandomStacks -stacks 10000
	go test -tags invariants -timeout 0 ./mem/caching -run RestoresInRandomHistories -checkpoints 100000
	go test -timeout 0 ./mem/paged -run GraphsInRandomHistories -histories 100000
	$(MAKE) remat

mutants: ## faults planted one at a time, to see which the tests find: make mutants SEED=1 MUTANTS=2000 MUTATED=./mem/...
	go run ./bench/mutants -seed $(SEED) -n $(MUTANTS) $(MUTATED)

soak: ## an engine under 64 goroutines, which may not grow: make soak SOAK=1h
	go test -v -timeout 0 ./engine -run 'TestSoak$$' -soak $(SOAK)

remat: ## random programs under a memory budget, and with failing driver calls: make remat SEED=1 PROGRAMS=100000
	go test -timeout 0 ./remat -run 'RandomPrograms|DriverCallFails' -v -steps 50 -seed $(SEED) -programs $(PROGRAMS) -faulty $(FAULTY)

bench: ## benchmarks: make bench PKG=./mem/caching BENCH=Warm
	go test -run='^$$' -bench='$(BENCH)' -benchmem -count=5 $(PKG)

gpu: ## the tests that need an NVIDIA GPU
	go test -tags gpu -run 'GPU|CUDA' ./engine ./driver/cuda ./mem/... ./compute/cuda ./collective/... ./remat ./examples/...

policies: ## what the recorded traces need under each policy: the table of docs/policies.md
	go run ./cmd/ashlar replay --markdown --smallest -a caching -a bfc -a arena -a paged -a planned testdata/traces/*.pickle.zst

pictures: ## the pictures of README.md and docs, from recordings
	go run ./cmd/ashlar plot --force -o docs/reserved.svg --kind compare --smallest -a caching -a caching:expandable_segments:True -a arena -a paged -a planned testdata/traces/gpt2.pickle.zst testdata/traces/unet.pickle.zst
	go run ./cmd/ashlar plot --force -o docs/memory.svg diagnose/testdata/leak.pickle.zst
	go run ./cmd/ashlar plot --force -o docs/addresses.svg --kind addresses testdata/traces/gpt2.pickle.zst

compare: ## measure beside PyTorch, on a machine with both and a GPU, and write docs/benchmarks.md
	go run ./bench/compare -o bench/results.json -docs docs/benchmarks.md

wheel: ## the Python wheel in dist/: make wheel SHIMS='--shim pt211.so'
	python3 python/build_wheel.py $(SHIMS)

release: ## what a release consists of, in dist/, built twice and compared; it needs a commit of everything
	bash .ci/release dist

clean: ## remove what was built
	rm -rf bin dist
