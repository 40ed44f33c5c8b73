# The task file: `make` alone lists what can be done.
#
# Targets ending in a check fail with what is wrong and what to do. Nothing here needs more than Rust, Go, apt and root on
# Debian 12; what else is needed is installed by the target that needs it, and said.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test unit e2e soak cluster cluster-down parity bench fuzz lint lint-language fmt docs clean prepare demo

CARGO_DENY := 0.20.2
FUZZ_SECONDS ?= 60

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

test: unit e2e ## Everything: unit, conformance, end to end (the first run builds a control plane, about 5 minutes)

unit: ## The fast loop: all crates but the end-to-end tests
	cargo test --workspace --exclude durward-e2e

e2e: prepare ## Against a real kube-apiserver; TEST=name runs those that contain it
	cargo build -p durward
	cargo test -p durward-e2e -- $(TEST)

soak: prepare ## What takes a minute or more each, against real parts; TEST=name as for e2e
	cargo build -p durward
	cargo test -p durward-e2e -- --ignored $(TEST)

cluster: prepare ## A cluster of one real node that stays up for you; prints its KUBECONFIG. LXCFS=no: without LXCFS on the node
	cargo build -p durward
	cargo build -p durward-e2e --bins
	@LXCFS=$(LXCFS) cargo run -q -p durward-e2e --bin e2e-cluster -- up

cluster-down: ## End the cluster of `make cluster`
	@cargo build -q -p durward-e2e --bins
	@cargo run -q -p durward-e2e --bin e2e-cluster -- down

parity: ## Long differentials against other implementations (nothing here yet)
	@echo "parity: no differential takes longer than make test yet"

bench: ## Speed and memory, each figure beside a peer or a limit of the same run
	cargo build --release -p durward -p durward-bench
	cargo bench -p durward-bench
	cargo run --release -p durward-bench

fuzz: ## Both fuzz targets, FUZZ_SECONDS each (needs nightly Rust beside the pinned one)
	@cargo +nightly --version >/dev/null 2>&1 || { echo "fuzz: no nightly toolchain: rustup toolchain install nightly"; exit 1; }
	@command -v cargo-fuzz >/dev/null || { echo "fuzz: installing cargo-fuzz"; cargo install cargo-fuzz --locked; }
	for target in envelope injection; do \
	  mkdir -p fuzz/corpus/$$target; \
	  cargo +nightly fuzz run $$target -s none fuzz/corpus/$$target crates/guards/src/lxcfs/cases -- -dict=fuzz/pods.dict -max_total_time=$(FUZZ_SECONDS); \
	done

lint: ## Formatting, clippy, links between pages, dependency rules
	cargo fmt --all --check
	scripts/links.sh
	cargo clippy --workspace --all-targets -- -D warnings
	@cargo deny --version 2>/dev/null | grep -q ' $(CARGO_DENY)$$' || { echo "lint: installing cargo-deny $(CARGO_DENY) (about a minute, once)"; CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --debug --locked --version $(CARGO_DENY); }
	cargo deny check bans licenses sources

lint-language: ## The language of comments and pages; ONLY=DIR lists the findings of one directory
	@cargo run -q -p durward-lint -- $(ONLY:%=--list --only %) ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md

fmt: ## Format everything
	cargo fmt --all

docs: ## The API documentation of all crates
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

demo: ## The whole product in ten seconds
	cargo run --release -- demo

clean: ## Remove what builds made here (the control plane's cache stays: see e2e/README.md)
	cargo clean

prepare:
	@scripts/prepare.sh
