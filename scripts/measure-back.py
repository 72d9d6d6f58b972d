#!/usr/bin/env python3
"""What programs see of the policy `back` through a FUSE mount, with the origin far away, against the local file system.

    scripts/measure-back.py [--forebay target/release/forebay] [--dir DIR] [--rounds 6] [--rtt 200ms] [--rate 1Gbit]
                            [--only sequential|through|flush] [--against OTHER-BUILD]

All of it on this machine, as root (mount): a NAS (forebay serve over a directory, written through), the line (forebay
bench relay), a tier with `--write back` whose journal is on the disk of DIR, and a mount of it. Each round does on the
mount and on the local file system, one after the other:
 - creates: 16 processes, each open(O_CREAT|O_EXCL), write of 4 KiB, close, in one directory, for 5 s
 - fsync: write of 4 KiB over a file's start and fsync, one process, median of 300
 - sequential: 512 MiB in writes of 1 MiB, then fsync, by a program that opens with O_DIRECT, here and there; through the
   page cache here, against O_DIRECT there; and through the page cache here and there
 - flush: what the sequential writes of 32 files of 64 MiB left, brought home by `forebay flush --wait`, as a share of the line
 - reads: one process, 64 KiB at random of a cached file of 256 MiB, while such a flush of 16 files is under way, against
   the same for 5 s before it; and again with the reader on a processor of its own, before and during: there it loses
   what the flush takes from it, and not what NAS and line, which are elsewhere in earnest, take from this machine
With `--only flush` each round is the flush alone. With `--only through` the mount is written through, and each round is one writer: 1 GiB in writes of 1 MiB, from the first
to the end of its fsync, as a share of the line (take `--rtt 221ms`).
Printed are medians, ratios, and the range of the ratios of single rounds; and the tier's peak of resident memory. With `--against` another
build of Forebay does the same in each round, and both are started anew in each; then the ratios are to that build: what a change costs or gains.
"""
import argparse, json, mmap, multiprocessing, os, random, re, shutil, signal, statistics, subprocess, sys, tempfile, time

MIB = 1 << 20
CLIENTS, SECONDS, SYNCS, SEQUENTIAL, FILES, FILE, KEPT = 16, 5, 300, 512, 32, 64, 256


def started(command, log):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(log, "a"), text=True)
    return process, process.stdout.readline()


class Stage:
    def __init__(self, args, forebay, base):
        self.forebay, self.base, self.processes = forebay, base, []
        policy = "through" if args.only == "through" else "back"
        export, self.mount, log = base + "/export", base + "/mnt", base + "/log"
        os.makedirs(export), os.makedirs(self.mount)
        with open(export + "/kept", "wb") as kept:
            kept.write(os.urandom(KEPT * MIB))
        with open(base + "/nas.toml", "w") as config:
            config.write('[[nfs.export]]\nclients = ["*"]\nsquash = "none"\n')
        nas = self.start(["serve", "--config", base + "/nas.toml", "--origin", "file://" + export, "--cache",
                          base + "/nas-cache", "--cache-size", "1GiB", "--nfs", "127.0.0.1:0", "--admin",
                          "127.0.0.1:0", "--json"], log)
        nas = json.loads(nas)["nfs"]
        relay = self.start(["bench", "relay", "--to", nas, "--rtt", args.rtt, "--rate", args.rate], log)
        relay = re.search(r"127\.0\.0\.1:\d+", relay).group()
        with open(base + "/tier.toml", "w") as config:
            config.write(f'[journal]\nsize = "8GiB"\n[[junction]]\npath = "/"\norigin = "nfs://{relay}/?mountport='
                         f'{relay.split(":")[1]}&nconnect=4"\nwrite = "{policy}"\n'
                         + 'flush_delay = "1h"\n' * (policy == "back"))
        self.admin = json.loads(self.start(
            ["serve", "--config", base + "/tier.toml", "--cache", base + "/cache", "--cache-size", "8GiB", "--nfs",
             "127.0.0.1:0", "--admin", "127.0.0.1:0", "--mount", self.mount, "--json"], log))["admin"]
        while not os.path.ismount(self.mount):
            time.sleep(0.1)

    def start(self, command, log):
        process, line = started([self.forebay, *command], log)
        self.processes.append(process)
        return line

    def peak_mib(self):
        with open(f"/proc/{self.processes[-1].pid}/status") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1)) // 1024

    def flush(self):
        began = time.monotonic()
        subprocess.run([self.forebay, "flush", "--wait", "--admin", self.admin, "--json"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - began

    def stop(self):
        self.processes[-1].send_signal(signal.SIGTERM)
        self.processes[-1].wait()
        for process in self.processes[:-1]:
            process.kill()
            process.wait()


def create(dir, who, counts):
    data, end, n = b"x" * 4096, time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        fd = os.open(f"{dir}/{who}-{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.write(fd, data)
        os.close(fd)
        n += 1
    counts[who] = n


def creates(dir):
    os.makedirs(dir)
    counts = multiprocessing.Array("q", CLIENTS)
    clients = [multiprocessing.Process(target=create, args=(dir, who, counts)) for who in range(CLIENTS)]
    [client.start() for client in clients], [client.join() for client in clients]
    return sum(counts) / SECONDS


def fsync(path):
    fd, times = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644), []
    for n in range(SYNCS):
        began = time.monotonic()
        os.pwrite(fd, bytes([n % 256]) * 4096, 0)
        os.fsync(fd)
        times.append(time.monotonic() - began)
    os.close(fd)
    return statistics.median(times) * 1e3


def sequential(path, mib, direct):
    buffer = mmap.mmap(-1, MIB)  # aligned
    buffer.write(os.urandom(MIB))
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | (os.O_DIRECT if direct else 0), 0o644)
    began = time.monotonic()
    for _ in range(mib):
        os.write(fd, buffer)
    os.fsync(fd)
    os.close(fd)
    return mib * MIB / 1e6 / (time.monotonic() - began)


def read(path, blocks):
    fd = os.open(path, os.O_RDONLY)
    while True:
        os.pread(fd, 1 << 16, random.randrange(KEPT * MIB >> 16) << 16)
        blocks.value += 1


def bind(pid, processors):
    subprocess.run(["taskset", "-a", "-p", "-c", processors, str(pid)], check=True, stdout=subprocess.DEVNULL)


def reads(stage, apart):
    """Blocks a second during a flush, and alone. Apart: the reader has the first processor, all others have the rest."""
    path, blocks = stage.mount + "/kept", multiprocessing.Value("q", lock=False)
    with open(path, "rb", 0) as kept:  # now it is in the cache, and in the page cache
        while kept.read(MIB):
            pass
    reader = multiprocessing.Process(target=read, args=(path, blocks))
    reader.start()
    if apart:
        bind(reader.pid, "0")
        [bind(process.pid, f"1-{os.cpu_count() - 1}") for process in stage.processes]
    time.sleep(1)
    rates = []
    for during in (lambda: time.sleep(SECONDS), stage.flush):
        began, first = time.monotonic(), blocks.value
        during()
        rates.append((blocks.value - first) / (time.monotonic() - began))
    reader.kill(), reader.join()
    [bind(process.pid, f"0-{os.cpu_count() - 1}") for process in stage.processes]
    return rates[1], rates[0]


def flushed(stage, n):
    """Bytes a second of a flush of new files."""
    for k in range(FILES):
        sequential(f"{stage.mount}/b{n}-{k}", FILE, False)
    return FILES * FILE * MIB / stage.flush()


def measured(args, stage, n):
    """By name: what was seen of this build, and of what it is measured by."""
    line, local, seen = 1e9 / 8, stage.base + "/local", {}
    if args.only == "through":
        rate = sequential(f"{stage.mount}/t{n}", 1024, False) * 1e6
        os.remove(f"{stage.mount}/t{n}")
        return {"through, of the line": (rate, line)}
    if args.only == "flush":
        return {"flush of the line": (flushed(stage, n), line)}
    os.makedirs(local)
    both = sequential(f"{stage.mount}/d{n}", SEQUENTIAL, True), sequential(local + "/d", SEQUENTIAL, True)
    seen["direct, both MB/s"] = both
    cached = sequential(f"{stage.mount}/s{n}", SEQUENTIAL, False)
    seen["cached to direct MB/s"] = (cached, both[1])
    seen["cached, both MB/s"] = (cached, sequential(local + "/s", SEQUENTIAL, False))
    if not args.only:
        seen["creates /s"] = (creates(f"{stage.mount}/c{n}"), creates(local + "/c"))
        seen["fsync ms"] = (fsync(f"{stage.mount}/f{n}"), fsync(local + "/f"))
        shutil.rmtree(f"{stage.mount}/c{n}")  # what is over before it travels
        stage.flush()
        seen["flush of the line"] = (flushed(stage, n), line)
        for apart, name in [(False, "reads /s"), (True, "reads apart /s")]:
            for k in range(FILES // 2):
                sequential(f"{stage.mount}/r{n}-{apart}-{k}", FILE, False)
            seen[name] = reads(stage, apart)
    for name in set(os.listdir(stage.mount)) - {"kept"}:
        os.remove(f"{stage.mount}/{name}")
    stage.flush()
    shutil.rmtree(local)
    return seen


def beside(args, base, n):
    """The same of this build and of the other, which are started one after the other; each goes first as often as last."""
    seen = {}
    for which in ("forebay", "against")[:: 1 if n % 2 == 0 else -1]:
        own = os.path.join(base, f"{which}-{n}")
        os.makedirs(own)
        stage = Stage(args, getattr(args, which), own)
        try:
            seen[which] = measured(args, stage, n)
        finally:
            stage.stop()
            shutil.rmtree(own, ignore_errors=True)
    # Of both the first alone: what they are measured by is the same.
    return {name: (mine, seen["against"][name][0]) for name, (mine, _) in seen["forebay"].items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rtt", default="200ms")
    parser.add_argument("--rate", default="1Gbit")
    parser.add_argument("--only", choices=["sequential", "through", "flush"])
    parser.add_argument("--against", help="an earlier forebay")
    args = parser.parse_args()
    base = tempfile.mkdtemp(prefix="measure-back-", dir=args.dir)
    results = {}
    stage = None if args.against else Stage(args, args.forebay, base)
    try:
        for n in range(args.rounds):
            told = beside(args, base, n) if args.against else measured(args, stage, n)
            for name, pair in told.items():
                results.setdefault(name, []).append(pair)
            print(f"round {n + 1}: " + ", ".join(f"{name} {a:.4g} and {b:.4g}" for name, (a, b) in told.items()), flush=True)
        for name, pairs in results.items():
            ratios = [mine / other for mine, other in pairs]
            mine, other = (statistics.median(column) for column in zip(*pairs))
            print(f"{name:22} {mine:12.4g} {other:12.4g}  ratio {statistics.median(ratios):.3f}"
                  f"  ({min(ratios):.3f} to {max(ratios):.3f})")
        if stage:
            print(f"peak resident of the tier: {stage.peak_mib()} MiB")
    finally:
        if stage:
            stage.stop()
        shutil.rmtree(base, ignore_errors=True)


main()
