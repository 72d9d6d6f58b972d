#!/bin/sh
# fsx and pjdfstest (crates) on a FUSE mount over a directory, and pjdfstest on the directory's own file system; or fsx
# through the kernel NFS client of the lab.
#
#     scripts/posix-suites.sh [--front fuse|nfs] [--write through] [--seed N] [operations of fsx: 1000000] [directory: a temporary one]
#
# fsx runs in turns of 100,000 operations, the n-th with the seed + n: see below.
#
# Needs root (for pjdfstest, and for the lab) and cargo; /dev/fuse, or what the lab needs. FOREBAY=path/to/forebay chooses
# another binary than the release build (fuse only: the lab's is the one that is built with its tests).
# Fails if fsx finds a difference, or if pjdfstest fails in a case in which it passes on the file system itself.
set -eu
front=fuse policy=through seed=$(date +%s)
while :; do
    case ${1:-} in
    --front) front=$2 ;;
    --write) policy=$2 ;;
    --seed) seed=$2 ;;
    *) break ;;
    esac
    shift 2
done
operations=${1:-1000000}
base=${2:-$(mktemp -d)}
# pjdfstest works as other users, too.
chmod 755 "$base"
forebay=${FOREBAY:-target/release/forebay}
tools=$base/tools
cargo install --quiet --root "$tools" fsx@0.3.2 pjdfstest@0.2.2

# All that both fronts can do. What goes through pages, what goes around them, and what makes them go. Without
# posix_fallocate: about once in 200,000 calls this fsx asks for 0 bytes, which no file system allocates, and gives up.
# Some of its mappings of the file stay behind (on ext4 as here): each makes what comes after it slower, and at 65,530
# the kernel gives it no more. So no process does more than 100,000 operations.
turn=100000
cat >"$tools/bin/fsx.toml" <<'END'
[weights]
read = 10
write = 10
mapread = 8
mapwrite = 8
truncate = 10
close_open = 2
invalidate = 2
fsync = 2
fdatasync = 2
sendfile = 5
posix_fadvise = 2
posix_fallocate = 0
copy_file_range = 5
END
# NFSv3 has no call for it.
[ "$front" = nfs ] || echo 'punch_hole = 5' >>"$tools/bin/fsx.toml"

case $front in
nfs)
    export FOREBAY_MUST_RUN=1 FOREBAY_FSX_DIR="$tools/bin" FOREBAY_FSX_OPERATIONS="$operations" FOREBAY_FSX_SEED="$seed" FOREBAY_FSX_TURN="$turn" FOREBAY_FSX_POLICY="$policy"
    exec cargo test --quiet --locked --package forebay --test it -- --ignored --nocapture fsx_through_the_kernel_nfs_client
    ;;
fuse) ;;
*) echo "no such front: $front" >&2 && exit 2 ;;
esac

mkdir -p "$base/origin" "$base/own" "$base/mnt" "$base/cache"
"$forebay" mount "file://$base/origin" "$base/mnt" --write "$policy" --cache "$base/cache" --cache-size 2GiB --admin 127.0.0.1:0 >"$base/log" 2>&1 &
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

while [ "$operations" -gt 0 ]; do
    count=$((operations < turn ? operations : turn))
    echo "fsx: $count operations, seed $seed, policy $policy"
    "$tools/bin/fsx" -q -f "$tools/bin/fsx.toml" -N "$count" -S "$seed" "$base/mnt/fsx-$seed"
    operations=$((operations - count)) seed=$((seed + 1))
done
