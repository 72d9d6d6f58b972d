#!/bin/sh
# Puts the debug information of programs into a file of its own beside each: PROGRAM.debug. The program finds it there by
# itself when it prints a backtrace, and so does gdb; without it a backtrace has the functions' names, not their lines.
set -eu
for program; do
    # Nothing to do if it was done, and cargo had nothing to link since.
    readelf --sections --wide "$program" | grep -q '\.debug_info' || continue
    objcopy --only-keep-debug "$program" "$program.debug"
    objcopy --strip-debug --add-gnu-debuglink="$program.debug" "$program" "$program.tmp"
    mv "$program.tmp" "$program"
done
