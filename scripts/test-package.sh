#!/usr/bin/env bash
# Installs a package of `make deb` into a Debian that has nothing else, boots that with systemd in a virtual machine, and
# runs the service as its unit has it, hardening and all; then upgrades, removes and purges it.
#   scripts/test-package.sh FILE.deb
# Needs root, debootstrap, and a kernel for user mode (user-mode-linux), as the lab of the tests does.
set -euo pipefail

deb=$(realpath "$1")
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
cache="${XDG_CACHE_HOME:-$HOME/.cache}/forebay"
bare="$cache/debian-$codename.tar"
root=$(mktemp -d -t forebay-package-XXXXXX)
trap 'rm -rf "$root"' EXIT

if [ ! -f "$bare" ]; then
    echo "package: fetching a bare Debian $codename, once"
    # The mirrors are in one file or in several, of two forms, by Debian's version; others' repositories may stand among them.
    mirrors=$(find /etc/apt/sources.list /etc/apt/sources.list.d \( -name '*.list' -o -name '*.sources' \) -exec cat {} + 2>/dev/null |
        sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\(http[^ ]*\) .*/\2/p') || true
    mirror=$(printf '%s\n' "$mirrors" | grep -m 1 '/debian/*$' || printf '%s\n' "$mirrors" | head -1)
    [ -n "$mirror" ] || { echo "package: no mirror of Debian is named in /etc/apt; a bare Debian cannot be fetched"; exit 1; }
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps "$codename" "$root/new" "$mirror" >"$root/log" 2>&1 ||
        { tail -5 "$root/log"; exit 1; }
    mkdir -p "$cache"
    tar -C "$root/new" -cf "$bare.new" . && mv "$bare.new" "$bare"
    rm -rf "$root/new"
fi
mkdir "$root/debian"
tar -C "$root/debian" -xf "$bare"
cp "$deb" "$root/debian/forebay.deb"

# What the machine does once it has booted. Its last line on the console is what counts.
cat >"$root/debian/check" <<'CHECK'
#!/bin/bash
set -eux
fail() { echo "package: $1"; systemctl status forebay --no-pager || true; journalctl -u forebay --no-pager | tail -30; exit 1; }
ip link set lo up 2>/dev/null || true
serves() { for _ in $(seq 60); do forebay status >/dev/null 2>&1 && systemctl is-active forebay && return; sleep 1; done; false; }
dpkg -i /forebay.deb
forebay --version | grep -E '^forebay [0-9.]+ \(commit [0-9a-f]+\)$'
forebay bench --version
test -s /usr/share/man/man1/forebay-serve.1 -a -s /usr/share/bash-completion/completions/forebay
bash -c 'source /usr/share/bash-completion/completions/forebay && complete -p forebay'
systemd-analyze verify --man=no /usr/lib/systemd/system/forebay.service
systemd-analyze security --no-pager forebay.service | tail -1
! systemctl is-enabled --quiet forebay || fail "it is enabled without an origin"

mkdir -p /srv/show && echo far >/srv/show/a
printf '\n[[junction]]\npath = "/show"\norigin = "file:///srv/show"\nwrite = "back"\n' >>/etc/forebay/forebay.toml
# With Type=notify this returns when the tier serves.
systemctl enable --now forebay || fail "it does not start"
systemctl is-active forebay || fail "it does not serve"
forebay status || fail "it does not answer"
forebay warm /show && forebay stat /show/a || fail "it does not read its origin"
[ "$(stat -c %a /var/lib/forebay)" = 700 ] && [ -d /var/lib/forebay/journal ] || fail "the journal is not in the state directory"
systemctl reload forebay && sleep 1 && serves || fail "it does not outlive a reload"
journalctl -u forebay --no-pager | tail -3
systemctl kill --signal=KILL forebay && sleep 1 && serves || fail "it is not started again"
# An upgrade to the same version: the configuration stays as it was edited, and the service serves again.
dpkg -i --force-confold /forebay.deb && serves || fail "it does not serve after an upgrade"
grep -q '^path = "/show"' /etc/forebay/forebay.toml
systemctl stop forebay && [ "$(systemctl show -p Result --value forebay)" = success ] || fail "it does not stop well"

dpkg -r forebay
[ ! -e /usr/bin/forebay ] && [ -e /etc/forebay/forebay.toml ] && [ -d /var/lib/forebay/journal ]
dpkg -P forebay
[ ! -e /etc/forebay/forebay.toml ] && [ ! -e /usr/lib/systemd/system/forebay.service ] && [ -d /var/lib/forebay/journal ]
echo "package: all is well"
CHECK
chmod +x "$root/debian/check"
cat >"$root/debian/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=basic.target dbus.service
[Service]
Type=oneshot
ExecStart=/check
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/debian/etc/systemd/system/multi-user.target.wants"
ln -sf ../check.service "$root/debian/etc/systemd/system/multi-user.target.wants/"
ln -sf /usr/lib/systemd/system/multi-user.target "$root/debian/etc/systemd/system/default.target"

timeout 600 linux.uml mem=768M rootfstype=hostfs rootflags="$root/debian" rw con=null con0=fd:0,fd:1 \
    init=/lib/systemd/systemd systemd.show_status=0 quiet </dev/null >"$root/console" 2>&1 || true
if grep -q "package: all is well" "$root/console"; then
    grep -a "Overall exposure level" "$root/console" || true
    echo "package: installed, served, reloaded, killed, upgraded, removed and purged in a bare Debian $codename"
else
    tail -60 "$root/console"
    echo "package: NOT well"
    exit 1
fi
