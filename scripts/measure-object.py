#!/usr/bin/env python3
"""A bucket far away, through a tier, against the line: MinIO on this machine behind `forebay bench relay`.

    scripts/measure-object.py [--forebay target/release/forebay] [--minio PATH] [--dir DIR] [--rtt 69.5ms,221ms]
                              [--rate 1Gbit] [--rounds 3] [--mib 1024] [--many-mib 256] [--piece-gib 10]

As root (mount). For each distance, a new tier each time, which knows the names and nothing else:
 - first byte: open and read of 4 KiB at the start of a cold object, by a FUSE mount
 - piece: 1 MiB in the middle of a cold object of --piece-gib GiB; bytes that left the store for each of them
 - cold: an object of --mib MiB read once from its start in 1 MiB reads, by a FUSE mount, as a share of the line
 - many: 64 clients GET a cold object of --many-mib MiB by S3 at once; bytes that left the store for each byte of it, when the
   last client had its first MiB, and when the first client had all
 - back: an object of --mib MiB written back, and brought home by `forebay flush --wait`, as a share of the line
Printed are medians and ranges over the rounds.
"""
import argparse, json, os, re, shutil, socket, statistics, subprocess, tempfile, threading, time, urllib.request

from s3_requests import presigned

MIB = 1 << 20
KEY, SECRET = "AKMEASURE00000000001", "measure-measure-measure"
KEYS = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Stage:
    def __init__(self, args, base):
        self.args, self.base, self.processes = args, base, []
        os.makedirs(base + "/minio/bucket")
        with open(base + "/credentials", "w") as file:
            file.write(KEYS)
        port = free_port()
        env = dict(os.environ, MINIO_ROOT_USER=KEY, MINIO_ROOT_PASSWORD=SECRET, MINIO_BROWSER="off", HOME=base)
        self.processes.append(subprocess.Popen(
            [args.minio, "server", "--quiet", "--address", f"127.0.0.1:{port}", "--console-address",
             f"127.0.0.1:{free_port()}", base + "/minio"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/bucket")
            except urllib.error.HTTPError as e:
                if e.code == 403:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        self.near = f"127.0.0.1:{port}"

    def far(self, rtt):
        """The store at a distance."""
        relay = self.start(["bench", "relay", "--to", self.near, "--rtt", rtt, "--rate", self.args.rate])
        return re.search(r"127\.0\.0\.1:\d+", relay).group()

    def start(self, command):
        process = subprocess.Popen([self.args.forebay, *command], stdout=subprocess.PIPE,
                                   stderr=open(self.base + "/log", "a"), text=True)
        self.processes.append(process)
        return process.stdout.readline()

    def tier(self, endpoint, name, more=""):
        room, s3 = f"{self.base}/{name}", free_port()
        os.makedirs(room + "/mnt")
        origin = f"s3://bucket?endpoint=http://{endpoint}&credentials={self.base}/credentials"
        with open(room + "/toml", "w") as config:
            config.write(f'[s3]\nlisten = "127.0.0.1:{s3}"\n[[s3.key]]\nid = "{KEY}"\nsecret = "{SECRET}"\nread = ["*"]\n'
                         f'[[junction]]\npath = "/"\norigin = "{origin}"\n{more}\n')
        told = self.start(["serve", "--config", room + "/toml", "--cache", room + "/cache", "--cache-size", "16GiB",
                           "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--mount", room + "/mnt", "--json"])
        while not os.path.ismount(room + "/mnt"):
            time.sleep(0.05)
        return Tier(self, room, json.loads(told)["admin"], s3, self.processes[-1])

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


class Tier:
    def __init__(self, stage, room, admin, s3, process):
        self.stage, self.room, self.admin, self.s3, self.process = stage, room, admin, s3, process
        self.mount = room + "/mnt/bucket"

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


def get(port, name, wanted, told):
    """When the first MiB and when all of an object had come by S3."""
    path = presigned("GET", f"127.0.0.1:{port}", f"/bucket/{name}", KEY, SECRET)
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: keep-alive\r\n\r\n".encode())
        buffer, head = bytearray(MIB), b""
        while b"\r\n\r\n" not in head:
            head += line.recv(4096)
        assert head.startswith(b"HTTP/1.1 200"), head
        had, first = len(head.split(b"\r\n\r\n", 1)[1]), None
        while had < wanted:
            count = line.recv_into(buffer)
            assert count, f"{had} bytes of {wanted}"
            had += count
            first = first or (had >= MIB and time.monotonic())
        told.append((first, time.monotonic()))


def one_round(stage, far, n, rtt, rate):
    args = stage.args
    tier, told = stage.tier(far, "far", 'write = "back"\nflush_delay = "1h"'), {}
    os.listdir(tier.mount)

    fd, began = os.open(f"{tier.mount}/piece", os.O_RDONLY), time.monotonic()
    os.pread(fd, 4096, 0)
    seconds = time.monotonic() - began
    told["first byte, ms beyond 2 round trips"] = (seconds - 2 * rtt) * 1e3
    time.sleep(4 * rtt + 1)
    before = tier.fetched()
    os.pread(fd, MIB, args.piece_gib << 29)
    time.sleep(4 * rtt + 1)
    told["piece, bytes fetched / read"] = (tier.fetched() - before) / MIB
    os.close(fd)

    fd, began = os.open(f"{tier.mount}/cold", os.O_RDONLY), time.monotonic()
    while os.read(fd, MIB):
        pass
    told["cold, of the line"] = args.mib * MIB / (time.monotonic() - began) / rate
    os.close(fd)

    before, times, size = tier.fetched(), [], args.many_mib * MIB
    clients = [threading.Thread(target=get, args=(tier.s3, "many", size, times)) for _ in range(64)]
    began = time.monotonic()
    [client.start() for client in clients], [client.join() for client in clients]
    assert len(times) == 64
    told["many, bytes fetched / unique"] = (tier.fetched() - before) / size
    told["many, last first MiB s"] = max(first for first, _ in times) - began
    told["many, first with all s"] = min(end for _, end in times) - began

    write(f"{tier.mount}/back-{n}", args.mib)
    began = time.monotonic()
    subprocess.run([args.forebay, "flush", "--wait", "--admin", tier.admin, "--json"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told["back, of the line"] = args.mib * MIB / (time.monotonic() - began) / rate
    os.remove(f"{tier.mount}/back-{n}")
    subprocess.run([args.forebay, "flush", "--wait", "--admin", tier.admin, "--json"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tier.stop()
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
    parser.add_argument("--many-mib", type=int, default=256)
    parser.add_argument("--piece-gib", type=int, default=10)
    args = parser.parse_args()
    rate = float(re.match(r"[\d.]+", args.rate).group()) * {"G": 1e9, "M": 1e6}[args.rate.strip("0123456789.")[0]] / 8
    base = tempfile.mkdtemp(prefix="measure-object-", dir=args.dir)
    stage = Stage(args, base)
    try:
        near = stage.tier(stage.near, "near", 'write = "through"')
        os.makedirs(near.mount, exist_ok=True)
        for name, mib in (("cold", args.mib), ("many", args.many_mib), ("piece", args.piece_gib << 10)):
            write(f"{near.mount}/{name}", mib)
        near.stop()
        for distance in args.rtt.split(","):
            far, results = stage.far(distance), {}
            for n in range(args.rounds):
                told = one_round(stage, far, n, float(distance.removesuffix("ms")) / 1e3, rate)
                print(f"{distance}, round {n + 1}: " + ", ".join(f"{k} {v:.3f}" for k, v in told.items()), flush=True)
                for name, value in told.items():
                    results.setdefault(name, []).append(value)
            for name, values in results.items():
                print(f"{distance:>8} {name:36} {statistics.median(values):8.3f}"
                      f"  ({min(values):.3f} to {max(values):.3f}, n = {len(values)})", flush=True)
    finally:
        stage.stop()
        shutil.rmtree(base, ignore_errors=True)


main()
