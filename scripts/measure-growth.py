#!/usr/bin/env python3
"""What more files, more clients, more cached blocks and more operations in the journal cost, and how each cost grows.

    scripts/measure-growth.py [--forebay target/release/forebay] [--growth target/release/examples/growth] [--dir DIR]
                              [--largest 1000000] [--smallest 10000] [--rounds 1] [--only files,clients,cache,journal]

Needs `cargo build --release -p forebay` and `cargo build --release -p rpc-nfs3 --example growth`. Without root. One thing is
faked: the far NAS, which computes the names and attributes of its files (`growth serve`). The tier is the real program, with its
database and cache on the disk, and is really ended and started again. Sizes are powers of ten up to --largest; 100,000 takes
seconds, 1,000,000 minutes, and 10,000,000 wants --dir on a disk with 8 GB free.

files: a tree of n files in directories of 1,000, at a new tier each round
 - first walk, warm walk: one client lists all of it with attributes (READDIRPLUS), first while the tier knows nothing
 - restart, kill -9: from starting the program to the first directory that it lists, after a clean stop and after a kill
 - walk after it: the warm walk again, by the tier that was started again
 - evict: `forebay evict /` of the whole tree
 - resident: VmRSS above that of the tier before it knew a file; disk: the metadata directory
clients: 1, 10, 100 and 1,000 clients that share the warm walk (NFS) or list the same keys page by page (S3)
cache: a start over n cached blocks in files of 64, until it answers and until all are counted (`forebay_cache_used_bytes`)
journal: n files made by 64 NFS clients under `back` and not flushed, and starts over that journal until the first answer

Each row: n, seconds, microseconds for each, bytes on disk and resident for each, and the slope to the size before:
log(cost / cost before) / log(n / n before). 1.00 is linear. With several rounds, figures are medians.
"""
import argparse, http.client, json, math, os, random, resource, shutil, signal, statistics, subprocess, sys, tempfile, threading, time
import urllib.request

from s3_requests import presigned

PER_DIRECTORY = 1000
# As the cache has them.
BLOCK, BLOCKS_OF_A_FILE, DISK_UNIT = 64 << 10, 64, 4096
KEYS = {"FOREBAY_S3_ACCESS_KEY_ID": "growth", "FOREBAY_S3_SECRET_ACCESS_KEY": "growth-secret-of-a-measurement"}


def size_of(path):
    """Bytes that the files below take on the disk."""
    return sum(os.stat(os.path.join(d, f)).st_blocks * 512 for d, _, fs in os.walk(path) for f in fs)


class Nas:
    """The far storage by formula."""

    def __init__(self, args, files, size=4096):
        of_each = min(files, PER_DIRECTORY)
        self.directories = max(1, files // of_each)
        self.process = subprocess.Popen([args.growth, "serve", str(self.directories), str(of_each), str(size)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.url = f"nfs://127.0.0.1:{self.port}/export"

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Tier:
    def __init__(self, args, base, origin, junction=""):
        self.args, self.base = args, base
        with open(base + "/forebay.toml", "w") as f:
            # What is known stays known, however long a walk takes.
            f.write(f'[[junction]]\npath = "/"\norigin = "{origin}"\nfiles = "1d"\ndirectories = "1d"\n{junction}')
        self.command = [args.forebay, "serve", "--config", base + "/forebay.toml", "--cache", base + "/cache", "--cache-size",
                        "4GiB", "--nfs", "127.0.0.1:0", "--s3", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json"]
        self.log = open(base + "/log", "ab")
        self.start()

    def start(self):
        self.began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=dict(os.environ, **KEYS))
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the tier did not start: {open(self.base + '/log').read()[-2000:]}")
        self.addresses = json.loads(line)
        self.answers = time.monotonic() - self.began

    def walk(self, path="/", clients=1):
        run = [self.args.growth, "walk", self.addresses["nfs"], path, str(clients)]
        done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(run)}: {done.stderr}")
        return json.loads(done.stdout)

    def processor(self):
        """Seconds of processor time since it was started."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self, what="VmRSS"):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(next(l for l in status.splitlines() if l.startswith(what)).split()[1]) * 1024

    def metric(self, name):
        text = urllib.request.urlopen(f"http://{self.addresses['admin']}/metrics").read().decode()
        return sum(float(l.split()[-1]) for l in text.splitlines() if l.split("{")[0].split(" ")[0] == name)

    def evict(self, path):
        begin = time.monotonic()
        done = subprocess.run([self.args.forebay, "evict", path, "--admin", self.addresses["admin"]], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"evict: {done.stdout}")
        return time.monotonic() - begin

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()

    def restart(self, how, path):
        """Seconds from the start of the program to the first answer about `path`."""
        self.end(how)
        self.start()
        self.walk(path)
        return time.monotonic() - self.began


def files(args, base, n, add):
    nas = Nas(args, n)
    tier = Tier(args, base, nas.url)
    some = f"/frame.{nas.directories // 2:07}.exr"
    idle = tier.resident()

    def walk(what):
        before = tier.processor()
        walked = tier.walk()
        if walked["files"] != n:
            sys.exit(f"{walked['files']} files were listed of {n}")
        resident = max(0, tier.resident() - idle)
        add("files", what, n, walked["seconds"], tier.processor() - before, size_of(base + "/cache/metadata"), resident)

    walk("first walk")
    walk("warm walk")
    def restart(what, how):
        seconds = tier.restart(how, some)
        add("files", what, n, seconds, tier.processor())

    restart("restart, to the first answer", signal.SIGTERM)
    walk("warm walk after it")
    restart("kill -9, to the first answer", signal.SIGKILL)
    walk("warm walk after that")
    before = tier.processor()
    seconds = tier.evict("/")
    add("files", "evict of the tree", n, seconds, tier.processor() - before, size_of(base + "/cache/metadata"),
        max(0, tier.resident() - idle))
    tier.end()
    nas.end()


def s3_walkers(tier, clients, directories):
    """Clients that list the same directories by S3, as buckets of 1,000 keys; seconds and keys."""
    host, work, keys, errors = tier.addresses["s3"], list(range(directories)), [0] * clients, []
    lock = threading.Lock()

    def walk(client):
        try:
            line = http.client.HTTPConnection(host, timeout=120)
            while True:
                with lock:
                    if not work:
                        return
                    at = work.pop()
                path = presigned("GET", host, f"/frame.{at:07}.exr", *KEYS.values(), query={"list-type": "2"})
                line.request("GET", path)
                answer = line.getresponse()
                body = answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status}: {body[:300]!r}")
                keys[client] += body.count(b"<Contents>")
        except Exception as e:  # told below, by the thread that waits
            errors.append(e)

    threads = [threading.Thread(target=walk, args=(client,)) for client in range(clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        sys.exit(f"{len(errors)} of {clients} S3 clients failed: {errors[0]}")
    return time.monotonic() - begin, sum(keys)


def clients(args, base, add):
    n = min(args.largest, 1_000_000)
    nas = Nas(args, n)
    tier = Tier(args, base, nas.url)
    tier.walk()
    counts = [10 ** power for power in range(7) if 10 ** power <= args.clients]
    for count in counts:
        before = tier.processor()
        walked = tier.walk(clients=count)
        add("clients", f"walk of {n} files, NFS clients", count, walked["seconds"], tier.processor() - before,
            resident=tier.resident(), each=n)
    for count in counts:
        before = tier.processor()
        seconds, keys = s3_walkers(tier, count, nas.directories)
        if keys != n:
            sys.exit(f"{keys} keys were listed of {n}")
        add("clients", f"listing of {n} keys, S3 clients", count, seconds, tier.processor() - before,
            resident=tier.resident(), each=n)
    tier.end()
    nas.end()


def cache(args, base, n, add):
    """Pairs of files as the cache has them, without their bytes: a start does not read these."""
    blocks = base + "/cache/blocks"
    for sub in range(256):
        os.makedirs(f"{blocks}/{sub:02x}", mode=0o700)
    with open(blocks + "/FORMAT", "w") as f:
        f.write("forebay cache, format 1\n")
    count, random_ids = max(1, n // BLOCKS_OF_A_FILE), random.Random(1)
    for _ in range(count):
        file, version = random_ids.randbytes(16).hex(), random_ids.randbytes(16).hex()
        pair = f"{blocks}/{file[:2]}/{file}-{version}"
        for ending, size in [(".data", BLOCKS_OF_A_FILE * BLOCK), (".map", 64 + 8 * BLOCKS_OF_A_FILE)]:
            made = os.open(pair + ending, os.O_CREAT | os.O_WRONLY, 0o600)
            os.ftruncate(made, size)
            os.close(made)
    nas = Nas(args, PER_DIRECTORY)
    tier = Tier(args, base, nas.url)
    tier.walk("/frame.0000000.exr")
    add("cache", "start, to the first answer, cached blocks", n, time.monotonic() - tier.began, tier.processor())
    while tier.metric("forebay_cache_used_bytes") < count * DISK_UNIT:
        time.sleep(0.01)
    add("cache", "until all are counted", n, time.monotonic() - tier.began, tier.processor(), resident=tier.resident())
    tier.end()
    nas.end()


def journal(args, base, n, add):
    nas = Nas(args, max(n, PER_DIRECTORY))
    tier = Tier(args, base, nas.url, 'write = "back"\nflush_delay = "1d"\n')
    idle, before = tier.resident(), tier.processor()
    run = [args.growth, "fill", tier.addresses["nfs"], str(n), "64"]
    done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(run)}: {done.stderr}")
    add("journal", "files made, not flushed", n, json.loads(done.stdout)["seconds"], tier.processor() - before,
        size_of(base + "/cache/journal"), max(0, tier.resident() - idle))
    for what, how in [("restart", signal.SIGTERM), ("kill -9", signal.SIGKILL)]:
        seconds = tier.restart(how, "/frame.0000000.exr")
        entries = tier.metric("forebay_journal_entries")
        if entries < n:
            sys.exit(f"{entries} operations are in the journal of {n}")
        add("journal", f"{what} with them, to the first answer", n, seconds, tier.processor(),
            resident=max(0, tier.resident() - idle))
    tier.end(signal.SIGKILL)
    nas.end()


def slope(before, now):
    (n0, cost0), (n1, cost1) = before, now
    return math.log(cost1 / cost0) / math.log(n1 / n0) if cost0 > 0 and cost1 > 0 and n1 != n0 else None


class Table:
    """Costs by group, row and size, of all rounds."""

    def __init__(self):
        self.costs = {}

    def add(self, group, row, n, seconds, processor=None, disk=None, resident=None, each=None):
        self.costs.setdefault((group, row), {}).setdefault(n, []).append((seconds, processor, disk, resident, each or n))
        print(f"  {row}, {n}: {seconds:.3f} s", file=sys.stderr, flush=True)

    def show(self):
        print("| what | n | seconds | us each | tier's CPU us each | disk B each | resident MiB | resident B each | slope of time | of CPU | "
              "of memory |\n|" + "---|" * 11)
        for (_, row), sizes in self.costs.items():
            before = None
            for n, rounds in sorted(sizes.items()):
                median = lambda at: statistics.median([r[at] for r in rounds]) if rounds[0][at] is not None else None
                seconds, processor, disk, resident, each = (median(at) for at in range(5))
                told = lambda value, form: "" if value is None else format(value, form)
                now = (seconds, processor, resident)
                slopes = [slope((before[0], was or 0), (n, value or 0)) for was, value in zip(before[1], now)] if before else [None] * 3
                cells = [row, f"{n:,}", f"{seconds:.3f}", f"{seconds / each * 1e6:.2f}", told(processor and processor / each * 1e6, ".2f"),
                         told(disk and disk / each, ".0f"), told(resident and resident / (1 << 20), ".0f"),
                         told(resident and resident / each, ".0f"), *(told(steep, ".2f") for steep in slopes)]
                print(f"| {' | '.join(cells)} |")
                before = (n, now)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--growth", default="target/release/examples/growth")
    parser.add_argument("--dir")
    parser.add_argument("--smallest", type=int, default=10_000)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="files,clients,cache,journal")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    table, sizes = Table(), []
    while not sizes or sizes[-1] * 10 <= args.largest:
        sizes.append(sizes[-1] * 10 if sizes else args.smallest)

    def in_a_directory(measure, *of):
        base = tempfile.mkdtemp(prefix="forebay-growth-", dir=args.dir)
        try:
            measure(args, base, *of, table.add)
        finally:
            shutil.rmtree(base, ignore_errors=True)

    for _ in range(args.rounds):
        for group in args.only.split(","):
            if group == "clients":
                in_a_directory(clients)
            else:
                for n in sizes:
                    in_a_directory({"files": files, "cache": cache, "journal": journal}[group], n)
    table.show()


main()
