#!/usr/bin/env bash
# Builds durward and durward-node as static binaries for images, in target/TARGET/dist. glibc 2.36 or later resolves names without
# shared libraries. The same sources give the same bytes in every directory.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
[ -e "$(cc -print-file-name=libc.a)" ] || { echo "static: a C compiler or the static C library is missing: apt-get install gcc libc6-dev" >&2; exit 1; }
cargo fetch --quiet --locked --target "$target"

# With --target, the flags apply to neither build scripts nor procedural macros, which can't be static.
flags=(-C target-feature=+crt-static)
# Panic messages name source files. These flags replace the directories of this machine in them.
flags+=(--remap-path-prefix "$PWD=durward")
cargo=${CARGO_HOME:-$HOME/.cargo}
for sources in "$cargo"/registry/src/*; do
  flags+=(--remap-path-prefix "$sources=crates")
  # For the C code of aws-lc, which does this itself only with opt-level 3.
  export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$sources=crates"
done
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${flags[*]}") \
  cargo build --locked --profile dist --target "$target" -p durward -p durward-node

for program in durward durward-node; do
  file=target/$target/dist/$program
  for path in "$PWD/crates" "$PWD/target" "$cargo/registry"; do
    if grep --quiet --text --fixed-strings "$path" "$file"; then echo "static: $file contains the path $path" >&2; exit 1; fi
  done
  ls -lh "$file"
done
