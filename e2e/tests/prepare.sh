#!/usr/bin/env bash
# What scripts/prepare.sh leaves of a host on which it installs, killed, twice at once, or with an administrator's rules.
# In a mount namespace of its own: apt-get, systemctl and go are these, and lxcfs is the package that is missing.
set -euo pipefail
prepare=$1
own=/mnt # on every host, and nothing of it is needed here
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
said() { [ "$(cat "$own/$1" 2>/dev/null)" = "$2" ]; }
soon() { for _ in {1..600}; do ! "$@" || return 0; sleep 0.1; done; wrong "in vain: $*"; }

# Undisturbed.
lacks_lxcfs
"$prepare" >"$own/out" 2>&1 || wrong "it fails"
said policies 101 || wrong "apt may start services"
[ ! -e "$policy" ] || wrong "services are forbidden for ever"
said systemctl "disable lxcfs.service" || wrong "LXCFS starts with the host"

# Killed: the next one does what is left, although nothing is missing any more.
lacks_lxcfs
touch "$own/killed"
{ "$prepare" && wrong "it lives"; } >"$own/out" 2>&1 || true
rm "$own/killed"
[ -e "$policy" ] || wrong "it was not killed in the midst"
"$prepare" >"$own/out" 2>&1 || wrong "it fails behind one that was killed"
[ ! -e "$policy" ] || wrong "behind one that was killed, services are forbidden for ever"
said systemctl "disable lxcfs.service" || wrong "behind one that was killed, LXCFS starts with the host"

# Twice at once: whoever is second waits, and takes nothing away from the first.
lacks_lxcfs
touch "$own/slow"
"$prepare" >"$own/first" 2>&1 & first=$!
soon test -e "$own/at-work"
"$prepare" >"$own/second" 2>&1 & second=$!
soon grep -q "waiting for another one" "$own/second"
rm "$own/slow"
wait "$first" && wait "$second" || wrong "one of two fails"
[ ! -e "$own/wrong" ] && said policies 101 || wrong "they are in each other's way"
[ ! -e "$policy" ] || wrong "behind two, services are forbidden for ever"

# The administrator's own rules stay, and hold.
lacks_lxcfs
put "$policy" <<<'exit 7'
"$prepare" >"$own/out" 2>&1 || wrong "it fails beside the administrator's rules"
said policies 7 && [ "$(cat "$policy")" = "exit 7" ] || wrong "the administrator's rules are changed"
[ ! -e "$own/systemctl" ] || wrong "the administrator's services are disabled"
