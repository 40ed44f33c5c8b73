#!/usr/bin/env bash
# Builds durward and durward-node as static binaries for images, in target/TARGET/dist. The flag is set for the target only, because
# build scripts and procedural macros of this machine can't be static. glibc 2.36 or later resolves names without shared libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
flags=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_RUSTFLAGS
export "$flags=-C target-feature=+crt-static"
cargo build --profile dist --target "$target" -p durward -p durward-node
ls -lh "target/$target/dist/durward" "target/$target/dist/durward-node"
