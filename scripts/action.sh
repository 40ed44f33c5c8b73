#!/usr/bin/env bash
# The steps of action.yml on Linux, macOS and Windows. The inputs are environment variables, so that no shell interprets them.
#
#   scripts/action.sh install    download durward of the release VERSION, compare it with SHA256SUMS, and add it to the PATH of later steps
#   scripts/action.sh check      run `durward check` with PATHS, POLICIES and ARGUMENTS
set -euo pipefail

fail() { echo "::error::durward: $1"; exit 1; }

repository=$(cd "$(dirname "$0")/.." && pwd)

install() {
  local version=${VERSION#v} platform name url
  [ -n "$version" ] || version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$repository/Cargo.toml")
  case $RUNNER_OS-$RUNNER_ARCH in
    Linux-X64) platform=linux-amd64 ;;
    Linux-ARM64) platform=linux-arm64 ;;
    macOS-X64) platform=darwin-amd64 ;;
    macOS-ARM64) platform=darwin-arm64 ;;
    Windows-X64) platform=windows-amd64 ;;
    *) fail "no release is built for $RUNNER_OS on $RUNNER_ARCH" ;;
  esac
  name=durward-$version-$platform.tar.gz
  url=$(sed -n 's/^repository = "\(.*\)"$/\1/p' "$repository/Cargo.toml")/releases/download/v$version
  mkdir -p "$RUNNER_TEMP/durward"
  cd "$RUNNER_TEMP/durward"
  curl --fail --silent --show-error --location --remote-name "$url/SHA256SUMS" --remote-name "$url/$name" \
    || fail "$url/$name cannot be downloaded: is $version a release?"
  grep "  $name\$" SHA256SUMS >sum || fail "SHA256SUMS of release $version does not contain $name"
  # macOS has no sha256sum.
  if command -v sha256sum >/dev/null; then sha256sum --check sum; else shasum -a 256 --check sum; fi || fail "$name is damaged"
  tar -xzf "$name"
  echo "$RUNNER_TEMP/durward" >>"$GITHUB_PATH"
}

check() {
  local paths policies arguments policy with=()
  # All words of all lines; read returns 1 at the end of its input.
  read -rd '' -a paths <<<"$PATHS" || true
  read -rd '' -a policies <<<"$POLICIES" || true
  read -rd '' -a arguments <<<"$ARGUMENTS" || true
  # bash 3 of macOS takes an empty array for an unset variable.
  for policy in ${policies[@]+"${policies[@]}"}; do with+=(--with "$policy"); done
  durward check ${paths[@]+"${paths[@]}"} ${with[@]+"${with[@]}"} ${arguments[@]+"${arguments[@]}"}
}

case ${1:-} in
  install | check) "$1" ;;
  *) fail "unknown argument ${1:-}: see the head of $0" ;;
esac
