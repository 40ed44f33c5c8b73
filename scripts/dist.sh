#!/usr/bin/env bash
# Writes the files of a release for this machine's architecture to target/dist-out. The same commit gives the same bytes.
#
#   scripts/dist.sh               build the static binaries and package them
#   scripts/dist.sh package DIR   package the binaries that are built
#   scripts/dist.sh index DIR [CLI]
#                                 write the files for all architectures of DIR, and the checksums. CLI has the command line for other
#                                 systems: cli-darwin-arm64/durward, cli-windows-amd64/durward.exe
#   scripts/dist.sh check         package twice under different conditions, and compare
#
# IMAGES is the registry and path in image names, by default registry.example.com.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

fail() { echo "dist: $1" >&2; exit 1; }

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
repository=$(sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml)
commit=$(git rev-parse HEAD) || fail "this directory is not a Git clone, and the files have the date of a commit: clone the repository"
# Not SOURCE_DATE_EPOCH: with it, build scripts would run again for each commit.
epoch=$(git log -1 --format=%ct "$commit")
images=${IMAGES:-registry.example.com}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tar_of DIR: a tar of a directory, which depends only on the names, contents and execute bits of its files.
tar_of() {
  LC_ALL=C tar --create --directory "$1" --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 \
    --numeric-owner --mode='u=rwX,go=rX' -- $(cd "$1" && LC_ALL=C ls -A)
}

# archive DIR FILE: the same, compressed.
archive() { tar_of "$1" | gzip -9 --no-name >"$2"; }

# archive_of FILE ARCHIVE: the program and the license, for a user's machine.
archive_of() {
  local root
  root=$(mktemp -d "$work/archive.XXX")
  install -m 755 "$1" "$root/"
  install -m 644 LICENSE "$root/"
  archive "$root" "$2"
}

readonly image_type=application/vnd.oci.image

# add_blob FILE: moves a file into $layout, and sets digest and size.
add_blob() {
  digest=$(sha256sum "$1" | cut -d ' ' -f 1)
  size=$(stat --format %s "$1")
  mv "$1" "$layout/blobs/sha256/$digest"
}

# write_layout NAME DESCRIPTOR FILE: writes $layout to an archive. The descriptor has no closing bracket, and a line of its own.
write_layout() {
  # containerd takes the whole name from io.containerd.image.name, podman and skopeo the tag from ref.name.
  cat >"$layout/index.json" <<EOF
{"schemaVersion":2,"mediaType":"$image_type.index.v1+json","manifests":[
$2
,"annotations":{"io.containerd.image.name":"$images/$1:$version","org.opencontainers.image.ref.name":"$version"}}]}
EOF
  printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
  tar_of "$layout" >"$3"
}

# image NAME PROGRAM...: an OCI archive with the files of deploy/image/Containerfile. The first program is the entry point.
image() {
  local name=$1 root=$work/$1-root created diff layer config manifest
  local -r layout=$work/$1-layout
  shift
  for program in "$@"; do install -D -m 755 "target/$target/dist/$program" "$root/usr/bin/$program"; done
  mkdir -p "$layout/blobs/sha256"
  created=$(date --utc --date "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
  tar_of "$root" >"$work/layer.tar"
  diff=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
  gzip -9 --no-name "$work/layer.tar"
  add_blob "$work/layer.tar.gz"
  layer='{"mediaType":"'$image_type.layer.v1.tar+gzip'","digest":"sha256:'$digest'","size":'$size'}'
  cat >"$work/config" <<EOF
{"created":"$created","architecture":"$arch","os":"linux",
"config":{"User":"65532:65532","Entrypoint":["/usr/bin/$1"],"Env":["PATH=/usr/bin"],"Labels":{
"org.opencontainers.image.title":"$name","org.opencontainers.image.version":"$version","org.opencontainers.image.revision":"$commit",
"org.opencontainers.image.source":"$repository","org.opencontainers.image.licenses":"Apache-2.0"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$diff"]},
"history":[{"created":"$created","created_by":"scripts/dist.sh"}]}
EOF
  add_blob "$work/config"
  config='{"mediaType":"'$image_type.config.v1+json'","digest":"sha256:'$digest'","size":'$size'}'
  printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' \
    "$image_type.manifest.v1+json" "$config" "$layer" >"$work/manifest"
  add_blob "$work/manifest"
  manifest='{"mediaType":"'$image_type.manifest.v1+json'","digest":"sha256:'$digest'","size":'$size
  write_layout "$name" "$manifest"',"platform":{"architecture":"'$arch'","os":"linux"}' "$out/$name-$version-image-$arch.tar"
}

# merge NAME: an OCI archive with the images of all architectures. It adds the digests of these images to $work/images.
merge() {
  local archive arch descriptor manifests=
  local -r layout=$work/$1-merged
  mkdir -p "$layout"
  for archive in "$1-$version"-image-*.tar; do
    tar --extract --file "$archive" --directory "$layout"
    arch=${archive##*-}
    descriptor=$(sed -n 2p "$layout/index.json")
    manifests+=${manifests:+,}$descriptor'}'
    sed "s|.*\"digest\":\"\(sha256:[0-9a-f]*\)\".*|$images/$1@\1 ${arch%.tar}|" <<<"$descriptor" >>"$work/images"
  done
  printf '{"schemaVersion":2,"mediaType":"%s","manifests":[%s]}' "$image_type.index.v1+json" "$manifests" >"$work/index"
  add_blob "$work/index"
  echo "$images/$1@sha256:$digest all" >>"$work/images"
  write_layout "$1" '{"mediaType":"'$image_type.index.v1+json'","digest":"sha256:'$digest'","size":'$size "$1-$version-image.tar"
}

# pinned NAME: the image of all architectures, by digest.
pinned() { sed -n "s|^\($images/$1@.*\) all\$|\1|p" images.txt; }

# pin_chart: writes the images of the release into the values of the chart.
pin_chart() {
  local -r root=$work/pinned
  mkdir "$root"
  tar --extract --touch --gzip --file "durward-chart-$version.tgz" --directory "$root"
  awk -v durward="$(pinned durward)" -v node="$(pinned durward-node)" '
    /^[a-z]/ { split($1 == "image:" ? durward : $1 == "node:" ? node : "", part, "@") }
    part[1] && sub(/repository: .*/, "repository: " part[1]) { count++ }
    part[1] && sub(/digest: .*/, "digest: " part[2]) { count++ }
    { print }
    END { exit count != 4 }
  ' "$root/durward/values.yaml" >"$work/values" || fail "values.yaml of the chart does not have the keys of two images"
  mv "$work/values" "$root/durward/values.yaml"
  archive "$root" "durward-chart-$version.tgz"
}

# chart: Helm checks and packages the chart. It writes the time into the archive, so the files are packed again.
chart() {
  for key in version appVersion; do
    grep --quiet --line-regexp "$key: $version" charts/durward/Chart.yaml || fail "$key in charts/durward/Chart.yaml is not $version"
  done
  # The tests build Helm with the same settings, so Go's cache has it.
  CGO_ENABLED=0 GOFLAGS=-trimpath go -C e2e/controlplane/kubernetes tool helm package "$PWD/charts/durward" --destination "$work" >/dev/null
  mkdir "$work/chart"
  tar --extract --touch --gzip --file "$work/durward-$version.tgz" --directory "$work/chart"
  archive "$work/chart" "$out/durward-chart-$version.tgz"
}

package() { # DIR
  out=$1
  target=$(rustc -vV | sed -n 's/^host: //p')
  case $target in
    x86_64-*) arch=amd64 ;;
    aarch64-*) arch=arm64 ;;
    *) fail "no release is built for $target" ;;
  esac
  rm -rf "$out"
  mkdir -p "$out"
  for program in durward durward-node; do
    [ -x "target/$target/dist/$program" ] || fail "target/$target/dist/$program is missing: run scripts/static.sh"
    archive_of "target/$target/dist/$program" "$out/$program-$version-linux-$arch.tar.gz"
  done
  image durward durward
  image durward-node durward-node durward
  chart
  for profile in deploy/install/*.yaml; do
    sed "s|registry\.example\.com/|$images/|" "$profile" >"$out/install-${profile##*/}"
  done
  SOURCE_DATE_EPOCH=$epoch scripts/sbom.sh "$target" "$version" "$commit" >"$out/durward-$version-linux-$arch.cdx.json"
  index "$out"
}

# index DIR [CLI]: the images of all architectures, their digests in the chart and the plain YAML, the archives for other systems, the
# plugin manifest for krew with one platform for each archive, and the checksums of all files.
index() {
  local name archive platform program url=$repository/releases/download/v$version
  for program in ${2:+"$2"/cli-*/*}; do
    platform=$(basename "$(dirname "$program")")
    archive_of "$program" "$1/durward-$version-${platform#cli-}.tar.gz"
  done
  cd "$1"
  for name in durward durward-node; do merge "$name"; done
  mv "$work/images" images.txt
  pin_chart
  for name in durward durward-node; do
    sed --in-place "s|image: $images/$name[:@].*|image: $(pinned "$name")|" install-*.yaml
  done
  {
    cat <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: durward
spec:
  version: v$version
  homepage: $repository
  shortDescription: Show what a deletion would remove
  description: |
    Shows what deleting a namespace or CRD would remove in every cluster, and sets
    the annotations that override a denial of the admission webhook Durward. Checks
    manifests against ValidatingAdmissionPolicies without a cluster.

    On macOS and Windows: impact, check, diff, override, acknowledge, doctor, review,
    inject, convert, snapshot, unregister, config, manifests, certs. The webhook server
    and LXCFS need Linux.
  platforms:
EOF
    for archive in durward-"$version"-{linux,darwin,windows}-*.tar.gz; do
      [ -e "$archive" ] || continue
      platform=${archive#"durward-$version-"} platform=${platform%.tar.gz} program=durward
      [[ $platform != windows-* ]] || program=durward.exe
      cat <<EOF
  - selector: {matchLabels: {os: ${platform%-*}, arch: ${platform#*-}}}
    uri: $url/$archive
    sha256: $(sha256sum "$archive" | cut -d ' ' -f 1)
    bin: $program
    files:
    - {from: $program, to: .}
    - {from: LICENSE, to: .}
EOF
    done
  } >krew.yaml
  rm -f SHA256SUMS
  LC_ALL=C sha256sum -- * >"$work/sums"
  mv "$work/sums" SHA256SUMS
  chmod 644 SHA256SUMS
  cd - >/dev/null
}

# check: other permissions, another time zone and language must give the same bytes. Each run has its own temporary directory.
check() {
  scripts/dist.sh package "$work/first"
  sleep 1
  (umask 077; TZ=UTC-9 LC_ALL=C.UTF-8 scripts/dist.sh package "$work/second")
  diff --recursive --brief "$work/first" "$work/second" || fail "two runs of the packaging differ"
  (cd "$work/first" && sha256sum --quiet --check SHA256SUMS)
  echo "dist: two runs gave the same bytes"
}

case ${1:-} in
  "")
    [ -z "$(git status --porcelain)" ] || echo "dist: there are changes that are not committed, so commit $commit will not give these bytes"
    scripts/static.sh
    package target/dist-out
    cat target/dist-out/SHA256SUMS
    ;;
  package) [ $# = 2 ] || fail "usage: $0 package DIR"; package "$2" ;;
  index) [ $# = 2 ] || [ $# = 3 ] || fail "usage: $0 index DIR [CLI]"; index "$2" "${3:-}" ;;
  check) check ;;
  *) fail "unknown argument $1: see the head of $0" ;;
esac
