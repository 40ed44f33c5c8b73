#!/usr/bin/env bash
# Publishes the files of scripts/dist.sh. Only .github/workflows/release.yaml runs it, with IMAGES as for scripts/dist.sh.
#
#   scripts/release.sh tag           fail if the tag does not name the version, or if its commit is not on main
#   scripts/release.sh images DIR    push the images of DIR, and sign them
#   scripts/release.sh chart DIR     push the chart of DIR, and sign it
#   scripts/release.sh publish DIR   sign the checksums, and create the release with all files
#
# cosign signs with a certificate for the identity of the workflow, so there is no key to keep.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $1" >&2; exit 1; }

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)

tag() {
  [ "$GITHUB_REF_NAME" = "v$version" ] || fail "the tag is $GITHUB_REF_NAME, but the version in Cargo.toml is $version"
  git merge-base --is-ancestor "$GITHUB_SHA" origin/main || fail "the commit $GITHUB_SHA of the tag is not on main"
}

# images DIR: images.txt has a line for each image by digest: for all architectures, and for one.
images() {
  local image platform name digest
  cd "$1"
  docker login "${IMAGES%%/*}" --username "$GITHUB_ACTOR" --password-stdin <<<"$GH_TOKEN"
  for name in durward durward-node; do
    skopeo copy --all --preserve-digests "oci-archive:$name-$version-image.tar" "docker://$IMAGES/$name:$version"
  done
  while read -r image platform <&3; do
    if [ "$platform" = all ]; then
      cosign sign --yes --recursive "$image"
      name=${image%@*} digest=${image#*@}
      echo "${name##*/}=$digest" >>"$GITHUB_OUTPUT"
    else
      cosign attest --yes --type cyclonedx --predicate "durward-$version-linux-$platform.cdx.json" "$image"
    fi
  done 3<images.txt
}

# chart DIR: Helm prints the digest of the chart in the registry. cosign has the login of `images`.
chart() {
  local digest
  helm registry login "${IMAGES%%/*}" --username "$GITHUB_ACTOR" --password-stdin <<<"$GH_TOKEN"
  digest=$(helm push "$1/durward-chart-$version.tgz" "oci://$IMAGES/charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
  [ -n "$digest" ] || fail "helm push printed no digest"
  cosign sign --yes "$IMAGES/charts/durward@$digest"
}

publish() { # DIR
  cosign sign-blob --yes --bundle "$1/SHA256SUMS.sigstore.json" "$1/SHA256SUMS"
  gh release create "$GITHUB_REF_NAME" --verify-tag --notes-file CHANGELOG.md "$1"/*
}

case ${1:-} in
  tag) tag ;;
  images | chart | publish) [ $# = 2 ] || fail "usage: $0 $1 DIR"; "$1" "$2" ;;
  *) fail "unknown argument ${1:-}: see the head of $0" ;;
esac
