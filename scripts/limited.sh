#!/usr/bin/env bash
# Runs one program of tests, and ends it when it takes far longer than it ever does: cargo's runner in `make tests`.
# The test that hangs is among those of which it said that they run for over 60 seconds and not that they ended.
case "$PWD" in
    */crates/forebay) limit=2700 ;;
    *) limit=900 ;;
esac
running=()
trap 'kill -TERM "${running[@]}"' INT TERM HUP

# ended PROCESS: 0 if all its tests are passed. Says what it cost: much time and little CPU is waiting.
TIMEFORMAT="$(basename "$PWD"): %1R s, of CPU %1U s in programs and %1S s in the kernel"
ended() {
    local code=0
    time wait "$1" || code=$?
    if [ "$code" -ge 124 ]; then
        echo "$(basename "$PWD"): ended by code $code, after $limit s if that is 124: a test hangs, or the program died" >&2
    fi
    return "$code"
}

# Forebay's tests in the lab run one at a time and wait for their guests: they are a row beside the others. What they print comes
# when both have ended.
beside=
if [ $# = 1 ] && [[ $PWD == */crates/forebay && $1 == */it-* ]]; then
    log=$(mktemp)
    timeout --kill-after=10 "$limit" "$1" --test-threads=1 in_the_lab:: >"$log" 2>&1 &
    beside=$!
    running+=("$beside")
    set -- "$1" --skip in_the_lab::
fi
# It makes a process group of its own, which an interrupt of the terminal does not reach by itself.
timeout --kill-after=10 "$limit" "$@" &
running+=($!)
ended $!
code=$?
if [ -n "$beside" ]; then
    ended "$beside" || code=$?
    cat "$log"
    rm -f "$log"
fi
exit "$code"
