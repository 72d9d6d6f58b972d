#!/usr/bin/env python3
"""A bucket far away, through a tier, against the line: MinIO on this machine behind `forebay bench relay`.

    scripts/measure-object.py [--forebay target/release/forebay] [--minio PATH] [--dir DIR] [--rtt 69.5ms,221ms]
                              [--rate 1Gbit] [--rounds 3] [--mib 1024]

As root (mount). For each distance, a new tier and a new object of --mib MiB each time:
 - first byte: open and read of 4 KiB at the start of a cold object, in round trips of the line
 - cold: the object read once from its start in 1 MiB reads, by a FUSE mount, as a share of the line
 - many: 64 readers of another cold object at once; bytes that left the store for each byte of it, and how long until each had
   its first MiB
 - piece: 1 MiB in the middle of a cold object; bytes that left the store
 - back: an object of that size written back, and brought home by `forebay flush --wait`, as a share of the line
Printed are medians and ranges over the rounds.
"""
import argparse, json, os, re, shutil, socket, statistics, subprocess, tempfile, threading, time, urllib.request

MIB = 1 << 20
KEYS = "[default]\naws_access_key_id = measure\naws_secret_access_key = measure-secret\n"


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Stage:
    def __init__(self, args, base, rtt):
        self.args, self.base, self.processes = args, base, []
        self.data = base + "/minio"
        if not os.path.isdir(self.data):
            os.makedirs(self.data + "/bucket")
        with open(base + "/credentials", "w") as file:
            file.write(KEYS)
        port = free_port()
        env = dict(os.environ, MINIO_ROOT_USER="measure", MINIO_ROOT_PASSWORD="measure-secret", MINIO_BROWSER="off")
        self.processes.append(subprocess.Popen(
            [args.minio, "server", "--quiet", "--address", f"127.0.0.1:{port}", "--console-address",
             f"127.0.0.1:{free_port()}", self.data], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/bucket")
            except urllib.error.HTTPError as e:
                if e.code == 403:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        relay = self.start(["bench", "relay", "--to", f"127.0.0.1:{port}", "--rtt", rtt, "--rate", args.rate])
        self.far = re.search(r"127\.0\.0\.1:\d+", relay).group()
        self.near = f"127.0.0.1:{port}"

    def start(self, command):
        process = subprocess.Popen([self.args.forebay, *command], stdout=subprocess.PIPE,
                                   stderr=open(self.base + "/log", "a"), text=True)
        self.processes.append(process)
        return process.stdout.readline()

    def tier(self, endpoint, name, more=""):
        room = f"{self.base}/{name}"
        os.makedirs(room + "/mnt")
        origin = f"s3://bucket?endpoint=http://{endpoint}&credentials={self.base}/credentials"
        with open(room + "/toml", "w") as config:
            config.write(f'[[junction]]\npath = "/"\norigin = "{origin}"\n{more}\n')
        told = self.start(["serve", "--config", room + "/toml", "--cache", room + "/cache", "--cache-size", "16GiB",
                           "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--mount", room + "/mnt", "--json"])
        while not os.path.ismount(room + "/mnt"):
            time.sleep(0.05)
        return Tier(self, room, json.loads(told)["admin"], self.processes[-1])

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


class Tier:
    def __init__(self, stage, room, admin, process):
        self.stage, self.room, self.mount, self.admin, self.process = stage, room, room + "/mnt", admin, process

    def fetched(self):
        metrics = urllib.request.urlopen(f"http://{self.admin}/metrics").read().decode()
        found = re.findall(r"^forebay_origin_bytes_total\{[^}]*\} (\d+)", metrics, re.M)
        return sum(map(int, found))

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.stage.processes.remove(self.process)
        shutil.rmtree(self.room, ignore_errors=True)


def write(path, mib):
    with open(path, "wb", 0) as file:
        for _ in range(mib):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())


def read(path):
    fd, first = os.open(path, os.O_RDONLY), None
    began = time.monotonic()
    while os.read(fd, MIB):
        first = first or time.monotonic() - began
    os.close(fd)
    return first, time.monotonic() - began


def one_round(stage, n, mib, rtt, rate):
    near = stage.tier(stage.near, "near", 'write = "through"')
    for name in ("cold", "many", "piece"):
        write(f"{near.mount}/{name}-{n}", mib)
    near.stop()
    far, told = stage.tier(stage.far, "far", 'write = "back"\nflush_delay = "1h"'), {}
    size = mib * MIB
    os.listdir(far.mount)
    fd, began = os.open(f"{far.mount}/piece-{n}", os.O_RDONLY), time.monotonic()
    os.pread(fd, 4096, 0)
    told["first byte, round trips"] = (time.monotonic() - began) / rtt
    before = far.fetched()
    os.pread(fd, MIB, size // 2)
    time.sleep(4 * rtt)
    told["piece, bytes fetched / read"] = (far.fetched() - before) / MIB
    os.close(fd)
    _, seconds = read(f"{far.mount}/cold-{n}")
    told["cold, of the line"] = size / seconds / rate
    before, firsts = far.fetched(), []
    readers = [threading.Thread(target=lambda: firsts.append(read(f"{far.mount}/many-{n}")[0])) for _ in range(64)]
    began = time.monotonic()
    [reader.start() for reader in readers], [reader.join() for reader in readers]
    told["many, of the line"] = size / (time.monotonic() - began) / rate
    told["many, bytes fetched / unique"] = (far.fetched() - before) / size
    told["many, last first MiB s"] = max(firsts)
    write(f"{far.mount}/back-{n}", mib)
    began = time.monotonic()
    subprocess.run([stage.args.forebay, "flush", "--wait", "--admin", far.admin, "--json"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told["back, of the line"] = size / (time.monotonic() - began) / rate
    for name in os.listdir(far.mount):
        os.remove(f"{far.mount}/{name}")
    far.stop()
    return told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--minio", default=os.path.expanduser("~/.cache/forebay-tools/bin/minio"))
    parser.add_argument("--dir")
    parser.add_argument("--rtt", default="69.5ms,221ms")
    parser.add_argument("--rate", default="1Gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024)
    args = parser.parse_args()
    rate = float(re.match(r"[\d.]+", args.rate).group()) * {"G": 1e9, "M": 1e6}[args.rate.strip("0123456789.")[0]] / 8
    for distance in args.rtt.split(","):
        base = tempfile.mkdtemp(prefix="measure-object-", dir=args.dir)
        stage, results = Stage(args, base, distance), {}
        try:
            for n in range(args.rounds):
                told = one_round(stage, n, args.mib, float(distance.removesuffix("ms")) / 1e3, rate)
                print(f"{distance}, round {n + 1}: " + ", ".join(f"{k} {v:.3f}" for k, v in told.items()), flush=True)
                for name, value in told.items():
                    results.setdefault(name, []).append(value)
            for name, values in results.items():
                print(f"{distance:>8} {name:30} {statistics.median(values):8.3f}  ({min(values):.3f} to {max(values):.3f})")
        finally:
            stage.stop()
            shutil.rmtree(base, ignore_errors=True)


main()
