#!/usr/bin/env python3
"""Warm NFS against nfs-ganesha's VFS export of the same files, by the same client (forebay bench load).

    scripts/measure-nfs.py [--forebay target/release/forebay] [--dir DIR] [--rounds 6] [--mib 512] [--only NAME]
                           [--congestion reno] [--against OTHER-BUILD]

Needs root and Debian's nfs-ganesha, nfs-ganesha-vfs and rpcbind; all of it runs in namespaces of its own. Each round
measures every load on both servers, one after the other, so that noise meets both alike; printed are medians, and the
median and range of the ratios of single rounds. With --against another build of Forebay stands in ganesha's place: what a
change costs or gains. Two processes of one build differ by up to a third for as long as they live, so each round starts each
Forebay anew, and warms it. CPU is the server process's, user and system. The files are in the page
cache for both. READs are of 1 MiB at most, in the rows "by 128 KiB" of that: what Linux asks for behind its default read-ahead.
Congestion control is reno, which does not pace (cubic, Debian's, may not be chosen in a namespace unless the machine allows it).
"""
import argparse, glob, json, os, shutil, socket, statistics, subprocess, sys, tempfile, time

import needs

INSIDE = "FOREBAY_MEASURE_INSIDE"
GANESHA, TIER = 22149, 22050


def loads(mib):
    big = ["--files", "1", "--file-size", f"{mib}MiB", "--unit", "block"]
    small = ["--file-size", "4KiB", "--operation", "stat"]
    one = big + ["--share", "split", "--epochs", "24", "--workers", "4"]
    four = big + ["--nodes", "4", "--workers", "2", "--epochs", "8"]
    return {
        "sequential 1 MiB, 1 client": ("big", one),
        "sequential 1 MiB, 4 clients": ("big", four),
        "sequential 1 MiB by 128 KiB, 1 client": ("big", one),
        "sequential 1 MiB by 128 KiB, 4 clients": ("big", four),
        "random 64 KiB, 8 clients": ("big", big + ["--nodes", "8", "--workers", "1", "--block", "64KiB", "--order",
                                                   "uniform", "--draws", "24000"]),
        "random 4 KiB, 8 clients": ("big", big + ["--nodes", "8", "--workers", "1", "--block", "4KiB", "--order",
                                                  "uniform", "--draws", "60000"]),
        "random 4 KiB, 8 clients of 8": ("big", big + ["--nodes", "8", "--workers", "8", "--block", "4KiB", "--order",
                                                       "uniform", "--draws", "60000"]),
        "GETATTR, 8 clients": ("few", small + ["--files", "100", "--nodes", "8", "--workers", "8", "--epochs", "800"]),
        "LOOKUP and GETATTR, 8 clients": ("many", small + ["--files", "40000", "--files-per-directory", "200",
                                                           "--nodes", "8", "--workers", "8"]),
    }


def ganesha(base, export):
    plugins = next(d for d in glob.glob("/usr/lib/*/ganesha") + ["/usr/lib/ganesha"]
                   if os.path.exists(d + "/libfsalvfs.so"))
    config = base + "/ganesha.conf"
    with open(config, "w") as f:
        f.write(f"""NFS_CORE_PARAM {{ NFS_Port = {GANESHA}; MNT_Port = {GANESHA - 1}; Protocols = 3; Enable_NLM = false;
  Enable_RQUOTA = false; mount_path_pseudo = false; Plugins_Dir = {plugins}; }}
NFSV4 {{ RecoveryRoot = {base}/recovery; Graceless = true; }}
EXPORT {{ Export_Id = 7; Path = {export}; Pseudo = /7; Protocols = 3; Transports = TCP; Access_Type = RO;
  Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}
""")
    processes = [subprocess.Popen(["rpcbind", "-w", "-f"])]
    time.sleep(1)
    quiet = subprocess.DEVNULL
    processes.append(subprocess.Popen(["ganesha.nfsd", "-F", "-f", config, "-L", base + "/ganesha.log", "-p",
                                       base + "/ganesha.pid"], stdout=quiet, stderr=quiet))
    return processes, f"nfs://127.0.0.1:{GANESHA}{export}?mountport={GANESHA - 1}"


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench(forebay, data, load, *place):
    """What `forebay bench load` says. Lays the data set out if it is not there."""
    command = [forebay, "bench", "load", *place, "--id", data, "--keep", "-n", "1", "--verify", "0", "--json", *load]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(command)}: {out.stderr}")
    return json.loads(out.stdout)


def run(forebay, url, export, data, name, load):
    url += "&rsize=128k" if "by 128 KiB" in name else "&rsize=1m"
    result = bench(forebay, data, load, "--target", url, "--lay-out-at", export)
    values = {m["name"]: m["values"][0] for m in result["measures"]}
    if "rate" not in values:
        sys.exit(f"not measured: {result['findings']}")
    return values["rate"], values["touches"]


class Ganesha:
    """One process for all rounds."""
    def __init__(self, base, export):
        self.processes, self.url = ganesha(base, export)
        time.sleep(3)

    def begin(self, warm):
        warm(self.url)

    def pid(self):
        return self.processes[1].pid

    def stop(self):
        for process in self.processes:
            process.kill()


class Forebay:
    """A process for each round, over one cache."""
    def __init__(self, binary, base, export, port):
        self.command = [binary, "serve", "--origin", f"file://{export}", "--cache", f"{base}/cache-{port}", "--cache-size", "8GiB",
                        "--nfs", f"127.0.0.1:{port}", "--admin", "127.0.0.1:0"]
        self.port, self.log, self.process = port, f"{base}/tier-{port}.log", None
        self.url = f"nfs://127.0.0.1:{port}/?mountport={port}"

    def begin(self, warm):
        self.stop()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=open(self.log, "w"))
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return warm(self.url)
            except ConnectionRefusedError:
                time.sleep(0.1)
        sys.exit(f"{self.command[0]} does not listen; see {self.log}")

    def pid(self):
        return self.process.pid

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--only", default="")
    parser.add_argument("--against", help="an earlier forebay, in the place of ganesha")
    parser.add_argument("--congestion", default="reno", choices=["reno", "cubic", "bbr"])
    args = parser.parse_args()
    peers = {} if args.against else {"ganesha.nfsd": "nfs-ganesha nfs-ganesha-vfs", "rpcbind": "rpcbind"}
    needs.programs({"unshare": "util-linux", "ip": "iproute2", **peers})
    if INSIDE not in os.environ:
        script = f'ip link set lo up && sysctl -qw net.ipv4.tcp_congestion_control={args.congestion} && ' \
                 'mount -t tmpfs none /run && exec "$0" "$@"'
        os.execvpe("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
                               "-c", script, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    base = tempfile.mkdtemp(prefix="forebay-measure-", dir=args.dir)
    export = base + "/export"
    os.makedirs(export)
    chosen = {name: load for name, load in loads(args.mib).items() if args.only in name}
    for data, load in chosen.values():
        bench(args.forebay, data, load, "--target", export)
    other = Forebay(args.against, base, export, TIER + 1) if args.against else Ganesha(base, export)
    other_name = "before" if args.against else "ganesha"
    servers = {other_name: other, "forebay": Forebay(args.forebay, base, export, TIER)}
    print(f"{'load':38} {other_name:>12} {'forebay':>12} {'ratio':>7} {'range':>13}  CPU s/GiB or us/call, ratio")
    try:
        for name, (data, load) in chosen.items():
            seen = {server: [] for server in servers}
            for number in range(args.rounds):
                # Each is warmed and measured first as often as last.
                order = list(servers.items())[:: 1 if number % 2 else -1]
                for _, server in order:
                    server.begin(lambda url: run(args.forebay, url, export, data, name, load))
                for key, server in order:
                    before = cpu_seconds(server.pid())
                    rate, touches = run(args.forebay, server.url, export, data, name, load)
                    seen[key].append((rate, touches, cpu_seconds(server.pid()) - before))
            report(name, load, seen, args.mib)
    finally:
        for server in servers.values():
            server.stop()
        shutil.rmtree(base, ignore_errors=True)


def report(name, load, seen, mib):
    in_bytes = "1 MiB" in name or "64 KiB" in name
    which = 0 if in_bytes else 1
    rates = {server: [values[which] for values in all] for server, all in seen.items()}
    other = next(server for server in seen if server != "forebay")
    ratios = [f / g for f, g in zip(rates["forebay"], rates[other])]
    middle = {server: statistics.median(values) for server, values in rates.items()}
    option = dict(zip(load, load[1:]))
    nodes = int(option.get("--nodes", 1))
    if "--draws" in option:
        touches = int(option["--draws"]) * nodes
        volume = touches * (64 / 2**20 if in_bytes else 1)
    elif in_bytes:
        volume = mib / 1024 * int(option["--epochs"]) * nodes
    else:
        volume = int(option["--files"]) * int(option.get("--epochs", 1)) * nodes
    scale = 1 if in_bytes else 1e6
    cpu = {server: statistics.median(v[2] for v in all) / volume * scale for server, all in seen.items()}
    unit = "MiB/s" if in_bytes else "/s"
    print(f"{name:38} {middle[other]:>8.0f} {unit:3} {middle['forebay']:>8.0f} {unit:3}"
          f" {statistics.median(ratios):>7.2f} {min(ratios):>6.2f}-{max(ratios):<6.2f}"
          f"  {cpu[other]:.3g} / {cpu['forebay']:.3g}, {cpu['forebay'] / max(cpu[other], 1e-9):.2f}", flush=True)


main()
