# make run    build, then serve a sample tree from 70 ms away and time it direct, cold and warm
# make test   everything: format, lints, all tests, the lab
# make check  format, lints, and what the documents say of the tree
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

.PHONY: run test tests check release setup

run:
	@scripts/setup.sh run
	$(CARGO) build --locked --profile quick --package forebay
	$(QUICK) demo $(if $(filter-out 0,$(RUN_ONCE)),--once)

test:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory tests

# A test that hangs ends its program, not the whole run. A list, so that the path of the checkout may have a space.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
LIMITED = --config "target.$(HOST).runner=['$(CURDIR)/scripts/limited.sh']"

# In a make of its own: the setup may just have brought mold. The whole workspace is built before its first test runs, with the
# programs that tests of other packages start.
tests: check
	FOREBAY_TEST_PROGRAMS=built $(CARGO) $(LIMITED) test --locked --workspace --no-fail-fast
	FOREBAY_TEST_PROGRAMS=built FOREBAY_TEST_READAHEAD=0 $(CARGO) $(LIMITED) test --locked --workspace --test it -- serve:: mount::

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	scripts/check-docs.py

release:
	$(CARGO) build --locked --release --package forebay --package forebay-bench
