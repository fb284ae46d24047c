# The front door.  meson builds; tools/ checks.  `make help` lists the targets.
#
# BUILD=dir chooses another build tree, WERROR=true makes warnings errors.
BUILD ?= build
WERROR ?= false
FUZZ_SECONDS ?= 30
PYTHON ?= /usr/bin/python3
export PYTHON

.PHONY: all deps check demo asan tidy fuzz bench bench-freezer format format-check clang clean help

all: ## build the programs into build/bin
	@tools/deps.sh run
	@tools/build.sh $(BUILD) -Dwerror=$(WERROR)
	@ls $(BUILD)/bin/coppice* 2>/dev/null | sed 's/^/  /'

deps: ## install the Debian packages that are missing
	@tools/deps.sh

check: deps ## build with warnings as errors and run every test
	@tools/build.sh $(BUILD) -Dwerror=true
	@$(PYTHON) tools/run-checks.py --build $(BUILD) $(CHECK_FLAGS)

demo: ## build, make the image, and run a session for real
	@tools/deps.sh run
	@tools/build.sh $(BUILD) -Dwerror=$(WERROR)
	@examples/demo.sh $(BUILD)

# Warnings are left to the other builds: with sanitizers gcc sees overflows and uninitialised values that are not there.
asan: deps ## unit tests and fuzz corpora under AddressSanitizer and UBSan
	@tools/build.sh $(BUILD)-asan -Dwerror=false -Db_sanitize=address,undefined -Db_lundef=false
	@$(PYTHON) tools/run-checks.py --build $(BUILD)-asan --set sanitizers

clang: deps ## a second build with clang, warnings as errors
	@CC=clang tools/build.sh $(BUILD)-clang -Dwerror=true

tidy: deps ## clang-tidy over all sources
	@CC=clang tools/build.sh $(BUILD)-clang -Dwerror=true
	@$(PYTHON) tools/tidy.py $(BUILD)-clang

fuzz: deps ## FUZZ_SECONDS (30) for each fuzz target
	@if [ -x tests/fuzz/run ]; then FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run; \
	else echo "fuzz: tests/fuzz/run does not exist"; exit 1; fi

bench: deps ## benchmarks: a table, and build/bench/results.jsonl
	@tools/build.sh $(BUILD) -Dwerror=$(WERROR)
	@$(PYTHON) bench/run.py --build $(BUILD) $(BENCH_FLAGS)

bench-freezer: deps ## the freezer's own benchmarks; their rows go behind those of the others
	@tools/build.sh $(BUILD) -Dwerror=$(WERROR)
	@$(PYTHON) bench/freezer.py --build $(BUILD)

format: ## put all C sources into form
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format -i

format-check: ## fail when a C source is not in form
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format --dry-run -Werror

clean: ## remove all build trees
	@rm -rf build build-asan build-clang build-fuzz

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
