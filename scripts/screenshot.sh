#!/usr/bin/env bash
# Makes the picture of `durward impact --diff … -o html` for README, with Debian's Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v chromium >/dev/null || { echo "screenshot: chromium is missing: apt-get install chromium" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
code=0
cargo run -q -p durward -- impact --diff examples/deletion/change/old examples/deletion/change/new \
  --snapshot examples/deletion/healthy -o html >"$work/page.html" || code=$?
[ "$code" = 1 ] || { echo "screenshot: impact exited with $code" >&2; exit 1; }
chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/profile" \
  --window-size=1000,860 --screenshot="$work/impact.png" "file://$work/page.html" >/dev/null 2>&1
mv "$work/impact.png" docs/src/images/impact.png
echo "wrote docs/src/images/impact.png"
