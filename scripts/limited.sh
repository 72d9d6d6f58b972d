#!/usr/bin/env bash
# Runs one program of tests, and ends it when it takes far longer than it ever does: cargo's runner in `make tests`.
# The test that hangs is among those of which it said that they run for over 60 seconds and not that they ended.
case "$PWD" in
    */crates/forebay) half=command limit=2700 ;;
    *) half=packages limit=900 ;;
esac
# `make tests` runs the two halves beside each other. No other name leaves anything out.
case "${FOREBAY_TESTS:-$half}" in
    "$half") ;;
    command | packages) exit 0 ;;
    *)
        echo "FOREBAY_TESTS is \"$FOREBAY_TESTS\"; write command or packages" >&2
        exit 2
        ;;
esac
# Tests that mostly wait, for processes, lines and clocks: twice as many beside each other as there are processors.
case "$PWD" in
    */crates/forebay | */crates/members | */crates/coordinator | */crates/front-*)
        export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}"
        ;;
esac
# Said of each program: much time and little CPU is waiting.
TIMEFORMAT="$(basename "$PWD"): %1R s, of CPU %1U s in programs and %1S s in the kernel"
# It makes a process group of its own, which an interrupt of the terminal does not reach by itself.
timeout --kill-after=10 "$limit" "$@" &
program=$!
trap 'kill -TERM "$program"' INT TERM HUP
code=0
time wait "$program" || code=$?
if [ "$code" -ge 124 ]; then
    echo "$(basename "$PWD"): ended by code $code, after $limit s if that is 124: a test hangs, or the program died" >&2
fi
exit "$code"
