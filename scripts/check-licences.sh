#!/bin/sh
# What the dependencies may be: their licences, sources and versions (deny.toml). Advisories need the network and a list
# that changes by itself: `cargo deny check advisories`, before a release.
set -eu
if command -v cargo-deny >/dev/null; then
    cargo deny --locked check bans licenses sources
elif [ -n "${FOREBAY_MUST_RUN:-}" ]; then
    echo "licences: cargo-deny is missing; scripts/setup.sh test installs it" >&2
    exit 1
else
    echo "licences: not run, cargo-deny is missing (scripts/setup.sh test installs it)"
fi
