#!/usr/bin/env bash
# Installs what the end-to-end tests need beside Rust. Small tools come from apt; a Go toolchain must be there already.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "prepare: $1" >&2; exit 1; }

command -v go >/dev/null || fail "Go is not installed. The tests build kube-apiserver and etcd from source: install Go 1.26 or newer (https://go.dev/dl) and run make again."
# Go itself knows whether it is new enough for the pins, or may fetch a toolchain that is.
for module in kubernetes etcd karmada; do
  said=$(go -C "e2e/controlplane/$module" list -m 2>&1) || fail "Go cannot build e2e/controlplane/$module: $said"
done

missing=()
command -v ip >/dev/null || missing+=(iproute2)
command -v setsid >/dev/null || missing+=(util-linux)
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || fail "these Debian packages are missing: ${missing[*]}. Run as root, or: sudo apt-get install ${missing[*]}"
  echo "prepare: installing ${missing[*]} with apt"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "$(id -u)" != 0 ]; then
  echo "prepare: not root: cases with a webhook behind a Service add an address to the loopback device and will fail without CAP_NET_ADMIN" >&2
fi
