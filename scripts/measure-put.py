#!/usr/bin/env python3
"""PUTs of objects into a bucket, directly and through a tier that writes through: MinIO and Azurite on this machine.

    scripts/measure-put.py [--forebay target/release/forebay] [--tools DIR] [--azurite PATH] [--dir DIR]
                           [--stores azurite,minio] [--rounds 3] [--objects 64] [--kib 4096] [--workers 4]

In each round, one after the other: new objects are PUT directly, and then by S3 through a tier, by so many workers with one
connection each; then the latter are read back through the tier, and what of them left the store is counted. Printed are MiB/s
as medians and ranges over the rounds. Store, tier and workers share the processors of this machine.
"""
import argparse, base64, hashlib, hmac, http.client, json, os, re, shutil, socket, statistics, subprocess, sys, tempfile, threading
import time, urllib.parse, urllib.request

from s3_requests import presigned

KEY, SECRET = "AKMEASURE00000000001", "measure-measure-measure"
# Of Azurite, made up.
ACCOUNT = "forebaymeasure"
ACCOUNT_KEY = base64.b64encode(b"not a secret of anybody, not a secret of anybody, not a secret!!").decode()
SAS_VERSION = "2021-12-02"


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing listens on port {port}")


class Store:
    """A store with a bucket, its URL as an origin, and how an object is PUT there directly."""

    def __init__(self, args, base, kind):
        self.kind, self.port, self.dir = kind, free_port(), f"{base}/{kind}"
        os.makedirs(self.dir + "/bucket")
        if kind == "minio":
            env = dict(os.environ, MINIO_ROOT_USER=KEY, MINIO_ROOT_PASSWORD=SECRET, MINIO_BROWSER="off", HOME=base)
            command = [f"{args.tools}/minio", "server", "--quiet", "--address", f"127.0.0.1:{self.port}", "--console-address",
                       f"127.0.0.1:{free_port()}", self.dir]
        else:
            env = dict(os.environ, AZURITE_ACCOUNTS=f"{ACCOUNT}:{ACCOUNT_KEY}")
            command = [args.azurite, "--silent", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
                       "--location", self.dir]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.port)
        time.sleep(2)
        secret = f"{base}/{kind}-credentials"
        with open(secret, "w") as file:
            file.write(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n" if kind == "minio"
                       else f"AZURE_STORAGE_KEY={ACCOUNT_KEY}\n")
        endpoint = f"http://127.0.0.1:{self.port}"
        if kind == "minio":
            self.url = f"s3://bucket?endpoint={endpoint}&credentials={secret}"
            return
        permissions, until = "rwdlac", "2099-01-01T00:00:00Z"
        said = "\n".join([ACCOUNT, permissions, "b", "sco", "", until, "", "", SAS_VERSION, "", ""])
        signed = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), said.encode(), hashlib.sha256).digest())
        self.sas = urllib.parse.urlencode(
            {"sv": SAS_VERSION, "ss": "b", "srt": "sco", "sp": permissions, "se": until, "sig": signed.decode()})
        made = urllib.request.Request(f"{endpoint}/{ACCOUNT}/bucket?restype=container&{self.sas}", method="PUT",
                                      headers={"x-ms-version": SAS_VERSION}, data=b"")
        urllib.request.urlopen(made)
        self.url = f"az://{ACCOUNT}/bucket?endpoint={endpoint}&credentials={secret}"

    def direct(self, name):
        if self.kind == "minio":
            return presigned("PUT", f"127.0.0.1:{self.port}", f"/bucket/{name}", KEY, SECRET), {}
        headers = {"x-ms-version": SAS_VERSION, "x-ms-blob-type": "BlockBlob"}
        return f"/{ACCOUNT}/bucket/{name}?{self.sas}", headers


class Tier:
    def __init__(self, args, base, store):
        self.room, self.port = f"{base}/tier-{store.kind}", free_port()
        os.makedirs(self.room)
        with open(self.room + "/toml", "w") as config:
            config.write(f'[s3]\nlisten = "127.0.0.1:{self.port}"\n[[s3.key]]\nid = "{KEY}"\nsecret = "{SECRET}"\nread = ["*"]\n'
                         f'write = ["*"]\n[[junction]]\npath = "/bucket"\norigin = "{store.url}"\nwrite = "through"\n')
        self.process = subprocess.Popen(
            [args.forebay, "serve", "--config", self.room + "/toml", "--cache", self.room + "/cache", "--cache-size", "16GiB",
             "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE,
            stderr=open(self.room + "/log", "w"), text=True)
        self.admin = json.loads(self.process.stdout.readline())["admin"]
        wait_for(self.port)

    def put(self, name):
        return presigned("PUT", f"127.0.0.1:{self.port}", f"/bucket/{name}", KEY, SECRET), {}

    def get(self, name):
        return presigned("GET", f"127.0.0.1:{self.port}", f"/bucket/{name}", KEY, SECRET), {}

    def fetched(self):
        metrics = urllib.request.urlopen(f"http://{self.admin}/metrics").read().decode()
        return sum(map(int, re.findall(r"^forebay_origin_bytes_total\{[^}]*\} (\d+)", metrics, re.M)))


def rate(args, port, method, names, request, body):
    """MiB/s of all workers."""
    left, lock, failed = list(names), threading.Lock(), []

    def work():
        line = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            with lock:
                if not left:
                    return
                name = left.pop()
            path, headers = request(name)
            line.request(method, path, body=body, headers=headers)
            answer = line.getresponse()
            got = answer.read()
            if answer.status not in (200, 201) or body is None and len(got) != args.kib << 10:
                failed.append((answer.status, got[:300]))

    workers = [threading.Thread(target=work) for _ in range(args.workers)]
    began = time.monotonic()
    [worker.start() for worker in workers], [worker.join() for worker in workers]
    seconds = time.monotonic() - began
    assert not failed, failed[0]
    return args.objects * args.kib / 1024 / seconds


def measure(args, base, kind):
    store = Store(args, base, kind)
    tier = Tier(args, base, store)
    told, body = {"direct": [], "through": [], "read back": []}, os.urandom(args.kib << 10)
    for at in range(-1, args.rounds):
        names = [f"{at}-{index}" for index in range(args.objects)]
        direct = rate(args, store.port, "PUT", [f"direct-{name}" for name in names], store.direct, body)
        through = rate(args, tier.port, "PUT", names, tier.put, body)
        before = tier.fetched()
        back = rate(args, tier.port, "GET", names, tier.get, None)
        assert tier.fetched() == before, "what was put came from the store"
        if at >= 0:  # the first is for warming up
            [told[what].append(value) for what, value in zip(told, (direct, through, back))]
    for what, values in told.items():
        print(f"{kind}: {what}: {statistics.median(values):.1f} MiB/s ({min(values):.1f} to {max(values):.1f}), "
              f"{statistics.median(values) / statistics.median(told['direct']):.2f} of direct", flush=True)
    for process in (tier.process, store.process):
        process.terminate()
        process.wait()


def main():
    home = os.path.expanduser
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--tools", default=home("~/.cache/forebay-tools/bin"))
    parser.add_argument("--azurite", default=home("~/.cache/forebay/azurite/node_modules/.bin/azurite-blob"))
    parser.add_argument("--dir")
    parser.add_argument("--stores", default="azurite,minio")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--objects", type=int, default=64)
    parser.add_argument("--kib", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    base = tempfile.mkdtemp(prefix="measure-put-", dir=args.dir)
    try:
        for kind in args.stores.split(","):
            measure(args, base, kind)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
