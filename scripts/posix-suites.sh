#!/bin/sh
# fsx and pjdfstest (crates) on a FUSE mount over a directory, and pjdfstest on the directory's own file system.
#
#     scripts/posix-suites.sh [operations of fsx: 1000000] [directory: a temporary one]
#
# Needs root (for pjdfstest), /dev/fuse and cargo. FOREBAY=path/to/forebay chooses another binary than the release build.
# Fails if fsx finds a difference, or if pjdfstest fails in a case in which it passes on the file system itself.
set -eu
operations=${1:-1000000}
base=${2:-$(mktemp -d)}
forebay=${FOREBAY:-target/release/forebay}
tools=$base/tools
cargo install --quiet --root "$tools" fsx@0.3.2 pjdfstest@0.2.2
mkdir -p "$base/origin" "$base/own" "$base/mnt" "$base/cache"
"$forebay" mount "file://$base/origin" "$base/mnt" --cache "$base/cache" --cache-size 2GiB --admin 127.0.0.1:0 >"$base/log" 2>&1 &
tier=$!
trap 'kill $tier; wait $tier || true' EXIT
until mountpoint -q "$base/mnt"; do sleep 0.1; kill -0 $tier; done

cat >"$base/pjdfstest.toml" <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
END
mkdir "$base/mnt/pjd"
for place in own mnt/pjd; do
    report=$base/pjdfstest-$(basename $place)
    "$tools/bin/pjdfstest" -c "$base/pjdfstest.toml" -p "$base/$place" >"$report" 2>&1 || true
    grep '^Summary' "$report"
    awk '$2 == "FAILED" { print $1 }' "$report" | sort >"$report.failed"
done
worse=$(comm -13 "$base/pjdfstest-own.failed" "$base/pjdfstest-pjd.failed")
[ -z "$worse" ] || { echo "pjdfstest fails through the mount only: $worse"; exit 1; }

seed=$(date +%s)
echo "fsx: $operations operations, seed $seed"
"$tools/bin/fsx" -q -N "$operations" -S "$seed" "$base/mnt/fsx"
