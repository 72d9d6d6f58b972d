#!/usr/bin/env python3
"""Honest clients beside hostile ones: what each attack costs them, how much memory the tier takes, and whether it names the host.

    scripts/hostile.py [--forebay target/release/forebay] [--dir DIR] [--seconds 8] [--only NAME,...] [--json FILE]

Starts a tier of its own on loopback, with default settings, over a directory; addresses of 127.0.0.0/8 are the hosts. One
honest client (127.0.0.1) works by NFS (attributes, READ and WRITE of 64 KiB, a new connection with MOUNT at each 20th
operation) and by S3 (GET of 64 KiB, PUT of 64 KiB, a listing, a new connection each time), for some seconds alone and then
beside each attack, in turns. The attackers come from 127.0.0.66 and .67, which no export rule admits, and from 127.0.0.33 to
.36, which one admits; what the tier closes they open again. Printed for each attack: the honest client's operations a second
and its 99th percentile beside the attack by those alone before it, the largest resident set of the tier (VmHWM, reset before
each attack), and whether metrics and the log name the attacker. A line that misses what must hold (rate 0.5, percentile 5,
512 MiB, named) ends in MISSED, and the exit code is 1.
"""
import argparse, base64, datetime, hashlib, hmac, json, os, random, resource, select, shutil, signal, socket, ssl, struct
import subprocess, sys, tempfile, threading, time, urllib.request
from urllib.parse import quote

MIB = 1 << 20
KEY, SECRET = "AKHOSTILE00000000001", "hostile-hostile-hostile-1"
HONEST, STRANGERS, ADMITTED = "127.0.0.1", ["127.0.0.66", "127.0.0.67"], [f"127.0.0.{i}" for i in range(33, 37)]
NFS, MOUNT = 100003, 100005


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def call(program, procedure, arguments, xid=1, uid=0):
    body = struct.pack(">I", 1) + opaque(b"hostile") + struct.pack(">IIII", uid, uid, 0, 0)[:12]
    credentials = struct.pack(">I", 1) + opaque(body)
    return struct.pack(">6I", xid, 0, 2, program, 3, procedure) + credentials + bytes(8) + arguments


def record(message):
    return struct.pack(">I", 0x80000000 | len(message)) + message


def exactly(sock, length):
    data = bytearray()
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return bytes(data)


class NfsClient:
    def __init__(self, port, host=HONEST):
        self.sock = socket.create_connection(("127.0.0.1", port), 30, (host, 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xid = random.getrandbits(31)

    def call(self, program, procedure, arguments=b""):
        self.xid = (self.xid + 1) & 0xFFFFFFFF
        self.sock.sendall(record(call(program, procedure, arguments, self.xid)))
        reply = exactly(self.sock, struct.unpack(">I", exactly(self.sock, 4))[0] & 0x7FFFFFFF)
        if struct.unpack(">I", reply[8:12])[0] != 0 or struct.unpack(">I", reply[20:24])[0] != 0:
            raise RuntimeError("the call was refused")
        if program == NFS and procedure and struct.unpack(">I", reply[24:28])[0] != 0:
            raise RuntimeError("status %d" % struct.unpack(">I", reply[24:28])[0])
        return reply[24:]

    def mount(self):
        reply = self.call(MOUNT, 1, opaque(b"/"))
        if struct.unpack(">I", reply[:4])[0] != 0:
            raise RuntimeError("not mounted")
        return reply[8 : 8 + struct.unpack(">I", reply[4:8])[0]]

    def lookup(self, directory, name):
        reply = self.call(NFS, 3, opaque(directory) + opaque(name))
        return reply[8 : 8 + struct.unpack(">I", reply[4:8])[0]]


def sign(method, path, query="", port=0, headers=None):
    """The head of a request whose payload is not signed."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    every = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now, **(headers or {})}
    names = sorted(every)
    canonical = "\n".join([method, quote(path), query] + [f"{n}:{every[n]}" for n in names]
                          + ["", ";".join(names), every["x-amz-content-sha256"]])
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in (now[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    every["authorization"] = (f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={';'.join(names)}, "
                              f"Signature={signature}")
    target = quote(path) + ("?" + query if query else "")
    return f"{method} {target} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in every.items())


def s3_request(port, method, path, query="", body=None):
    with socket.create_connection(("127.0.0.1", port), 30, (HONEST, 0)) as sock:
        length = f"content-length: {len(body)}\r\n" if body is not None else ""
        sock.sendall((sign(method, path, query, port) + length + "connection: close\r\n\r\n").encode() + (body or b""))
        data = bytearray()
        while part := sock.recv(1 << 18):
            data += part
    status = int(data.split(b" ", 2)[1])
    if not 200 <= status < 300:
        raise RuntimeError(f"{method} {path}: {status}")
    return data


def nfs_work(port, seconds, latencies, errors):
    client, count, end = None, 0, time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        try:
            if client is None or count % 20 == 0:
                if client:
                    client.sock.close()
                client = NfsClient(port)
                root = client.mount()
                file, out = client.lookup(root, b"file"), client.lookup(root, b"out")
            elif count % 3 == 0:
                client.call(NFS, 1, opaque(file))
            elif count % 3 == 1:
                client.call(NFS, 6, opaque(file) + struct.pack(">QI", count % 16 << 16, 1 << 16))
            else:
                client.call(NFS, 7, opaque(out) + struct.pack(">QII", 0, 1 << 16, 0) + opaque(bytes(1 << 16)))
        except (OSError, RuntimeError) as e:
            errors.append(f"nfs: {e}")
            client = None
        latencies.append(time.monotonic() - begun)
        count += 1


def s3_work(port, seconds, latencies, errors):
    count, end = 0, time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        try:
            if count % 3 == 0:
                s3_request(port, "GET", "/data/small")
            elif count % 3 == 1:
                s3_request(port, "PUT", "/data/put", body=bytes(1 << 16))
            else:
                s3_request(port, "GET", "/data", "list-type=2&max-keys=10")
        except (OSError, RuntimeError, IndexError, ValueError) as e:
            errors.append(f"s3: {e}")
        latencies.append(time.monotonic() - begun)
        count += 1


def honest(tier, seconds):
    """Of each front: operations a second, the 99th percentile and the longest, in ms."""
    told, errors = {}, []
    for front, work, port in (("nfs", nfs_work, tier.nfs), ("s3", s3_work, tier.s3)):
        if not port:
            continue
        latencies, failed, begun = [], [], time.monotonic()
        work(port, seconds, latencies, failed)
        took = time.monotonic() - begun
        latencies.sort()
        told[front] = ((len(latencies) - len(failed)) / took, latencies[int(len(latencies) * 0.99)] * 1000,
                       latencies[-1] * 1000)
        errors += failed
    return told, errors


class Tier:
    def __init__(self, forebay, directory, tls=None):
        self.dir = directory
        ports = []
        for _ in range(3):
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))
                ports.append(sock.getsockname()[1])
        self.nfs, self.s3, self.admin = ports
        certificate = f'certificate="{tls[0]}"\nprivate_key="{tls[1]}"\n' if tls else ""
        with open(f"{directory}/config.toml", "w") as config:
            config.write(f"""
[cache]
dir = "{directory}/cache"
size = "1GiB"
[[nfs.export]]
clients = ["{HONEST}"]
squash = "none"
[[nfs.export]]
clients = [{", ".join(f'"{host}"' for host in ADMITTED)}]
squash = "none"
[[junction]]
path = "/"
origin = "file://{directory}/origin"
write = "through"
[s3]
listen = "127.0.0.1:{self.s3}"
{certificate}
[[s3.key]]
id = "{KEY}"
secret = "{SECRET}"
read = ["*"]
write = ["*"]
""")
        self.log = open(f"{directory}/log", "ab")
        command = [forebay, "serve", "--config", f"{directory}/config.toml", "--nfs", f"127.0.0.1:{self.nfs}",
                   "--admin", f"127.0.0.1:{self.admin}"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.nfs), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        sys.exit(f"the tier did not start: {open(f'{directory}/log').read()[-2000:]}")

    def forget_peak(self):
        try:
            with open(f"/proc/{self.process.pid}/clear_refs", "w") as refs:
                refs.write("5")
        except OSError:
            pass

    def peak_mib(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as page:
            return page.read().decode()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Attack:
    """`count` connections from `hosts` to a port; each sends `first` and then, each second, `drip`, and reads nothing, or
    `sips` bytes a second; or, with `reads`, all there is, and sends `first` again."""

    def __init__(self, name, hosts, count, first=b"", drip=b"", port="nfs", reads=False, sips=0):
        self.name, self.hosts, self.count, self.first, self.drip = name, hosts, count, first, drip
        self.port, self.reads, self.sips = port, reads, sips

    def run(self, port, seconds):
        """In a process of its own, until it is killed."""
        os.nice(10)
        poll, open_ones, due = select.epoll(), {}, [(0.0, self.hosts[i % len(self.hosts)]) for i in range(self.count)]
        end, next_drip = time.monotonic() + seconds, time.monotonic() + 1
        events = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR | (select.EPOLLIN if self.reads else 0)
        while time.monotonic() < end:
            now, later = time.monotonic(), []
            for number, (at, host) in enumerate(due):
                if at > now or number > 400:
                    later.append((at, host))
                    continue
                sock = socket.socket()
                try:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    sock.bind((host, 0))
                    sock.settimeout(0.2)
                    sock.connect(("127.0.0.1", port))
                    sock.setblocking(False)
                    rest = self.first
                    while rest:
                        rest = rest[sock.send(rest):]
                except BlockingIOError:
                    pass
                except OSError:
                    sock.close()
                    later.append((now + 1, host))
                    continue
                poll.register(sock, events)
                open_ones[sock.fileno()] = (sock, host)
            due = later
            for number, event in poll.poll(0.05):
                sock, host = open_ones[number]
                if event & select.EPOLLIN and self.reads:
                    try:
                        if sock.recv(1 << 20):
                            sock.send(self.first)
                            continue
                    except BlockingIOError:
                        continue
                    except OSError:
                        pass
                poll.unregister(sock)
                del open_ones[number]
                sock.close()
                due.append((time.monotonic() + 1, host))
            if time.monotonic() > next_drip:
                next_drip += 1
                for sock, _ in open_ones.values():
                    try:
                        sock.send(self.drip)
                        if self.sips:
                            sock.recv(self.sips)
                    except OSError:
                        pass


def attacks(tier, root, file):
    mib_record = struct.pack(">I", 0x80000000 | MIB)
    # The admitted ones have a handle: they asked for it.
    readdirplus = record(call(NFS, 17, opaque(root) + bytes(16) + struct.pack(">II", MIB, MIB)))
    reads_ = record(call(NFS, 6, opaque(file) + struct.pack(">QI", 0, 1 << 16)))
    getattr_ = call(NFS, 1, opaque(root))
    fragments = b"".join(struct.pack(">I", 1) + getattr_[i : i + 1] for i in range(60))
    fragments += struct.pack(">I", 0x80000000 | len(getattr_) - 60) + getattr_[60:]
    get = (sign("GET", "/data/big", "", tier.s3) + "\r\n").encode()
    by_hyper = (sign("GET", "/data/big", "response-content-type=a", tier.s3) + "\r\n").encode()
    md5 = base64.b64encode(hashlib.md5(b"").digest()).decode()
    post = (sign("POST", "/data", "delete=", tier.s3, {"content-md5": md5}) + "content-length: 8388608\r\n\r\n<").encode()
    put = (sign("PUT", "/data/slow", "", tier.s3) + "content-length: 1073741824\r\n\r\n").encode()
    tiny = b"1\r\nx\r\n" * 20000 + b"0\r\n\r\n"
    streamed = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-decoded-content-length": "20000"}
    chunks = (sign("PUT", "/data/tiny", "", tier.s3, streamed) + f"content-length: {len(tiny)}\r\n\r\n").encode() + tiny
    return [
        Attack("records begun (8 B of 1 MiB), 200, not admitted", STRANGERS, 200, mib_record + bytes(4)),
        Attack("idle, 4150, not admitted", STRANGERS, 4150),
        Attack("MOUNT DUMP in a loop, 8, not admitted", STRANGERS, 8, record(call(MOUNT, 2, b"")) * 64, reads=True),
        Attack("records begun (8 B of 1 MiB), 200, admitted", ADMITTED, 200, mib_record + bytes(4)),
        Attack("records half sent, 200, admitted", ADMITTED, 200, mib_record + bytes(MIB // 2)),
        Attack("idle, 4400, admitted", ADMITTED, 4400),
        Attack("a byte a second of a record, 300, admitted", ADMITTED, 300, struct.pack(">I", 0x80000000 | 4000), b"\0"),
        Attack("MOUNT DUMP, 64 on each of 8, not read, admitted", ADMITTED, 8, record(call(MOUNT, 2, b"")) * 64),
        Attack("READDIRPLUS of 1 MiB, 64 on each of 40, not read", ADMITTED, 40, readdirplus * 64),
        Attack("READ of 64 KiB, 64 on each of 100, 1 KiB/s read", ADMITTED, 100, reads_ * 64, sips=1024),
        Attack("records of 60 fragments of 1 B, 8, admitted", ADMITTED, 8, fragments * 10, reads=True),
        Attack("S3: idle, 1100", STRANGERS, 1100, port="s3"),
        Attack("S3: half a head, a byte a second, 300", STRANGERS, 300, b"GET /data/x HTTP/1.1\r\nhost: ", b"x", port="s3"),
        Attack("S3: POST of 8 MiB announced, 1 B sent, 40", ADMITTED, 40, post, port="s3"),
        Attack("S3: PUT of 1 GiB, a byte a second, 300", ADMITTED, 300, put, b"x", port="s3"),
        Attack("S3: GET of 64 MiB not read, 400", ADMITTED, 400, get, port="s3"),
        Attack("S3: the same where bytes are copied, 400", ADMITTED, 400, by_hyper, port="s3"),
        Attack("S3: PUT in chunks of 1 B, 20", ADMITTED, 20, chunks, port="s3", reads=True),
    ]


def cut(page, hosts):
    """How often the tier has cut connections of these hosts short, of each by itself."""
    lines = [line for line in page.splitlines() if line.startswith("forebay_client_cut{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if any(f'address="{host}"' in line for host in hosts))


def measure(tier, attack, seconds):
    alone, errors_alone = honest(tier, seconds)
    tier.forget_peak()
    before = cut(tier.metrics(), attack.hosts)
    port = tier.nfs if attack.port == "nfs" else tier.s3
    child = os.fork()
    if child == 0:
        try:
            attack.run(port, 6 * seconds + 60)
        finally:
            os._exit(0)
    time.sleep(3)
    beside, errors = honest(tier, seconds)
    peak, page = tier.peak_mib(), tier.metrics()
    # Deadlines are longer than the honest client needs to be measured: whoever is cut by them is named after them.
    named = lambda page: cut(page, attack.hosts) > before
    wait = time.monotonic() + 45
    while not named(page) and time.monotonic() < wait:
        time.sleep(2)
        page = tier.metrics()
    peak = max(peak, tier.peak_mib())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    log = open(f"{tier.dir}/log").read()
    row = {"attack": attack.name, "rss_mib": peak, "errors": len(errors),
           "in_metrics": named(page), "in_log": any(f"client={host} " in log or f"client={host}\x1b" in log or
                                                    f"{host} " in log for host in attack.hosts)}
    for front in beside:
        row[front] = {"alone": alone[front], "beside": beside[front],
                      "rate": beside[front][0] / max(alone[front][0], 1e-9),
                      "p99": beside[front][1] / max(alone[front][1], 1e-9)}
    row["missed"] = [what for what, is_missed in (
        ("rate", any(row[f]["rate"] < 0.5 for f in beside)), ("p99", any(row[f]["p99"] > 5 for f in beside)),
        ("memory", peak > 512), ("name", not (row["in_metrics"] and row["in_log"]))) if is_missed]
    if errors:
        row["first_error"] = errors[0]
    time.sleep(1)
    return row


def show(row):
    fronts = " | ".join(
        f"{row[f]['alone'][0]:.0f} -> {row[f]['beside'][0]:.0f} ({row[f]['rate']:.2f}) | "
        f"{row[f]['alone'][1]:.1f} -> {row[f]['beside'][1]:.1f} ({row[f]['p99']:.1f})" if f in row else "- | -"
        for f in ("nfs", "s3"))
    named = "yes" if row["in_metrics"] and row["in_log"] else "no"
    missed = " **MISSED: " + ", ".join(row["missed"]) + "**" if row["missed"] else ""
    print(f"| {row['attack']} | {fronts} | {row['rss_mib']} | {named} |{missed}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", help="parts of the names of attacks")
    parser.add_argument("--json")
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20000), most))
    work = tempfile.mkdtemp(prefix="forebay-hostile-", dir=args.dir)
    rows, tiers = [], []
    try:
        os.makedirs(f"{work}/origin/data")
        for name, size in (("file", MIB), ("out", 0), ("data/small", 64 << 10), ("data/big", 64 * MIB)):
            with open(f"{work}/origin/{name}", "wb") as file:
                file.write(os.urandom(size))
            os.chmod(f"{work}/origin/{name}", 0o666)
        for i in range(3000):
            open(f"{work}/origin/{i:05d}-{'x' * 200}", "w").close()
        tier = Tier(args.forebay, work)
        tiers.append(tier)
        client = NfsClient(tier.nfs, ADMITTED[0])
        root = client.mount()
        file = client.lookup(root, b"file")
        for host in ADMITTED:  # the longest list of mounts that there can be of them
            client = NfsClient(tier.nfs, host)
            for length in range(960, 1024):
                client.call(MOUNT, 1, opaque(b"/" * length))
        honest(tier, 3)  # the first calls fill the caches
        print("| Attack | NFS op/s alone -> beside | NFS p99 ms | S3 op/s | S3 p99 ms | VmHWM MiB | named |\n|---|---|---|---|---|---|---|")
        wanted = (args.only or "").split(",")
        is_wanted = lambda name: any(part in name for part in wanted)
        for attack in attacks(tier, root, file):
            if is_wanted(attack.name):
                rows.append(measure(tier, attack, args.seconds))
                show(rows[-1])
        name = "S3: half-open TLS, 600"
        if is_wanted(name) and shutil.which("openssl"):
            tls = (f"{work}/tls.crt", f"{work}/tls.key")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                            "-subj", "/CN=localhost", "-days", "2", "-out", tls[0], "-keyout", tls[1]],
                           check=True, capture_output=True)
            os.makedirs(f"{work}/tls")
            os.symlink(f"{work}/origin", f"{work}/tls/origin")
            secured = Tier(args.forebay, f"{work}/tls", tls)
            tiers.append(secured)
            attacked, secured.s3 = secured.s3, None  # the honest client works by NFS there
            honest(secured, 2)
            attack = Attack(name, STRANGERS, 600, b"\x16\x03\x01\x02\x00\x01\x00", port="nfs")
            plain_run = attack.run
            attack.run = lambda _port, seconds: plain_run(attacked, seconds)
            rows.append(measure(secured, attack, args.seconds))
            show(rows[-1])
        for row in rows:
            if "first_error" in row:
                print(f"{row['attack']}: {row['errors']} honest operations failed, the first: {row['first_error']}")
        status = subprocess.run([args.forebay, "status", "--admin", f"127.0.0.1:{tier.admin}"], capture_output=True, text=True)
        print("".join(line + "\n" for line in status.stdout.splitlines() if "ALARM" in line), end="")
    finally:
        for tier in tiers:
            tier.stop()
        if args.json:
            json.dump(rows, open(args.json, "w"), indent=1)
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(any(row["missed"] for row in rows))


if __name__ == "__main__":
    main()
