"""Says which programs are missing, before a measurement begins."""
import shutil, sys


def programs(packages):
    """`packages`: by program, the Debian package that has it."""
    missing = {program: package for program, package in packages.items() if not shutil.which(program)}
    for program, package in missing.items():
        print(f"{program} is missing: apt-get install {package}", file=sys.stderr)
    if missing:
        sys.exit(2)
