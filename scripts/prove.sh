#!/bin/sh
# The long proofs, for a release or after a change of what they are about; hours. Each prints a line for docs/proofs.md.
#   scripts/prove.sh [--crashes 2000] [--faults 5000] [--operations 1000000] [--fuzz 600] [PROOF...]
# PROOF is one of: crashes cluster cluster-loss cluster-herd cluster-etcd cluster-crowd cluster-files readahead flips workloads
# fsx-fuse fsx-nfs fuzz. Without any: all of them, in this order.
# Needs root, and what `make test` needs.
set -eu
cd "$(dirname "$0")/.."
crashes=2000 faults=5000 operations=1000000 seconds=600
while :; do
    case ${1:-} in
    --crashes) crashes=$2 ;;
    --faults) faults=$2 ;;
    --operations) operations=$2 ;;
    --fuzz) seconds=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || set -- crashes cluster cluster-loss cluster-herd cluster-etcd cluster-crowd cluster-files \
    readahead flips workloads fsx-fuse fsx-nfs fuzz

commit=$(git rev-parse --short=10 HEAD)
git diff --quiet HEAD || commit="$commit, changed"
log=$(mktemp)
failed=0
# say WHAT COMMAND...
say() {
    what=$1
    shift
    begun=$(date +%s)
    if "$@" >"$log" 2>&1; then result=held; else result=FAILED failed=1; fi
    echo "| $(date +%F) | $commit | $what | $result | $((($(date +%s) - begun) / 60)) min |"
    grep -E '^(cluster|etcd) ' "$log" || true
    [ "$result" = held ] || { tail -60 "$log"; cp "$log" "prove-$begun.log"; echo "the whole log: prove-$begun.log"; }
}
tests() { FOREBAY_MUST_RUN=1 cargo test --locked --workspace "$@"; }
# figures TEST [RUNS]: what it measured is shown below the line of the table.
figures() {
    for _ in $(seq "${2:-1}"); do
        tests --test it -- --include-ignored --nocapture "$1" || return
    done
}

for proof; do
    case $proof in
    crashes)
        # 8 tests of one file share them; one at a time, as many at once would only wait for each other.
        FOREBAY_CRASHES=$crashes say "$crashes crashes of a tier, both policies" tests --test it -- --test-threads=1 crash::
        ;;
    cluster)
        FOREBAY_FAULTS=$faults say "$faults seeded faults of a cluster" tests --lib -- faults_cost
        ;;
    # In the lab: each prints its figures, too.
    cluster-loss)
        FOREBAY_STALL_MS=3000 say "24 readers of a cluster while a node is killed, stopped and cut off, three times" \
            figures cluster_proofs::loss 3
        ;;
    cluster-herd)
        FOREBAY_HERD_MIB=1024 say "a cold herd of 24 readers of 1 GiB while nodes join, are lost, return, start again" \
            figures cluster_proofs::herd
        ;;
    cluster-etcd)
        FOREBAY_ETCD_AWAY=600 say "a cluster without etcd for 600 s" figures cluster_proofs::etcd_away
        ;;
    cluster-crowd)
        FOREBAY_CROWD_PIECES=32 say "the memory of a node with 500 clients" figures cluster_proofs::crowd 3
        ;;
    cluster-files)
        FOREBAY_MANY_FILES=1000000 say "etcd after 1,000,000 files" figures many_files
        ;;
    readahead)
        FOREBAY_TEST_READAHEAD=0 say "the front's tests without read-ahead" tests --test it -- serve:: mount::
        ;;
    flips)
        FOREBAY_FLIPS=2000 say "2000 flipped bits in cache, metadata and journal" tests -- damage rot flip
        ;;
    workloads)
        FOREBAY_WORKLOAD_POLICIES=all FOREBAY_WORKLOAD_FILES=3000 \
            say "workloads of 3000 files, all policies" tests --test it -- workloads::
        ;;
    fsx-fuse)
        cargo build --locked --release --package forebay
        for policy in through back; do
            say "pjdfstest, and fsx of $operations operations by FUSE, $policy" \
                scripts/posix-suites.sh --front fuse --write "$policy" "$operations"
        done
        ;;
    fsx-nfs)
        for policy in through back; do
            say "fsx of $operations operations by a kernel NFS client, $policy" \
                scripts/posix-suites.sh --front nfs --write "$policy" "$operations"
        done
        ;;
    fuzz)
        say "fuzz targets, $seconds s each" scripts/fuzz.sh "$seconds"
        ;;
    *) echo "no such proof: $proof" >&2 && exit 2 ;;
    esac
done
rm -f "$log"
exit $failed
