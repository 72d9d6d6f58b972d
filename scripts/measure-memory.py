#!/usr/bin/env python3
"""What a tier holds in memory and on disk: 64 readers of a file of 1 GiB, and a tree of 1,000,000 files.

    scripts/measure-memory.py [--forebay target/release/forebay] [--dir DIR] [--directories 1000] [--files 1000]

Without root; needs Debian's libnfs-utils, 2 GiB and 1,000,000 inodes. The origin is a directory of this machine.
"""
import argparse, json, os, shutil, signal, subprocess, sys, tempfile, time, urllib.request

MIB = 1 << 20


class Tier:
    def __init__(self, forebay, export, cache):
        self.began = time.monotonic()
        self.process = subprocess.Popen([forebay, "serve", "--origin", f"file://{export}", "--cache", cache, "--cache-size",
                                         "4GiB", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        addresses = json.loads(self.process.stdout.readline())
        self.admin, port = addresses["admin"], addresses["nfs"].rsplit(":", 1)[1]
        self.query = f"nfsport={port}&mountport={port}&version=3"

    def run(self, tool, path, *options):
        """Seconds, and lines of output."""
        begin = time.monotonic()
        done = subprocess.run([tool, *options, f"nfs://127.0.0.1{path}?{self.query}"], stdout=subprocess.PIPE)
        if done.returncode:
            sys.exit(f"{tool} {path} failed")
        return time.monotonic() - begin, done.stdout.count(b"\n")

    def memory(self, what):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(next(l for l in status.splitlines() if l.startswith(what)).split()[1]) / 1024

    def counter(self, name):
        text = urllib.request.urlopen(f"http://{self.admin}/metrics").read().decode()
        return sum(float(l.split()[-1]) for l in text.splitlines() if l.startswith(name + "{"))

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()


def readers(args, base):
    export = base + "/one"
    os.makedirs(export + "/d")
    with open(export + "/d/big", "wb") as f:
        for _ in range(1024):
            f.write(os.urandom(MIB))
    tier = Tier(args.forebay, export, base + "/cache-one")
    begin = time.monotonic()
    all = [subprocess.Popen(["nfs-cat", f"nfs://127.0.0.1/d/big?{tier.query}"], stdout=subprocess.DEVNULL) for _ in range(64)]
    if any(reader.wait() for reader in all):
        sys.exit("a reader failed")
    print(f"64 readers of 1 GiB: {time.monotonic() - begin:.1f} s; peak resident {tier.memory('VmHWM'):.0f} MiB; origin bytes "
          f"/ bytes {tier.counter('forebay_origin_bytes_total') / 2**30:.4f}", flush=True)
    tier.end(signal.SIGTERM)
    shutil.rmtree(export)


def tree(args, base):
    export, cache = base + "/tree", base + "/cache-tree"
    for d in range(args.directories):
        os.makedirs(f"{export}/d{d}")
        for f in range(args.files):
            os.close(os.open(f"{export}/d{d}/file-{f:06}", os.O_CREAT | os.O_WRONLY, 0o644))
    total = args.directories * args.files
    tier = Tier(args.forebay, export, cache)
    idle = tier.memory("VmRSS")
    for number in range(2):
        took, lines = tier.run("nfs-ls", "/", "-R")
        if lines < total:
            sys.exit(f"{lines} lines for {total} files")
        print(f"{'again' if number else 'walk'} of {total} files: {took:.1f} s; peak resident {tier.memory('VmHWM'):.0f} MiB, "
              f"{(tier.memory('VmHWM') - idle) * MIB / total:.0f} bytes per file over {idle:.0f} MiB", flush=True)
    print(f"database {sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(cache + '/metadata') for f in fs) / total:.0f}"
          f" bytes per file", flush=True)
    for name, how in [("kill -9", signal.SIGKILL), ("a clean stop", signal.SIGTERM)]:
        tier.end(how)
        tier = Tier(args.forebay, export, cache)
        tier.run("nfs-ls", f"/d{args.directories // 2}")
        print(f"start after {name} to the first listing: {(time.monotonic() - tier.began) * 1e3:.0f} ms", flush=True)
    tier.end(signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir")
    parser.add_argument("--directories", type=int, default=1000)
    parser.add_argument("--files", type=int, default=1000)
    args = parser.parse_args()
    base = tempfile.mkdtemp(prefix="forebay-measure-", dir=args.dir)
    try:
        readers(args, base)
        tree(args, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


main()
