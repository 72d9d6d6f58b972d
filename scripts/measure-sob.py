#!/usr/bin/env python3
"""The sob stress tests 1 to 4 (docs/bench.md) on a far NAS: directly, and through a tier that writes through and one that
writes back.

    scripts/measure-sob.py [--forebay target/release/forebay] [--dir DIR] [--rtt 69.5ms] [--rate 1Gbit] [-n 3] [--tests 1,2,3,4]
                           [--ways direct,through,back]

All of it on this machine, without root: a NAS (forebay serve over a directory, written
through), the line (forebay bench relay), the tiers, and `forebay bench sob`
over NFS as the client of all three. What is written back is over too soon for a rate, and gets five times the
bytes. Printed are medians of -n repetitions, and ratios to direct.
"""
import argparse, json, os, re, shutil, statistics, subprocess, sys, tempfile

SCALES = {1: 0.02, 2: 0.2, 3: 0.02, 4: 0.2}
LONGER = {"back": 5}


def started(command, log):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(log, "a"), text=True)
    return process, process.stdout.readline()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir")
    parser.add_argument("--rtt", default="69.5ms")
    parser.add_argument("--rate", default="1Gbit")
    parser.add_argument("-n", default="3")
    parser.add_argument("--tests", default="1,2,3,4")
    parser.add_argument("--ways", default="direct,through,back")
    args = parser.parse_args()
    base, processes = tempfile.mkdtemp(prefix="measure-sob-", dir=args.dir), []

    def start(*command):
        process, line = started([args.forebay, *command], base + "/log")
        processes.append(process)
        return line

    try:
        os.mkdir(base + "/export")
        with open(base + "/nas.toml", "w") as config:
            config.write('[[nfs.export]]\nclients = ["*"]\nsquash = "none"\n')
        nas = json.loads(start("serve", "--config", base + "/nas.toml", "--origin", "file://" + base + "/export", "--cache",
                               base + "/nas", "--cache-size", "8GiB", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                               "--json"))["nfs"]
        relay = start("bench", "relay", "--to", nas, "--rtt", args.rtt, "--rate", args.rate)
        relay = re.search(r"127\.0\.0\.1:\d+", relay).group()
        origin = f"nfs://{relay}/?mountport={relay.split(':')[1]}"
        targets = {"direct": origin}
        for policy in ["through", "back"]:
            with open(f"{base}/{policy}.toml", "w") as config:
                config.write('[[nfs.export]]\nclients = ["*"]\nsquash = "none"\n')
            line = start("serve", "--config", f"{base}/{policy}.toml", "--origin", origin, "--write", policy, "--cache",
                         f"{base}/{policy}", "--cache-size", "8GiB", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json")
            nfs = json.loads(line)["nfs"]
            targets[policy] = f"nfs://{nfs}/?mountport={nfs.rsplit(':', 1)[1]}"
        for test in args.tests.split(","):
            seen = {}
            for way in args.ways.split(","):
                scale = f"{SCALES[int(test)] * LONGER.get(way, 1):g}"
                command = [args.forebay, "bench", "sob", test, "--target", targets[way], "--scale", scale, "-n", args.n, "--json"]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{' '.join(command)}: {done.stderr}{done.stdout}")
                for measure in json.loads(done.stdout)["measures"]:
                    if measure["values"]:
                        seen.setdefault((measure["name"], measure.get("unit", "")), {})[way] = measure["values"]
            for (name, unit), ways in seen.items():
                medians = {way: statistics.median(values) for way, values in ways.items()}
                told = [f"{way} {value:.4g}" + (f" ({value / medians['direct']:.3g}x)" if way != "direct" and medians.get("direct")
                                                else "") for way, value in medians.items()]
                print(f"sob {test}: {name} [{unit}]: " + ", ".join(told), flush=True)
    finally:
        [process.terminate() for process in processes]
        [process.wait() for process in processes]
        shutil.rmtree(base, ignore_errors=True)


main()
