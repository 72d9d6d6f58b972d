# make run    build, then serve a sample tree from 70 ms away and time it direct, cold and warm
# make test   everything: format, lints, all tests, the lab
# make check  format, lints, and what the documents say of the tree
# make quick  that without the tests' own lints, and the tests that start no other program
# make release  the optimised programs, target/release/forebay and forebay-bench

# mold links faster where it is installed.
ifneq ($(shell command -v mold 2>/dev/null),)
# Once: other flags in the make below this one would have it compile everything anew.
ifeq ($(findstring mold,$(RUSTFLAGS)),)
export RUSTFLAGS += -C link-arg=-fuse-ld=mold
endif
endif

CARGO ?= cargo
QUICK = $(or $(CARGO_TARGET_DIR),target)/quick/forebay

QUICK_CRATES = types quantity rpc-nfs3 origin cache namespace writeback vfs fair pagefile front-nfs front-s3 tier

.PHONY: run test tests check quick release setup

run:
	@scripts/setup.sh run
	$(CARGO) build --locked --profile quick --package forebay
	$(QUICK) demo $(if $(filter-out 0,$(RUN_ONCE)),--once)

test:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory tests

# In a make of its own: the setup may just have brought mold.
tests: check
	scripts/run-tests.py

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	scripts/check-docs.py

# What an engineer runs after each change: no test here starts a server or another program.
quick:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --lib --bins -- -D warnings
	$(CARGO) test --locked --lib $(QUICK_CRATES:%=--package %)
	$(CARGO) test --locked --test it --package origin --package cache --package writeback --package vfs

release:
	$(CARGO) build --locked --release --package forebay --package forebay-bench
