#!/usr/bin/env bash
# Installs the Debian packages that the end-to-end tests need. Go and Rust must be installed already.
# If nothing is missing, it changes nothing and takes a fraction of a second.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin # a plain user's PATH on Debian does not have ip and runc

fail() { echo "prepare: $1" >&2; exit 1; }

# Temporary files, and whether this process has the lock.
made=()
locked=
trap '[ -z "$locked" ] || allow_services; [ ${#made[@]} = 0 ] || rm -rf "${made[@]}"' EXIT

# Debian starts a service when its package is installed, and at every boot. This file prevents the start while apt runs. It
# also lists the units to disable afterwards, so the next run can finish the work of one that was killed. A file without
# these words is the administrator's.
policy=/usr/sbin/policy-rc.d
ours="# Durward's scripts/prepare.sh, only while it installs packages; to disable then:"

forbid_services() { # UNIT...
  made+=("$policy.durward")
  printf '#!/bin/sh\n%s %s\nexit 101\n' "$ours" "$*" >"$policy.durward"
  chmod 755 "$policy.durward"
  mv "$policy.durward" "$policy"
}

# is_forbidden_by_us: sets `units` to those of the file.
is_forbidden_by_us() {
  local line
  [ -f "$policy" ] || return 1
  while IFS= read -r line; do
    if [[ $line == "$ours"* ]]; then read -ra units <<<"${line#"$ours"}"; return 0; fi
  done <"$policy"
  return 1
}

allow_services() {
  local units=()
  is_forbidden_by_us || return 0
  if [ ${#units[@]} -gt 0 ] && command -v systemctl >/dev/null && ! systemctl disable "${units[@]}" >/dev/null 2>&1; then
    echo "prepare: these services will start with this host: systemctl disable ${units[*]}" >&2
  fi
  rm -f "$policy"
}

# One run at a time. apt inherits the lock, because it can outlive a run that was killed.
lock() {
  [ -z "$locked" ] || return 0
  exec 9>/run/durward-prepare.lock
  flock --nonblock 9 || { echo "prepare: waiting for another run, or for its apt"; flock 9; }
  locked=yes
}

if is_forbidden_by_us; then
  [ "$(id -u)" = 0 ] || fail "$policy of a killed or running scripts/prepare.sh keeps packages from starting their services: run scripts/prepare.sh as root"
  lock
  allow_services
fi

command -v go >/dev/null || fail "Go is not installed. The tests build kube-apiserver and etcd from source: install Go 1.26 or newer (https://go.dev/dl) and run make again."
# Go checks whether it is new enough for the pins, and can download a toolchain that is.
for module in kubernetes etcd etcd35 karmada; do
  said=$(go -C "e2e/controlplane/$module" list -m 2>&1) || fail "Go cannot build e2e/controlplane/$module: $said"
done

# needs PACKAGE NAME...: each name is a program in PATH or a file.
missing=()
needs() {
  local package=$1 name
  shift
  for name in "$@"; do
    case $name in
      /*) [ -e "$name" ] || { missing+=("$package"); return; } ;;
      *) command -v "$name" >/dev/null || { missing+=("$package"); return; } ;;
    esac
  done
}
needs iproute2 ip
needs util-linux setsid unshare nsenter
needs mount mount umount
# The node's container runtime, and the contents of the tests' images.
needs containerd containerd ctr
needs runc runc
needs containernetworking-plugins /usr/lib/cni/bridge /usr/lib/cni/host-local /usr/lib/cni/loopback
needs lxcfs lxcfs
needs fuse3 fusermount3
needs busybox-static busybox
needs procps free uptime
needs libxml2-utils xmllint
needs systemd systemd-analyze
needs curl curl
needs openssl openssl
needs chromium chromium
needs fonts-dejavu-core /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
needs gcc cc
needs libc6-dev "$(cc -print-file-name=libc.a 2>/dev/null || true)"

if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || fail "these Debian packages, or what your distribution calls them, are missing: ${missing[*]}"
  [ "$(id -u)" = 0 ] || fail "these Debian packages are missing: ${missing[*]}. Run as root, or: sudo apt-get install --no-install-recommends ${missing[*]}"
  lock
  if [ -e "$policy" ]; then
    echo "prepare: installing ${missing[*]} with apt; your $policy says whether services start, and the tests start their own"
  else
    services=()
    for package in "${missing[@]}"; do
      case $package in containerd | lxcfs) services+=("$package.service") ;; esac
    done
    echo "prepare: installing ${missing[*]} with apt; their services start neither now nor at boot, and the tests start their own"
    forbid_services "${services[@]}"
  fi
  # apt checks signatures as a user of its own, which needs a writable TMPDIR.
  export TMPDIR=/var/tmp DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } \
    || fail "apt could not install ${missing[*]}: see above"
  allow_services
fi

# unpack PACKAGE PROGRAM: puts Debian's package where the tests find its program. It is not installed, because it would
# start a service at every boot.
cache=${DURWARD_E2E_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/durward}}
debian=${cache:-$HOME/.cache/durward}/debian
unpack() {
  local package=$1 program=$debian/$1/usr/bin/$2 unpacked
  { command -v apt-get && command -v dpkg-deb; } >/dev/null \
    || fail "$2 is missing, and there is no apt here to fetch it: put the program of Debian 12's package $package at $program."
  echo "prepare: unpacking Debian's $package into $debian/$package; it is not installed"
  export TMPDIR=/var/tmp # as above
  unpacked=$(mktemp -d)
  made+=("$unpacked")
  fetch() { (cd "$unpacked" && apt-get download -qq -o APT::Sandbox::User=root "$package"); }
  fetch 2>/dev/null || { [ "$(id -u)" != 0 ] || apt-get update -qq; fetch; } || fail "apt could not fetch $package: see above"
  mkdir "$unpacked/$package"
  dpkg-deb --fsys-tarfile "$unpacked/${package}"_*.deb | tar -x -C "$unpacked/$package" "./usr/bin/$2"
  mkdir -p "$debian"
  rm -rf "${debian:?}/$package"
  mv "$unpacked/$package" "$debian/$package"
}

# Go cannot pin etcd 3.4, so it is Debian's (e2e/src/etcd_cluster/release.rs).
is_3_4() { [[ $("$1" --version 2>/dev/null || true) == "etcd Version: 3.4."* ]]; }
etcd=$debian/etcd-server/usr/bin/etcd
if ! is_3_4 "$etcd" && ! is_3_4 /usr/bin/etcd; then
  unpack etcd-server etcd
  is_3_4 "$etcd" || fail "the etcd-server of this distribution is not version 3.4: put the program of Debian 12's package at $etcd."
fi
# The tests of charts/durward/alerts.
[ -x "$debian/prometheus/usr/bin/promtool" ] || command -v promtool >/dev/null || unpack prometheus promtool

# On a full disk, cases would wait for processes that can't write, and end with other errors.
for directory in "${TMPDIR:-/tmp}" "${cache:-$HOME/.cache}"; do
  free=$(df -Pm "$directory" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge 4000 ] || fail "$directory has $free MB of free disk space, and the tests need 4000: delete files, or set TMPDIR (data of a run) and DURWARD_E2E_CACHE (programs)."
done

if [ "$(id -u)" != 0 ]; then
  echo "prepare: not root: the end-to-end tests need root, for namespaces of their own" >&2
fi
