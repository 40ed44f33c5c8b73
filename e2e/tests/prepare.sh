#!/usr/bin/env bash
# Checks the state of the host after scripts/prepare.sh: after an installation, after a kill, after two runs at once, and with an
# administrator's rules. Runs in its own mount namespace with fakes of apt-get, systemctl and go. The missing package is lxcfs.
set -euo pipefail
prepare=$1
own=/mnt # exists on every host and is not used here
mount -t tmpfs none "$own"
mount -t tmpfs none /run
mkdir -p "$own"/{bin,upper/{bin,sbin},work/{bin,sbin}} "$own"/cache/debian/{etcd-server,prometheus}/usr/bin
for folder in bin sbin; do
  mount -t overlay -o "lowerdir=/usr/$folder,upperdir=$own/upper/$folder,workdir=$own/work/$folder" none "/usr/$folder"
done
policy=/usr/sbin/policy-rc.d
rm -f "$policy"

put() { cat >"$1"; chmod 755 "$1"; }
put "$own/cache/debian/etcd-server/usr/bin/etcd" <<<'echo "etcd Version: 3.4.0"'
put "$own/cache/debian/prometheus/usr/bin/promtool" <<<':'
put "$own/bin/go" <<<':'
put "$own/bin/systemctl" <<<'echo "$*" >>/mnt/systemctl'
put "$own/bin/apt-get" <<'EOF'
[ "$1" = install ] || exit 0
mkdir /mnt/busy || echo "two at once" >>/mnt/wrong
touch /mnt/at-work
while [ -e /mnt/slow ]; do sleep 0.05; done
cp /mnt/bin/go /usr/bin/lxcfs
sh "$(command -v policy-rc.d)" >/dev/null 2>&1
echo "$?" >>/mnt/policies
rmdir /mnt/busy
[ ! -e /mnt/killed ] || kill -9 "$PPID"
EOF
export PATH=$own/bin:$PATH DURWARD_E2E_CACHE=$own/cache

wrong() { echo "$1" >&2; cat "$own"/{out,first,second,policies,systemctl,wrong} >&2 2>/dev/null || true; exit 1; }
lacks_lxcfs() { rm -f /usr/bin/lxcfs "$own"/{policies,systemctl,at-work}; }
has() { [ "$(cat "$own/$1" 2>/dev/null)" = "$2" ]; }
soon() { for _ in {1..600}; do ! "$@" || return 0; sleep 0.1; done; wrong "timed out: $*"; }

# A run without disturbance.
lacks_lxcfs
"$prepare" >"$own/out" 2>&1 || wrong "it fails"
has policies 101 || wrong "apt may start services"
[ ! -e "$policy" ] || wrong "services stay forbidden"
has systemctl "disable lxcfs.service" || wrong "LXCFS starts with the host"

# A killed run: the next run finishes its work, although no package is missing.
lacks_lxcfs
touch "$own/killed"
{ "$prepare" && wrong "it was not killed"; } >"$own/out" 2>&1 || true
rm "$own/killed"
[ -e "$policy" ] || wrong "it was killed too late"
"$prepare" >"$own/out" 2>&1 || wrong "it fails after a killed run"
[ ! -e "$policy" ] || wrong "after a killed run, services stay forbidden"
has systemctl "disable lxcfs.service" || wrong "after a killed run, LXCFS starts with the host"

# Two runs at once: the second one waits, and does not disturb the first one.
lacks_lxcfs
touch "$own/slow"
"$prepare" >"$own/first" 2>&1 & first=$!
soon test -e "$own/at-work"
"$prepare" >"$own/second" 2>&1 & second=$!
soon grep -q "waiting for another run" "$own/second"
rm "$own/slow"
wait "$first" && wait "$second" || wrong "one of two runs fails"
[ ! -e "$own/wrong" ] && has policies 101 || wrong "two runs disturb each other"
[ ! -e "$policy" ] || wrong "after two runs, services stay forbidden"

# The administrator's own rules stay in effect.
lacks_lxcfs
put "$policy" <<<'exit 7'
"$prepare" >"$own/out" 2>&1 || wrong "it fails with the administrator's rules"
has policies 7 && [ "$(cat "$policy")" = "exit 7" ] || wrong "the administrator's rules are changed"
[ ! -e "$own/systemctl" ] || wrong "the administrator's services are disabled"
