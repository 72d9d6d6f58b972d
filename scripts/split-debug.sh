#!/bin/sh
# Puts the debug information of programs into a file of its own beside each: PROGRAM.debug. The program finds it there by
# itself when it prints a backtrace, and so does gdb; without it a backtrace has the functions' names, not their lines.
set -eu
for program; do
    # Nothing to do if it was done, and cargo had nothing to link since.
    objcopy --dump-section .gnu_debuglink=/dev/null "$program" "$program.tmp" 2>/dev/null && rm -f "$program.tmp" && continue
    objcopy --only-keep-debug "$program" "$program.debug"
    objcopy --strip-debug --add-gnu-debuglink="$program.debug" "$program" "$program.tmp"
    mv "$program.tmp" "$program"
done
