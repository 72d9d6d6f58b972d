#!/usr/bin/env python3
"""Checks what the documents say of the tree: every source file that is named is there, so is every test that docs/SEMANTICS.md
names, and every relative link with its anchor."""
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
sources = [path for path in tracked if path.endswith(".rs") and os.path.exists(path)]
documents = [path for path in tracked if path.endswith(".md") and os.path.exists(path)]
wrong = []


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def anchors(path):
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(path), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-"))
    return found


def check_links(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if not os.path.exists(there):
            wrong.append(f"{path}: {target} is not there")
        elif anchor and there.endswith(".md") and anchor not in anchors(there):
            wrong.append(f"{path}: no heading for {target}")


def check_files(path):
    """`crate/src/file.rs`, also in short (`crate/file.rs`, `file.rs`): the end of the path of a file that is there."""
    for name in re.findall(r"`([\w\-/.]+\.rs)`", text_of(path)):
        parts = name.split("/")
        short = "/".join(parts[1:]) if len(parts) > 1 else name
        crate = f"crates/{parts[0]}/" if len(parts) > 1 else "crates/"
        if not any(p == name or p.endswith("/" + name) or (p.startswith(crate) and p.endswith("/" + short)) for p in sources):
            wrong.append(f"{path}: {name} is not in the tree")


def check_tests(path):
    """`crate: a_test`; names of three words or more that follow in the line without a crate may be of any."""
    words = {}
    for source in sources:
        words.setdefault(source.split("/")[1], set()).update(re.findall(r"\w+", text_of(source)))
    for line in text_of(path).split("\n"):
        for said in re.findall(r"`([^`]+)`", line):
            named = re.fullmatch(r"(?:([a-z][a-z0-9\-]*): )?(?:\w+::)*([a-z0-9_]+)", said)
            if not named:
                continue
            crate, name = named.groups()
            if crate in words and name not in words[crate]:
                wrong.append(f"{path}: {crate} has no test {name}")
            elif crate is None and name.count("_") > 1 and not any(name in there for there in words.values()):
                wrong.append(f"{path}: there is no test {name}")


for document in documents:
    check_links(document)
check_files("ARCHITECTURE.md")
check_tests("docs/SEMANTICS.md")
for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
