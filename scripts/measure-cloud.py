#!/usr/bin/env python3
"""The two studies' tables, directly and through Forebay, over stores on this machine.

    scripts/measure-cloud.py [--forebay target/release/forebay] [--tools DIR] [--azurite PATH] [--stand-in PATH] [--dir DIR]
                             [--out DIR] [--scale 0.0625] [-n 3] [--parts loader,emulated,blob,files]

 - loader: AIStore's table (bench loader --faithful, 2 clients of 8 workers, 48 objects of 10 MiB) of a bucket of MinIO, 70 ms away
   over 500 Mbit/s, and what a pass costs
 - emulated: the Azure HPC IO tables (bench shapes --faithful) of a container of Azurite under the limits of 2018
 - blob: the same without them, directly and through a tier that stands in front of the container
 - files: the same of a share of the stand-in for Azure Files: cargo build --release -p testkit --example azfile-stand-in
Results are in --out, each as JSON, text and HTML; the tables are printed. One part after the other, on a machine that does nothing
else.
"""
import argparse, base64, hashlib, hmac, json, os, shutil, socket, subprocess, sys, tempfile, time, urllib.parse, urllib.request

KEY, SECRET = "AKMEASURE00000000001", "measure-measure-measure"
# Of Azurite, made up.
ACCOUNT = "forebaymeasure"
ACCOUNT_KEY = base64.b64encode(b"not a secret of anybody, not a secret of anybody, not a secret!!").decode()


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


class Parts:
    def __init__(self, args, base):
        self.args, self.base, self.processes = args, base, []
        os.makedirs(args.out, exist_ok=True)

    def bench(self, name, *command):
        print(f"== {name}: forebay bench {' '.join(command)}", flush=True)
        subprocess.run([self.args.forebay, "bench", *command, "--out", f"{self.args.out}/{name}"], check=True)

    def start(self, command, **more):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
        self.processes.append(process)
        return process

    def minio(self):
        port = free_port()
        os.makedirs(f"{self.base}/minio/bench")
        env = dict(os.environ, MINIO_ROOT_USER=KEY, MINIO_ROOT_PASSWORD=SECRET, MINIO_BROWSER="off", HOME=self.base)
        self.start([f"{self.args.tools}/minio", "server", "--quiet", "--address", f"127.0.0.1:{port}", "--console-address",
                    f"127.0.0.1:{free_port()}", f"{self.base}/minio"], env=env)
        wait_for(port)
        time.sleep(2)
        with open(self.base + "/s3", "w") as file:
            file.write(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        return f"s3://bench?endpoint=http://127.0.0.1:{port}&credentials={self.base}/s3"

    def azurite(self):
        port = free_port()
        env = dict(os.environ, AZURITE_ACCOUNTS=f"{ACCOUNT}:{ACCOUNT_KEY}")
        self.start([self.args.azurite, "--silent", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port),
                    "--location", self.base + "/azurite"], env=env)
        wait_for(port)
        # An account SAS that allows everything.
        permissions, until, version = "rwdlac", "2099-01-01T00:00:00Z", "2021-12-02"
        said = "\n".join([ACCOUNT, permissions, "b", "sco", "", until, "", "", version, "", ""])
        signed = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), said.encode(), hashlib.sha256).digest())
        sas = urllib.parse.urlencode(
            {"sv": version, "ss": "b", "srt": "sco", "sp": permissions, "se": until, "sig": signed.decode()})
        endpoint = f"http://127.0.0.1:{port}"
        container = f"{endpoint}/{ACCOUNT}/bench?restype=container&{sas}"
        urllib.request.urlopen(urllib.request.Request(container, method="PUT", headers={"x-ms-version": version}, data=b""))
        return f"az://{ACCOUNT}/bench?endpoint={endpoint}&credentials={self.credentials('az', ACCOUNT_KEY)}"

    def credentials(self, name, key):
        with open(f"{self.base}/{name}", "w") as file:
            file.write(f"AZURE_STORAGE_KEY={key}\n")
        return f"{self.base}/{name}"

    def share(self):
        told = json.loads(self.start([self.args.stand_in], stdin=subprocess.PIPE).stdout.readline())
        credentials = self.credentials("files", told["key"])
        return f"azfile://{told['account']}/{told['share']}?endpoint={told['endpoint']}&credentials={credentials}"

    def run(self):
        args, faithful = self.args, ["--faithful", "--scale", self.args.scale, "-n", self.args.n]
        for part in args.parts.split(","):
            if part == "loader":
                self.bench(part, "loader", *faithful, "--origin", self.minio(), "--clients", "2", "--workers", "8",
                           "--objects", "48", "--object-size", "10MiB", "--rtt", "70ms", "--rate", "500Mbit",
                           "--cost", "azure-blob-2018", "--price", "egress=0.08")
            elif part == "emulated":
                self.bench(part, "shapes", *faithful, "--target", self.azurite(), "--limits", "azure-blob-2018")
            elif part == "blob":
                self.bench(part, "shapes", *faithful, "--target", self.azurite(), "--through")
            elif part == "files":
                self.bench(part, "shapes", *faithful, "--target", self.share(), "--through")
            else:
                sys.exit(f"no such part: {part}")
            self.stop()

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.wait()
        self.processes.clear()


def main():
    home = os.path.expanduser
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--tools", default=home("~/.cache/forebay-tools/bin"))
    parser.add_argument("--azurite", default=home("~/.cache/forebay/azurite/node_modules/.bin/azurite-blob"))
    parser.add_argument("--stand-in", default="target/release/examples/azfile-stand-in")
    parser.add_argument("--dir")
    parser.add_argument("--out", default="cloud")
    parser.add_argument("--scale", default="0.0625")
    parser.add_argument("-n", default="3")
    parser.add_argument("--parts", default="loader,emulated,blob,files")
    args = parser.parse_args()
    base = tempfile.mkdtemp(prefix="measure-cloud-", dir=args.dir)
    parts = Parts(args, base)
    try:
        parts.run()
    finally:
        parts.stop()
        shutil.rmtree(base, ignore_errors=True)


main()
