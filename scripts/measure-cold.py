#!/usr/bin/env python3
"""Cold reads over a line of 1 Gbit/s at the four distances, and what many clients cost.

    scripts/measure-cold.py [--forebay target/release/forebay] [--dir DIR] [--rounds 6] [--only NAME]

All of it on this machine, without root: a NAS (forebay nas), the line (forebay bench relay), a tier with an empty cache for
each round, and clients (nfs-cat of libnfs-utils for one stream, forebay bench load for many). The rate of the line is
1 Gbit/s of TCP payload. Printed are medians, and the range of single rounds.
"""
import argparse, json, os, re, shutil, statistics, subprocess, sys, tempfile, time, urllib.request

LINE = 1e9 / 8
MIB = 1 << 20
RTTS = ["1.9ms", "69.5ms", "194ms", "221ms"]


def started(command, log):
    """A process of ours, and what it says of itself in one line of JSON."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(log, "a"), text=True)
    return process, process.stdout.readline()


def bench(forebay, data, *args):
    """What `forebay bench load` says. Lays the data set out if it is not there."""
    command = [forebay, "bench", "load", "--id", data, "--keep", "-n", "1", "--verify", "0", "--json", *args]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(command)}: {out.stderr}")
    return json.loads(out.stdout)


class Stage:
    """A NAS behind a line, and a tier in front of it whose cache is empty."""

    def __init__(self, args, base, export, rtt, rate="1Gbit"):
        self.forebay, self.export, self.processes = args.forebay, export, []
        self.room = tempfile.mkdtemp(prefix="stage-", dir=base)
        log = self.room + "/log"
        nas = self.start(["nas", export], log)
        relay = self.start(["bench", "relay", "--to", nas, "--rtt", rtt] + (["--rate", rate] if rate else []), log)
        process, line = started([args.forebay, "serve", "--origin", f"nfs://{relay}/?mountport={relay.split(':')[1]}",
                                 "--cache", self.room + "/cache", "--cache-size", "8GiB", "--nfs", "127.0.0.1:0",
                                 "--admin", "127.0.0.1:0", "--json"], log)
        self.processes.append(process)
        addresses = json.loads(line)
        self.admin, nfs = addresses["admin"], addresses["nfs"]
        self.tier, self.host, port = process.pid, nfs.rsplit(":", 1)[0], nfs.rsplit(":", 1)[1]
        self.query = f"nfsport={port}&mountport={port}"
        self.url = f"nfs://{nfs}/?mountport={port}"
        time.sleep(1)  # a tier is there before its clients, and has looked at the root of its origin

    def start(self, command, log):
        process, line = started([self.forebay, *command], log)
        self.processes.append(process)
        return re.search(r"127\.0\.0\.1:\d+", line).group()

    def counter(self, name):
        text = urllib.request.urlopen(f"http://{self.admin}/metrics").read().decode()
        return sum(float(l.split()[-1]) for l in text.splitlines() if l.startswith(name + "{") or l.startswith(name + " "))

    def memory(self):
        status = open(f"/proc/{self.tier}/status").read()
        return int(next(l for l in status.splitlines() if l.startswith("VmHWM")).split()[1]) / 1024

    def cpu(self):
        fields = open(f"/proc/{self.tier}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, data, *args):
        result = bench(self.forebay, data, "--target", self.url, "--lay-out-at", self.export, *args)
        values = {m["name"]: m["values"][0] for m in result["measures"] if m["values"]}
        if "rate" not in values:
            sys.exit(f"not measured: {result['tables'][0]}")
        return values

    def latency(self, data, *args):
        """99th percentile of a touch, ms."""
        command = [self.forebay, "bench", "load", "--id", data, "--keep", "-n", "1", "--verify", "0", "--target", self.url,
                   "--lay-out-at", self.export, *args]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        titles = next(line.split("|") for line in lines if line.startswith("| Operation"))
        values = next(line.split("|") for line in lines if line.startswith("| touch, once begun"))
        return float(values[[title.strip() for title in titles].index("p99 (ms)")])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.room, ignore_errors=True)


def stream(stage, path, size):
    """One reader; seconds, and bytes per second after the first two."""
    begin = time.monotonic()
    reader = subprocess.Popen(["nfs-cat", f"nfs://{stage.host}/{path}?{stage.query}"], stdout=subprocess.PIPE, bufsize=0)
    total = early = 0
    while data := reader.stdout.read(MIB):
        total += len(data)
        if time.monotonic() - begin < 2:
            early = total
    took = time.monotonic() - begin
    if reader.wait() or total != size:
        sys.exit(f"nfs-cat brought {total} bytes of {size}")
    return took, (total - early) / (took - 2)


def middle(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g})"


def big_file(export, size):
    os.makedirs(export + "/data")
    with open(export + "/data/big", "wb") as f:
        for _ in range(size // MIB):
            f.write(os.urandom(MIB))


def one_stream(args, base, export):
    size = 1 << 30
    big_file(export, size)
    times = {}
    for rtt in RTTS:
        rows = []
        for _ in range(args.rounds):
            with Stage(args, base, export, rtt) as stage:
                took, rate = stream(stage, "data/big", size)
                rows.append((took, rate / LINE, stage.counter("forebay_origin_bytes_total") / size, stage.memory()))
        times[rtt] = statistics.median(r[0] for r in rows)
        print(f"1 GiB cold at {rtt}: seconds {middle([r[0] for r in rows])}; rate after 2 s / line "
              f"{middle([r[1] for r in rows])}; origin bytes / bytes {middle([r[2] for r in rows])}; peak resident MiB "
              f"{middle([r[3] for r in rows])}; time / time at {RTTS[0]} {times[rtt] / times[RTTS[0]]:.3f}", flush=True)
    shutil.rmtree(export + "/data")


def growth(args, base, export):
    for size in [256 * MIB, 1 << 30, 4 << 30]:
        big_file(export, size)
        took = []
        for _ in range(args.rounds):
            with Stage(args, base, export, "69.5ms") as stage:
                took.append(stream(stage, "data/big", size)[0])
        print(f"{size // MIB} MiB cold at 69.5ms: seconds {middle(took)}; seconds / GiB "
              f"{statistics.median(took) / size * 2**30:.4g}", flush=True)
        shutil.rmtree(export + "/data")


def metadata_beside_bulk(args, base, export):
    size = 1 << 30
    big_file(export, size)
    what = ["--files", "1000", "--file-size", "4KiB", "--operation", "stat", "--epochs", "1000", "--seconds", "5s"]
    bench(args.forebay, "names", "--target", export, *what)
    rows = []
    for _ in range(args.rounds):
        with Stage(args, base, export, "69.5ms") as stage:
            subprocess.run([args.forebay, "warm", "/forebay-bench-names", "--admin", stage.admin], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            alone = stage.latency("names", "--nodes", "1", "--workers", "1", *what)
            reader = subprocess.Popen(["nfs-cat", f"nfs://{stage.host}/data/big?{stage.query}"], stdout=subprocess.DEVNULL)
            time.sleep(1)
            beside = stage.latency("names", "--nodes", "1", "--workers", "1", *what)
            if reader.poll() is not None:
                sys.exit("the bulk read was over first")
            reader.kill()
            reader.wait()
            rows.append((alone, beside))
    print(f"cached GETATTR, one at a time, p99 in ms: alone {middle([r[0] for r in rows])}; while a cold read fills the "
          f"line {middle([r[1] for r in rows])}", flush=True)
    shutil.rmtree(export + "/data")
    shutil.rmtree(f"{export}/forebay-bench-names")


def many_readers(args, base, export):
    cases = {
        "64 readers of one file of 256 MiB": ("one", 256 * MIB, ["--files", "1", "--file-size", "256MiB"], 64),
        "64 readers of 64 files of 32 MiB": ("each", 2 << 30, ["--files", "64", "--file-size", "32MiB", "--share",
                                                               "split"], 1),
    }
    for name, (data, unique, what, times) in cases.items():
        bench(args.forebay, data, "--target", export, *what)
        rows = []
        for _ in range(args.rounds):
            with Stage(args, base, export, "221ms") as stage:
                values = stage.load(data, "--nodes", "64", "--workers", "1", *what)
                rows.append((values["rate"] * MIB / LINE, values["rate"] * MIB / LINE / times,
                             stage.counter("forebay_origin_bytes_total") / unique, stage.memory()))
        print(f"{name}, cold at 221ms: rate / line {middle([r[0] for r in rows])}, unique {middle([r[1] for r in rows])}; "
              f"origin bytes / unique bytes {middle([r[2] for r in rows])}; peak resident MiB "
              f"{middle([r[3] for r in rows])}", flush=True)
        shutil.rmtree(f"{export}/forebay-bench-{data}", ignore_errors=True)


def small_reads(args, base, export):
    readers, draws, rtt = 16, 150, 0.0695
    what = ["--files", "1", "--file-size", "1GiB", "--unit", "block", "--block", "4KiB", "--order", "uniform", "--draws",
            str(draws)]
    bench(args.forebay, "small", "--target", export, *what)
    rows = []
    for _ in range(args.rounds):
        with Stage(args, base, export, f"{rtt * 1e3}ms") as stage:
            values = stage.load("small", "--nodes", str(readers), "--workers", "1", *what)
            requested = readers * draws * 4096
            rows.append((values["touches"], values["touches"] / (readers / rtt),
                         stage.counter("forebay_origin_bytes_total") / requested))
    print(f"4 KiB random reads of a cold 1 GiB file, 16 readers, 69.5ms: reads/s {middle([r[0] for r in rows])}; / "
          f"(readers / RTT) {middle([r[1] for r in rows])}; origin bytes / requested bytes {middle([r[2] for r in rows])}",
          flush=True)
    shutil.rmtree(f"{export}/forebay-bench-small", ignore_errors=True)


def many_clients(args, base, export):
    loads = {
        "64 KiB random reads": ["--files", "1", "--file-size", "512MiB", "--unit", "block", "--block", "64KiB", "--order",
                                "uniform", "--draws"],
        "4 KiB random reads": ["--files", "1", "--file-size", "512MiB", "--unit", "block", "--block", "4KiB", "--order",
                               "uniform", "--draws"],
    }
    for name, what in loads.items():
        bench(args.forebay, "clients", "--target", export, *what, "100")
        for clients in [10, 100, 500]:
            total = 120_000 if name.startswith("64") else 300_000
            with Stage(args, base, export, "1.9ms", rate=None) as stage:
                here = [*what, str(total // clients), "--nodes", str(clients), "--workers", "1"]
                subprocess.run([args.forebay, "warm", "/", "--admin", stage.admin], check=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
                rows = []
                for _ in range(args.rounds):
                    before = stage.cpu()
                    values = stage.load("clients", *here)
                    rows.append((values["touches"], (stage.cpu() - before) / total * 1e6, values.get("p99", 0)))
                print(f"{name}, warm, {clients} clients: reads/s {middle([r[0] for r in rows])}; CPU us/read "
                      f"{middle([r[1] for r in rows])}; peak resident MiB {stage.memory():.0f}", flush=True)
    shutil.rmtree(f"{export}/forebay-bench-clients", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    base = tempfile.mkdtemp(prefix="forebay-measure-", dir=args.dir)
    export = base + "/export"
    os.makedirs(export)
    try:
        for part in [one_stream, growth, many_readers, small_reads, metadata_beside_bulk, many_clients]:
            if args.only in part.__name__:
                part(args, base, export)
    finally:
        shutil.rmtree(base, ignore_errors=True)


main()
