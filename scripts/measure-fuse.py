#!/usr/bin/env python3
"""Reads through the mount against reads of the same bytes on the local file system, both in the page cache.

    scripts/measure-fuse.py [--forebay target/release/forebay] [--dir DIR] [--rounds 7] [--mib 512]
                           [--only NAME] [--against OTHER-BUILD]

Needs root (passthrough), fio and a local DIR on a plain file system. Each round measures every way once, one after the
other, so that noise meets all alike; printed are medians of the rates, and the median and range of the ratios of single rounds to
the local file. "through us" is a mount by somebody who is not root, who may not have passthrough. With --against another build
of Forebay each way has its twin by that one, and is compared with it instead: what a change costs or gains. Then all are mounted anew in
each round, since two processes of one build differ for as long as they live, and each build is mounted and read first as often as
last, since the file that is read first lies in the kernel's memory where it is read at 0.8 of the rate.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

import needs

JOBS = {
    "sequential 1 MiB": ["--rw=read", "--bs=1M", "--ioengine=psync"],
    "random 4 KiB": ["--rw=randread", "--bs=4k", "--ioengine=psync", "--norandommap"],
    "mmap sequential 64 KiB": ["--rw=read", "--bs=64k", "--ioengine=mmap"],
    "mmap random 4 KiB": ["--rw=randread", "--bs=4k", "--ioengine=mmap", "--norandommap"],
}


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def fio(path, job, seconds, mib, user):
    command = [*user, "fio", "--name=x", f"--filename={path}", f"--size={mib}m", "--readonly", "--invalidate=0",
               "--time_based", f"--runtime={seconds}", "--output-format=json", *job]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    read = json.loads(out[out.index("{"):])["jobs"][0]["read"]
    return read["bw_bytes"] / 1e6, read["iops"]


def mount(forebay, origin, base, name, user):
    mnt, cache = os.path.join(base, "mnt-" + name), os.path.join(base, "cache-" + name)
    shutil.rmtree(cache, ignore_errors=True)  # what a cache has when it is opened again is checked before it is passed through
    os.makedirs(mnt, exist_ok=True), os.makedirs(cache)
    if user:
        os.chown(mnt, 65534, 65534), os.chown(cache, 65534, 65534)
    process = subprocess.Popen([*user, forebay, "mount", "file://" + origin, mnt, "--cache", cache,
                                "--cache-size", "8GiB", "--admin", "127.0.0.1:0", "--json"],
                               stdout=subprocess.PIPE, text=True)
    admin = json.loads(process.stdout.readline())["admin"]
    # The tier's own user needs no token; by TCP anybody else does. Older builds have TCP alone.
    door = os.path.join(cache, "admin.sock")
    door = door if os.path.exists(door) else admin
    subprocess.run([*user, forebay, "warm", "/file", "--admin", door, "--json"], check=True, stdout=subprocess.DEVNULL)
    return process, os.path.join(mnt, "file"), admin


def passed(forebay_admin):
    import urllib.request
    text = urllib.request.urlopen(f"http://{forebay_admin}/metrics").read().decode()
    lines = [l for l in text.splitlines() if l.startswith('forebay_fuse_opens_total{how="passthrough"}')]
    return float(lines[0].split()[-1]) if lines else 0.0


def mount_all(binaries, origin, base, processes):
    """Each way's file and user, the local file first. The processes are added to those that run."""
    ways, users = {"local": os.path.join(origin, "file")}, {"local": []}
    for build, forebay in binaries.items():
        for way, user in (("passthrough", []), ("through us", NOBODY)):
            if user and not (shutil.which("setpriv") and shutil.which("fusermount3")):
                continue
            way += build
            process, ways[way], admin = mount(forebay, origin, base, way.replace(" ", "-"), user)
            processes.append(process)
            users[way] = user
            subprocess.run([*user, "cat", ways[way]], check=True, stdout=subprocess.DEVNULL)
            if not user and passed(admin) < 1:
                sys.exit("the file is not passed through here; see the log above")
    return ways, users


def unmount_all(processes):
    while processes:
        process = processes.pop()
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--against", help="an earlier forebay")
    args = parser.parse_args()
    needs.programs({"fio": "fio", "setpriv": "util-linux"})
    base = tempfile.mkdtemp(prefix="forebay-measure-", dir=args.dir)
    os.chmod(base, 0o755)
    origin = os.path.join(base, "origin")
    os.makedirs(origin)
    local = os.path.join(origin, "file")
    with open(local, "wb") as f:
        for _ in range(args.mib):
            f.write(os.urandom(1 << 20))
    old = time.time() - 3600  # nobody takes it for a file being written
    os.utime(local, (old, old))
    processes = []
    try:
        binaries = {}
        for build, binary in (("", args.forebay), (" before", args.against)):
            if binary:
                binaries[build] = os.path.join(base, "forebay" + build.strip())
                shutil.copy(binary, binaries[build])
        subprocess.run(["cat", local], check=True, stdout=subprocess.DEVNULL)
        print(f"{args.mib} MiB, {args.rounds} rounds of {args.seconds} s, medians; ratios to local, or to the build before")
        jobs = [name for name in JOBS if args.only in name]
        ways, users = mount_all(binaries, origin, base, processes)
        seen = {(name, way): [] for name in jobs for way in ways}
        for turn in range(args.rounds):
            if args.against and turn > 0:
                unmount_all(processes)
                binaries = dict(reversed(binaries.items()))
                ways, users = mount_all(binaries, origin, base, processes)
            for name in jobs:
                # Each goes first as often as last; of two builds the order has changed already.
                for way in list(ways)[::1 if turn % 2 == 0 or args.against else -1]:
                    seen[name, way].append(fio(ways[way], JOBS[name], args.seconds, args.mib, users[way]))
        for (name, way), values in seen.items():
            twin = way + " before" if args.against and way != "local" and not way.endswith(" before") else "local"
            rate, iops = (statistics.median(v[i] for v in values) for i in (0, 1))
            single = sorted(v[0] / o[0] for v, o in zip(values, seen[name, twin]))
            print(f"{name:<24} {way:<19} {rate:>8.0f} MB/s {iops:>9.0f} /s  ratio {statistics.median(single):5.3f}"
                  f"  ({single[0]:.2f} to {single[-1]:.2f})")
    finally:
        unmount_all(processes)
        shutil.rmtree(base, ignore_errors=True)


main()
