# The targets of the project. `make` without a target lists them.
#
# A target that checks something prints the problem and the next step. You need Rust, Go, apt and root on Debian 12. A target
# installs everything else that it needs, and prints what it installs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test unit e2e soak proto cluster cluster-down parity bench bench-deps fuzz mutate lint lint-language cargo-deny advisories fmt docs dist dist-check clean prepare demo reference screenshot

CARGO_DENY := 0.20.2
CARGO_MUTANTS := 27.1.0
MDBOOK := 0.5.4
FUZZ_SECONDS ?= 60
NIGHTLY ?= nightly
# Some tests wait for processes, so one more than the two processors is fastest.
TEST_THREADS ?= 3

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' Makefile

test: unit e2e ## All tests: unit and end to end (the first run also builds the control planes, about 11 minutes)

unit: ## Tests of all crates except the end-to-end tests
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --workspace --exclude durward-e2e

e2e: prepare ## Tests against a real kube-apiserver; TEST=word runs the cases whose name contains it
	cargo build -p durward -p durward-node
	cargo test -p durward-e2e -- $(TEST)

soak: prepare ## End-to-end cases that take a minute or longer; TEST=word as for e2e
	cargo build -p durward -p durward-node
	IMAGES= scripts/dist.sh
	cargo test -p durward-e2e -- --ignored --skip versions:: $(TEST)
	cargo test -p durward --test cli -- --ignored $(TEST)

cluster: prepare ## Start a local cluster with one real node and print its KUBECONFIG; LXCFS=no leaves LXCFS out
	cargo build -p durward -p durward-node
	cargo build -p durward-e2e --bins
	@LXCFS=$(LXCFS) cargo run -q -p durward-e2e --bin e2e-cluster -- up

cluster-down: ## Stop the cluster of `make cluster`
	@cargo build -q -p durward-e2e --bins
	@cargo run -q -p durward-e2e --bin e2e-cluster -- down

parity: prepare ## Compare with the code of two API servers (SEED=n repeats it); guards with other API servers, etcd 3.7 and Karmada 1.18
	@command -v go >/dev/null || { echo "parity: Go is not installed: install Go 1.26 or newer (https://go.dev/dl)"; exit 1; }
	PARITY_SEED=$(SEED) cargo test -p durward-policy --test parity -- --ignored --nocapture --test-threads=1
	cargo build -p durward -p durward-node
	cargo test -p durward-e2e -- --ignored versions::
	DURWARD_E2E_ETCD=3.7 cargo test -p durward-e2e -- etcd::
	DURWARD_E2E_KARMADA=1.18 cargo test -p durward-e2e -- deletion::

bench-deps: ## Build the programs that `make bench` measures and compares with: not timed, cached
	@command -v go >/dev/null || { echo "bench: Go is not installed: install Go 1.26 or newer (https://go.dev/dl)"; exit 1; }
	cargo build --profile dist -p durward -p durward-bench
	cargo run -q --profile dist -p durward-bench -- deps

bench: bench-deps ## Speed and memory, each as a ratio to a peer or a limit of the same run; PART=name measures one part
	cargo run -q --profile dist -p durward-bench -- $(PART)

fuzz: ## All fuzz targets, FUZZ_SECONDS each; TARGET=name runs one (also needs nightly Rust)
	@cargo +$(NIGHTLY) --version >/dev/null 2>&1 || { echo "fuzz: no nightly toolchain: rustup toolchain install $(NIGHTLY)"; exit 1; }
	@command -v cargo-fuzz >/dev/null || { echo "fuzz: installing cargo-fuzz"; cargo install cargo-fuzz --locked; }
	for target in $(or $(TARGET),envelope reviews injection expression policy object custom_resource schema convert); do \
	  mkdir -p fuzz/corpus/$$target; \
	  case $$target in \
	    reviews) seeds=; options=-max_len=256 ;; \
	    envelope | injection) seeds=crates/common/admission/tests/reviews; options=-dict=fuzz/pods.dict ;; \
	    *) seeds=crates/evaluator/policy/tests/data; options=-max_len=16384 ;; \
	  esac; \
	  cargo +$(NIGHTLY) fuzz run $$target -s none fuzz/corpus/$$target $$seeds -- $$options -max_total_time=$(FUZZ_SECONDS); \
	done

mutate: ## Change the code of decisions in small ways (.cargo/mutants.toml); a test must fail for each. FILE=path takes one file
	@cargo mutants --version 2>/dev/null | grep -q ' $(CARGO_MUTANTS)$$' || { echo "make: installing cargo-mutants $(CARGO_MUTANTS) (about two minutes, once)"; CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-mutants --debug --locked --version $(CARGO_MUTANTS); }
	cargo mutants --workspace --in-place $(if $(FILE),--no-config --file $(FILE))

lint: lint-language cargo-deny ## Formatting, clippy, rustdoc, language, links between pages, dependency rules, workflows
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc -q --workspace --no-deps
	cargo deny check bans licenses sources
	go -C lint/actionlint tool actionlint -shellcheck= -pyflakes= $(wildcard $(CURDIR)/.github/workflows/*)

lint-language: ## Language of comments, texts and pages, and links between pages; ONLY=DIR lists the findings of one directory
	@cargo run -q -p durward-lint -- $(ONLY)

advisories: cargo-deny ## Known vulnerabilities of the dependencies (needs the internet)
	cargo deny check advisories

cargo-deny:
	@cargo deny --version 2>/dev/null | grep -q ' $(CARGO_DENY)$$' || { echo "make: installing cargo-deny $(CARGO_DENY) (about a minute, once)"; CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --debug --locked --version $(CARGO_DENY); }

fmt: ## Format the Rust code
	cargo fmt --all

docs: ## Build the documentation in target/book
	@mdbook --version 2>/dev/null | grep -q 'v$(MDBOOK)$$' || { echo "docs: installing mdbook $(MDBOOK) (about four minutes, once)"; CARGO_PROFILE_DEV_DEBUG=0 cargo install mdbook --debug --locked --no-default-features --features search --version $(MDBOOK); }
	mdbook build docs

proto: ## Write the Rust code of the gRPC messages in proto/
	cargo run -q --manifest-path proto/Cargo.toml

reference: ## Write the generated pages of docs/src/reference and the tables of runbooks/durward-down.md
	DURWARD_BLESS=1 cargo test -q -p durward -p durward-guards reference

screenshot: ## Write the picture of the page of `impact` that README shows (needs Chromium)
	scripts/screenshot.sh

dist: ## Write the files of a release to target/dist-out: binaries, images, chart, manifests, SBOM, checksums (about 15 minutes)
	scripts/dist.sh

dist-check: ## Package the binaries of `make dist` twice; fails if a byte differs
	scripts/dist.sh check

demo: ## Show every guard in ten seconds
	cargo run -- demo

clean: ## Remove the build directory (the control plane's cache stays: see e2e/README.md)
	cargo clean

prepare:
	@scripts/prepare.sh
