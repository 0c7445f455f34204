# Remora's commands. `make help` lists them.
# Each target can be run by itself on a fresh machine: it calls `scripts/setup` for what it needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
# scapy and clients of the cache live in an environment of their own, so that nothing is installed into the system's Python.
export REMORA_PYTHON := $(CURDIR)/.cache/python/bin/python3
# Every program. A plain `cargo build` builds the default members: no crate of lab/.
ALL = --package remora-cli --package remora-store-cli --package remora-sim-cli --package remora-lab-cli
# Users' kernels as WebAssembly are measured beside native ones, too.
BENCH = $(CARGO) run --release --quiet --package remora-lab-cli --features wasm -- bench
CHECKS = fmt tidy deny clippy unit abuse programs packages start interop doc docs
# Each builds the crates again with its own flags.
DEEP_CHECKS = long models fuzz miri dist arm
# Miri interprets each instruction: seconds become minutes. Past this it says so and fails.
MIRI_LIMIT ?= 1500
SOAK_SECONDS ?= 3600

.PHONY: help setup setup-bench test nightly fmt tidy deny clippy unit long start abuse programs doc docs site miri fuzz fuzz-soak planted roots arm models dropin compat compat-full interop interop-full build install uninstall dist tarball wheel deb image action packages release demo bench figures-irn sweeps-irn soak clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: ## install what the tests need (as root; otherwise say what is missing)
	@scripts/setup test

setup-bench: ## install what the benchmarks compare with: memcached, redis, etcd, sockperf, UCX, libfabric, perftest
	@scripts/setup bench

test: ## everything that must hold before a change lands, and what each check took
	@scripts/checks setup $(CHECKS)

nightly: ## the same with all seeds, loom, Miri, every fuzzer for a minute, ARM64, planted faults and clean roots; notes date and commit in .ci/nightly
	@git diff --quiet HEAD || { echo "nightly: commit your changes first, so that the commit it notes is what ran" >&2; exit 1; }
	@REMORA_WHOLE=1 FUZZ_SECONDS=60 scripts/checks setup $(CHECKS) $(DEEP_CHECKS)
	@scripts/planted
	@$(MAKE) roots
	@echo "$$(date -u +%F) $$(git rev-parse --short=12 HEAD)" > .ci/nightly
	@echo "nightly: passed; commit .ci/nightly"

fmt:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check

tidy: ## style, layers, the empty import lists of the pure crates; prints the layers and their sizes, of the default members and of lab/
	$(CARGO) test --quiet --package remora-tidy --lib
	$(CARGO) test --package remora-tidy --test repository --test scripts -- --show-output

deny: ## licences, sources and security advisories of third-party crates, by deny.toml
	@scripts/deny

clippy:
	$(CARGO) clippy --workspace --all-targets --features remora-lab-cli/wasm -- -D warnings
	$(CARGO) check --quiet --manifest-path fuzz/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/fuzz-check

unit: ## all tests but the documentation's
	@scripts/unit

start: ## each command of README and of the part Start of the book, in a copy of this repository
	@scripts/setup dropin
	@scripts/unit --no-run --cargo-quiet
	@scripts/dropin --tested
	@scripts/start

long: ## the tests that only `make nightly` runs: a minute or more each
	@scripts/unit --run-ignored only -E 'test(/nightly_/)'

abuse: ## hostile and vanishing peers at each server beside a client at work
	@scripts/unit --no-run --cargo-quiet
	@scripts/abuse

programs: ## the rows of `make compat` on the libraries that the tests have built
	@scripts/setup compat
	@scripts/unit --no-run --cargo-quiet
	@scripts/dropin --tested
	@scripts/compat --no-document

doc: ## the examples in the documentation, and the documentation itself
	$(CARGO) test --workspace --exclude remora-tidy --features remora-lab-cli/wasm --doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --features remora-lab-cli/wasm --no-deps --quiet

site: docs ## the same as `make docs`: the book as a site, whose folder can be served as it is

docs: ## the book, into target/book; a link that leads nowhere is an error
	@scripts/setup docs
	@scripts/book

models: ## the concurrent parts under loom
	@scripts/models

miri: ## the bytes of the crates with unsafe code, under Miri
	@scripts/setup nightly
	@MIRI_LIMIT=$(MIRI_LIMIT) scripts/miri

fuzz: ## each fuzzer for FUZZ_SECONDS (5) from its saved corpus, and the canary that must fail
	@scripts/setup nightly
	@scripts/fuzz

fuzz-soak: ## ten million executions of each fuzzer: hours
	@scripts/setup nightly
	@scripts/fuzz soak

planted: ## faults planted in the NIC, each of which its fuzzer must find within 50,000 executions
	@scripts/planted

roots: ## Debian's verbs programs in clean Debian 12 and 13 roots, and in two containers of one pod (as root)
	@scripts/setup roots
	@scripts/unit --no-run --cargo-quiet
	@scripts/dropin --tested
	@scripts/clean-roots

arm: ## unit tests, the tarball and the wheel on ARM64 under QEMU (as root)
	@scripts/setup arm
	@scripts/arm

dropin: ## libraries for unmodified verbs programs, into target/dropin/lib
	@scripts/setup dropin
	@scripts/dropin

compat: ## unmodified verbs programs, UCX, libfabric and OpenMPI, a row each, into docs/reference/matrix.md
	@scripts/setup compat
	@scripts/dropin
	$(CARGO) build --quiet --package remora-cli --bin remora
	@scripts/compat

compat-full: ## the same with each size and path MTU, and each way of UCX, libfabric and OpenMPI
	@scripts/setup compat
	@scripts/dropin
	$(CARGO) build --quiet --package remora-cli --bin remora
	@scripts/compat --full

build: ## the remora command and the programs that it starts, its libraries and the C API, optimised
	@scripts/setup build
	@scripts/install build

install: ## what is built into PREFIX (/usr/local), below DESTDIR; builds what is missing or old, if cargo is in PATH
	@scripts/install

uninstall: ## remove what `make install` has installed
	@scripts/install uninstall

dist: ## one relocatable tree for every Linux with glibc 2.17, into target/dist: what all packages hold
	@scripts/setup portable
	@scripts/dist

tarball: dist ## the tree as a tarball with its installer, into target/release-files
	@packaging/tarball/make "$$(scripts/dist --path)" target/release-files

wheel: dist ## the tree as Python wheels, into target/release-files
	@packaging/wheel/make "$$(scripts/dist --path)" target/release-files

deb: dist ## the tree as Debian packages, into target/release-files
	@packaging/deb/make "$$(scripts/dist --path)" target/release-files

image: deb ## the Debian package in an image of a container, and the tree as an image to copy from (as root)
	@scripts/setup image
	@packaging/oci/make target/release-files

action: wheel ## the GitHub Action, run as a runner does
	@scripts/packages action

packages: ## each package, made of what the tests have built, as a user without rights and network
	@scripts/setup packages
	@scripts/unit --no-run --cargo-quiet
	@scripts/dropin --tested
	@REMORA_BUILT=debug scripts/packages

release: ## all files of a release, reproducibly, into target/release-files
	@scripts/setup release
	@scripts/release

interop: ## verbs programs against Linux Soft-RoCE in a guest, each way: the quick part (docs/guides/soft-roce.md)
	@scripts/setup interop
	@scripts/unit --no-run --cargo-quiet
	@env --unset=REMORA_WHOLE scripts/interop/run

interop-full: ## all of them, also with frames lost and over `xdp`: minutes
	@scripts/setup interop
	@scripts/unit --no-run --cargo-quiet
	@REMORA_WHOLE=1 scripts/interop/run

demo: ## one key-value table over real RDMA verbs, two processes
	@scripts/setup build
	$(CARGO) run --release --package remora-store-cli -- demo

bench: setup-bench ## the numbers of docs/internals/performance.md, baselines in the same run
	$(CARGO) build --release $(ALL) --features remora-lab-cli/wasm
	$(BENCH) verbs --json
	$(BENCH) kv --records 1000000 --json
	$(BENCH) block --blocks 1000000 --json
	$(BENCH) strom --json

figures-irn: ## IRN's evaluation on the simulated data center, five seeds, into report/: an hour or two
	@scripts/setup build
	$(CARGO) run --release --package remora-lab-cli -- figures irn --rounds 5 --report report

sweeps-irn: ## the sweeps of IRN's appendix, into report/sweeps/: hours; begun again, what is left
	@scripts/setup build
	$(CARGO) build --release --package remora-sim-cli
	@scripts/sweeps examples/sweeps/irn-*.toml

soak: setup ## the tests marked soak, and all abuse of each server for SOAK_SECONDS (an hour): hours
	$(CARGO) test --workspace --release -- --ignored soak
	$(CARGO) build --release $(ALL) --features remora-lab-cli/wasm
	scripts/abuse --soak --seconds $(SOAK_SECONDS) --binary $(or $(CARGO_TARGET_DIR),target)/release/remora

clean: ## remove what was built
	$(CARGO) clean
