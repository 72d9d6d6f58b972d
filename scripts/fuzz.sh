#!/bin/sh
# Fuzzes what reads bytes of a wire or of a disk, each target for some seconds. It begins with the committed fuzz/seeds and what
# earlier runs on this machine left in fuzz/corpus.
#   scripts/fuzz.sh [SECONDS: 60] [TARGET...]
# Needs a nightly toolchain (rustup toolchain install nightly) and cargo-fuzz. A finding ends it, and lies in fuzz/artifacts.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cache/forebay-tools/bin"
seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $(cd fuzz/fuzz_targets && ls | sed 's/\.rs$//')
command -v cargo-fuzz >/dev/null ||
    cargo install --locked --quiet --root "$HOME/.cache/forebay-tools" cargo-fuzz
# The code is the same for all targets; the flags that mold wants are not for this.
unset RUSTFLAGS
for target; do
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
    echo "fuzz: $target, $seconds s"
    cargo +nightly fuzz build "$target"
    cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 2>&1 | grep -E "^stat::|ERROR|SUMMARY|panicked|Test unit written|DONE" || true
    if ls fuzz/artifacts/"$target"/* >/dev/null 2>&1; then
        echo "fuzz: $target has findings: fuzz/artifacts/$target"
        exit 1
    fi
done
