#!/usr/bin/env python3
"""Runs the test programs of the workspace, some of them beside each other.

    scripts/run-tests.py

`cargo test` runs one program after the other, and most of ours wait: for a server, a timer, a distance. Here the longest
one (crate `forebay`, real servers and clients) runs beside all the others, which run one after the other, as under cargo;
behind them come those of its tests that read through a front once more, with read-ahead off. What a program prints is
printed when it has ended. A program that takes far longer than it ever does is ended, since one of its tests hangs. Exit
code 1: a test failed, or there was none.
"""
import collections
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

# Runs beside the others. The rest takes about as long.
LONG = ("forebay", "it")
SECONDS_MAX = collections.defaultdict(lambda: 900, {LONG: 2700})
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.M)

printing = threading.Lock()
passed = failed = ignored = 0
broken = []


def programs():
    """Builds them; tells (package, target, executable, directory of the package) of each."""
    cargo = [os.environ.get("CARGO", "cargo"), "test", "--locked", "--workspace", "--no-run"]
    built = subprocess.run([*cargo, "--message-format=json-render-diagnostics"], stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    found = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            directory = os.path.dirname(message["manifest_path"])
            found.append((os.path.basename(directory), message["target"]["name"], message["executable"], directory))
    return sorted(found)


def run(package, target, executable, directory, filters=(), **variables):
    global passed, failed, ignored
    begun = time.monotonic()
    # All programs are built: none of them has to be by a test that starts it.
    environment = dict(os.environ, CARGO_MANIFEST_DIR=directory, FOREBAY_TEST_PROGRAMS="built", **variables)
    program = subprocess.Popen(
        [executable, *filters], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    limit = SECONDS_MAX[package, target]
    late = threading.Timer(limit, lambda: os.killpg(program.pid, signal.SIGKILL))
    late.start()
    output = program.stdout.read()
    code = program.wait()
    late.cancel()
    took = time.monotonic() - begun
    with printing:
        print(f"     Running {package} {target}: {took:.0f} s\n{output}", flush=True)
        if code < 0:
            print(f"{package} {target}: ended by signal {-code}; after {limit} s a test hangs\n", flush=True)
        results = RESULT.findall(output)
        for counts in results:
            passed, failed, ignored = (a + int(b) for a, b in zip((passed, failed, ignored), counts))
        if code != 0 or not results:
            broken.append(f"{package} {target}")


def main():
    found = programs()
    begun = time.monotonic()
    long = [program for program in found if program[:2] == LONG]
    others = [program for program in found if program[:2] != LONG]

    def run_long():
        for program in long:
            run(*program)

    def run_others():
        for program in others:
            run(*program)
        for program in long:
            run(*program, filters=("serve::", "mount::"), FOREBAY_TEST_READAHEAD="0")

    threads = [threading.Thread(target=lane) for lane in (run_long, run_others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{len(found)} programs in {time.monotonic() - begun:.0f} s")
    for name in broken:
        print(f"failed: {name}")
    print(f"{passed} passed, {failed} failed, {ignored} skipped")
    sys.exit(1 if broken or passed == 0 else 0)


main()
