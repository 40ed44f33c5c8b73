#!/usr/bin/env bash
# Installs what the end-to-end tests need beside Rust: a Go toolchain must be there, small tools come from apt.
set -euo pipefail

fail() { echo "prepare: $1" >&2; exit 1; }

command -v go >/dev/null || fail "Go is not installed. The tests build kube-apiserver and etcd from source: install Go 1.25 or later (https://go.dev/doc/install) and run make again."

missing=()
command -v ip >/dev/null || missing+=(iproute2)
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || fail "these Debian packages are missing: ${missing[*]}. Run as root, or: sudo apt-get install ${missing[*]}"
  echo "prepare: installing ${missing[*]} with apt"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
