#!/usr/bin/env python3
"""Warm GETs by S3 against nginx and MinIO: the same bytes, the same client, in turns.

    scripts/measure-s3.py [--forebay target/release/forebay] [--minio PATH] [--dir DIR] [--sizes 10M,1M,64k] [--rounds 5]
                          [--seconds 5] [--connections 8] [--client wrk|discard] [--unpinned] [--against OTHER-BUILD]

Needs nginx and wrk (Debian). For each size some objects that fill --mib MiB (all in the page cache); a client with one thread
asks for one after the other over connections that stay open. Of Forebay and MinIO by presigned URLs, of nginx (one worker,
sendfile) as plain files. The client is wrk below 1 MiB, and for larger ones this script, which has the kernel discard the
bytes (MSG_TRUNC): wrk copies them, and is slower at that than the servers here. The server has one processor and the client
the other; --unpinned: the kernel decides. Printed for each server: MiB/s, requests/s, its processor seconds for each GiB,
medians over the rounds; and the ratios of each round, their medians and ranges. With --against another build of Forebay stands
in the place of nginx and MinIO, and both are started anew in each round, as two processes of one build differ for as long as
they live: what a change costs or gains.
"""
import argparse, ctypes, hashlib, http.client, json, os, re, selectors, shutil, socket, statistics, subprocess, tempfile, time

import needs
from s3_requests import presigned as sign

MIB = 1 << 20
KEY, SECRET, BUCKET = "AKMEASURE00000000001", "measure-measure-measure", "bucket"
UNITS = {"k": 1 << 10, "M": MIB, "G": 1 << 30}


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def cpu_seconds(pid):
    """Of a process and all below it."""
    total, below = 0, [pid]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(entry) == pid or int(fields[1]) in below:
                below.append(int(entry))
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, name, port, process, signed):
        self.name, self.port, self.process, self.signed = name, port, process, signed

    def paths(self, names):
        host = f"127.0.0.1:{self.port}"
        return [sign("GET", host, f"/{BUCKET}/{name}", KEY, SECRET) if self.signed else f"/{BUCKET}/{name}" for name in names]

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{self.name}: {answer.status} {body[:300]}"
        return hashlib.sha256(body).digest()


def up(port):
    for _ in range(600):
        try:
            http.client.HTTPConnection("127.0.0.1", port).request("GET", "/")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def start(args, base, command, env={}):
    pin = [] if args.unpinned else ["taskset", "-c", "0"]
    log = open(base + "/log", "a")
    return subprocess.Popen(pin + command, env=dict(os.environ, **env), stdout=log, stderr=log)


def nginx(args, base):
    port = free_port()
    with open(base + "/nginx.conf", "w") as file:
        file.write(f"""daemon off; worker_processes 1; pid {base}/nginx.pid; error_log {base}/nginx.log; user root;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; default_type binary/octet-stream;
  client_body_temp_path {base}/t1; proxy_temp_path {base}/t2; fastcgi_temp_path {base}/t3; uwsgi_temp_path {base}/t4;
  scgi_temp_path {base}/t5;
  server {{ listen 127.0.0.1:{port}; root {base}/tree; }} }}
""")
    return Server("nginx", port, start(args, base, ["nginx", "-c", base + "/nginx.conf"]), False)


def minio(args, base):
    port = free_port()
    os.makedirs(f"{base}/minio/{BUCKET}")
    env = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "HOME": base}
    command = [args.minio, "server", "--quiet", "--address", f"127.0.0.1:{port}", "--console-address",
               f"127.0.0.1:{free_port()}", base + "/minio"]
    return Server("minio", port, start(args, base, command, env), True)


def forebay(args, base, name, program):
    port = free_port()
    with open(f"{base}/{name}.toml", "w") as file:
        file.write(f"""[cache]
dir = "{base}/cache-{name}"
[nfs]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[s3]
listen = "127.0.0.1:{port}"
[[s3.key]]
id = "{KEY}"
secret = "{SECRET}"
read = ["*"]
[[junction]]
path = "/"
origin = "file://{base}/tree"
write = "read-only"
""")
    command = [program, "serve", "--config", f"{base}/{name}.toml"]
    return Server(name, port, start(args, base, command), True)


def put_into_minio(base, server):
    host = f"127.0.0.1:{server.port}"
    for name in os.listdir(f"{base}/tree/{BUCKET}"):
        connection = http.client.HTTPConnection(host)
        connection.request("PUT", sign("PUT", host, f"/{BUCKET}/{name}", KEY, SECRET),
                           open(f"{base}/tree/{BUCKET}/{name}", "rb").read())
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


def wrk(args, base, server, paths):
    """Requests, bytes, seconds, latencies' median in ms."""
    script = base + "/paths.lua"
    with open(script, "w") as file:
        file.write("local paths = {" + ",".join(json.dumps(path) for path in paths) + "}\nlocal at = 0\n"
                   "request = function() at = at % #paths + 1; return wrk.format('GET', paths[at]) end\n"
                   "done = function(s, l, r) local e = s.errors\n"
                   "io.write(string.format('told %d %d %d %d %f\\n', s.requests, s.bytes, s.duration,"
                   " e.connect + e.read + e.write + e.status + e.timeout, l:percentile(50))) end\n")
    pin = [] if args.unpinned else ["taskset", "-c", "1"]
    told = subprocess.run(pin + ["wrk", "-t1", f"-c{args.connections}", f"-d{args.seconds}s", "--timeout", "30s", "-s", script,
                                 f"http://127.0.0.1:{server.port}"], check=True, capture_output=True, text=True).stdout
    requests, size, micros, errors, p50 = re.search(r"told (\d+) (\d+) (\d+) (\d+) ([\d.]+)", told).groups()
    assert errors == "0", f"{server.name}: {errors} errors\n{told}"
    return int(requests), int(size), int(micros) / 1e6, float(p50) / 1e3


def discard(args, base, server, paths):
    """The same, with the bytes thrown away by the kernel. Of whole answers only."""
    if not args.unpinned:
        os.sched_setaffinity(0, {1})
    requests = [f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode() for path in paths]
    buffer, selector, at, size, times = bytearray(4096), selectors.EpollSelector(), 0, 0, []
    lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(args.connections)]
    state = {}

    def ask(line):
        nonlocal at
        line.sendall(requests[at % len(requests)])
        at += 1
        state[line] = (time.monotonic(), None)

    for line in lines:
        selector.register(line, selectors.EVENT_READ)
        ask(line)
    began = time.monotonic()
    until = began + args.seconds
    while time.monotonic() < until:
        for key, _ in selector.select():
            line = key.fileobj
            asked, left = state[line]
            if left is None:
                count = line.recv_into(buffer)
                head, _, rest = bytes(buffer[:count]).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200"), f"{server.name}: {head}"
                length = int(re.search(rb"\r\ncontent-length: (\d+)", head.lower()).group(1))
                left = length - len(rest)
            else:
                count = drop(line, left)
                assert count > 0, f"{server.name}: the connection ended"
                left -= count
            size += count
            state[line] = (asked, left)
            if left == 0:
                times.append(time.monotonic() - asked)
                ask(line)
    seconds = time.monotonic() - began
    for line in lines:
        line.close()
    if not args.unpinned:
        os.sched_setaffinity(0, range(os.cpu_count()))
    return len(times), size, seconds, statistics.median(times) * 1e3


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.recv.restype = ctypes.c_ssize_t
LIBC.recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def drop(line, most):
    """Python's own wants a buffer as long as what is received, though nothing is written there."""
    return LIBC.recv(line.fileno(), None, most, socket.MSG_TRUNC)


def load(args, base, server, paths, size):
    before = cpu_seconds(server.process.pid)
    client = {"wrk": wrk, "discard": discard}[args.client or ("discard" if size >= MIB else "wrk")]
    requests, size, seconds, p50 = client(args, base, server, paths)
    cpu = cpu_seconds(server.process.pid) - before
    return {"MiB/s": size / MIB / seconds, "requests/s": requests / seconds, "p50 ms": p50, "CPU-s/GiB": cpu / (size / (1 << 30))}


def start_all(args, base):
    """This build of Forebay is the last."""
    if args.against:
        servers = [forebay(args, base, "before", args.against)]
    else:
        servers = [nginx(args, base), minio(args, base)]
    servers.append(forebay(args, base, "forebay", args.forebay))
    for server in servers:
        up(server.port)
    return servers


def stop(servers):
    for server in servers:
        server.process.terminate()
        server.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--minio", default=os.path.expanduser("~/.cache/forebay-tools/bin/minio"))
    parser.add_argument("--dir")
    parser.add_argument("--sizes", default="10M,1M,64k")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--client", choices=["wrk", "discard"])
    parser.add_argument("--unpinned", action="store_true")
    parser.add_argument("--against", help="an earlier forebay, in the place of the others")
    args = parser.parse_args()
    peers = {} if args.against else {"nginx": "nginx-light"}
    needs.programs({"wrk": "wrk", "taskset": "util-linux", **peers})
    base = tempfile.mkdtemp(prefix="measure-s3-", dir=args.dir)
    os.chmod(base, 0o755)
    os.makedirs(f"{base}/tree/{BUCKET}")
    sizes, servers = {}, []
    try:
        for size_name in args.sizes.split(","):
            size = int(size_name[:-1]) * UNITS[size_name[-1]]
            sums = sizes.setdefault(size_name, (size, {}))[1]
            for n in range(max(args.mib * MIB // size, 1)):
                body = os.urandom(size)
                sums[f"{size_name}-{n:05}"] = hashlib.sha256(body).digest()
                with open(f"{base}/tree/{BUCKET}/{size_name}-{n:05}", "wb") as file:
                    file.write(body)
        servers = start_all(args, base)
        others = [server.name for server in servers[:-1]]
        if not args.against:
            put_into_minio(base, servers[1])
        for size_name, (size, sums) in sizes.items():
            rounds = {server.name: [] for server in servers}
            for n in range(args.rounds):
                if args.against:
                    stop(servers)
                    servers = start_all(args, base)
                turn = servers[n % len(servers):] + servers[:n % len(servers)]
                for server in turn if args.against or n == 0 else []:  # warm, and the same bytes
                    for path, wanted in zip(server.paths(sums), sums.values()):
                        assert server.get(path) == wanted, f"{server.name}: other bytes"
                for server in turn:
                    rounds[server.name].append(load(args, base, server, server.paths(sums), size))
            for name, told in rounds.items():
                print(f"{size_name:>4} {name:8} " + ", ".join(
                    f"{key} {statistics.median(it[key] for it in told):.3f}" for key in told[0]), flush=True)
            for other in others:
                for key in ("MiB/s", "requests/s", "CPU-s/GiB"):
                    ratios = [a[key] / b[key] for a, b in zip(rounds["forebay"], rounds[other])]
                    print(f"{size_name:>4} forebay/{other} {key}: {statistics.median(ratios):.3f}"
                          f"  ({min(ratios):.3f} to {max(ratios):.3f}, n = {len(ratios)})", flush=True)
    except BaseException:
        print(open(base + "/log").read()[-2000:])
        raise
    finally:
        stop(servers)
        shutil.rmtree(base, ignore_errors=True)


main()
