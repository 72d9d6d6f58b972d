# make run      build, then serve a sample tree from 70 ms away and time it direct, cold and warm
# make cluster  build, then three nodes on this machine that read as one, of which one is killed; needs etcd
# make test     everything: format, lints, all tests, the lab
# make quick    while you work: format, lints, unit tests
# make check    format, lints, licences, the documents
# make release  the optimised programs, target/release/forebay and forebay-bench, and their debug information beside them
# make deb      a Debian package of them: service, man pages, completions
# make prove    the long proofs: 2,000 crashes, 5,000 faults of a cluster, 1,000,000 operations, fuzzing; hours

# mold links faster where it is installed.
ifneq ($(shell command -v mold 2>/dev/null),)
# Once: other flags in the make below this one would have it compile everything anew.
ifeq ($(findstring mold,$(RUSTFLAGS)),)
export RUSTFLAGS += -C link-arg=-fuse-ld=mold
endif
endif

export PATH := $(PATH):$(HOME)/.cache/forebay-tools/bin
CARGO ?= cargo
TARGET = $(or $(CARGO_TARGET_DIR),target)
PROGRAMS = --package forebay --package forebay-bench

.PHONY: run cluster test tests tests-of-command tests-of-packages quick check lints release deb package-test prove setup

run:
	@scripts/setup.sh run
	$(CARGO) build --locked --profile quick --package forebay
	$(TARGET)/quick/forebay demo $(if $(filter-out 0,$(RUN_ONCE)),--once)

cluster:
	@scripts/setup.sh cluster
	$(CARGO) build --locked --profile quick --package forebay
	$(TARGET)/quick/forebay demo --cluster --sample sample-cluster --cache forebay-cluster-demo $(if $(filter-out 0,$(RUN_ONCE)),--once)

test:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory tests

# A test that hangs ends its program, not the whole run. A list, so that the path of the checkout may have a space.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
LIMITED = --config "target.$(HOST).runner=['$(CURDIR)/scripts/limited.sh']"

# In a make of its own: the setup may just have brought mold. The whole workspace is built before its first test runs, with the
# programs that tests of other packages start. Then the tests of the command and those of all other packages run beside each other,
# for most of them wait. Each half prints what it said when it ends. Both select the whole workspace, so that nothing is built with
# other features than before; scripts/limited.sh leaves out the packages of the other half.
tests: check
	$(CARGO) test --locked --workspace --no-run
	@echo "The tests run in two halves beside each other; what they say follows when a half has ended, after some minutes."
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going tests-of-command tests-of-packages

TESTS = FOREBAY_TEST_PROGRAMS=built $(CARGO) $(LIMITED) test --locked --workspace
tests-of-command:
	FOREBAY_TESTS=command $(TESTS) --no-fail-fast
	FOREBAY_TESTS=command FOREBAY_TEST_READAHEAD=0 $(TESTS) --test it -- serve:: mount::

tests-of-packages:
	FOREBAY_TESTS=packages $(TESTS) --no-fail-fast

lints:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# Without three simulations of the flush, which take a minute of processor, and the faults of a cluster, which take minutes:
# `make test` has them.
quick: lints
	$(CARGO) test --locked --workspace --lib -- --skip a_crash_at_any_step_of_a_flush --skip planted_bugs_of_the_flush \
		--skip another_storage_at_any_step_of_a_flush --skip faults_cost_a_cluster --skip planted_bugs_of_a_cluster

check: lints
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --document-private-items --quiet
	scripts/check-licences.sh
	scripts/check-docs.py

release:
	$(CARGO) build --locked --release $(PROGRAMS)
	scripts/split-debug.sh $(TARGET)/release/forebay $(TARGET)/release/forebay-bench

# DEB_PROFILE=quick: optimised as little as `make run`, in less time.
DEB_PROFILE ?= release
deb:
	@scripts/setup.sh deb
	$(CARGO) build --locked --profile $(DEB_PROFILE) $(PROGRAMS)
	$(CARGO) run --locked --profile $(DEB_PROFILE) --package forebay --example pages -- $(TARGET)/$(DEB_PROFILE)/pages
	$(CARGO) deb --locked --no-build --profile $(DEB_PROFILE) --package forebay --output $(TARGET)/

package-test:
	@scripts/setup.sh deb
	@$(MAKE) --no-print-directory deb DEB_PROFILE=$(DEB_PROFILE)
	scripts/test-package.sh $(TARGET)/forebay_*.deb

prove:
	scripts/prove.sh
