# Everything a developer of ydl does. `make` alone lists it.
#
# Whatever a target needs is made by the targets that it depends on: the system packages (installed
# through apt-get where make runs as root on Debian), .venv, the extension. All of it is kept, so
# that the second run of anything is quick. Files made go to .venv/ and build/ only.

PYTHON ?= python3
ARGS ?=

ifeq ($(origin CC),default)
CC = gcc
endif
JOBS := $(shell nproc 2>/dev/null || echo 1)

SHELL := bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## list the targets
	@echo 'usage: make TARGET [PYTHON=python3.x] [ARGS="..."]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- what everything stands on ------------------------------------------------------------------

FOLDERS := base record order store batch
CORE_SOURCES := $(sort $(wildcard $(FOLDERS:%=csrc/%/*.c)))
C_HEADERS := $(sort $(wildcard csrc/*/*.h))
PY_SOURCES := $(sort $(wildcard csrc/py/*.c))

build/.packages-%: .ci/packages
	@mkdir -p build
	@bash .ci/packages $* '$(PYTHON)'
	@touch $@

# The interpreter that .venv is made of; not .venv's own, where that is activated.
BASE = '$(PYTHON)' -c 'import os, sys; print(os.path.realpath(sys._base_executable))'

# Changes only when make is called with another interpreter: then .venv is made anew.
build/.python: always | build/.packages-build
	@base=$$($(BASE)) && { [ "$$base" = "$$(cat $@ 2>/dev/null)" ] || echo "$$base" > $@; }

.PHONY: always
always:

PIP := .venv/bin/pip -qq --disable-pip-version-check

.venv/.made: build/.python
	"$$(cat build/.python)" -m venv --clear .venv
	@touch $@

.venv/.deps: tests/requirements.txt .venv/.made
	$(PIP) install -r tests/requirements.txt
	@touch $@

.venv/.ydl: .venv/.deps setup.py pyproject.toml $(CORE_SOURCES) $(PY_SOURCES) $(C_HEADERS)
	$(PIP) install --no-build-isolation -e '.[test]'
	@touch $@

.venv/.lint: tests/requirements-lint.txt .venv/.deps
	$(PIP) install -r tests/requirements-lint.txt
	@touch $@

# ---- using it -----------------------------------------------------------------------------------

.PHONY: venv
venv: .venv/.ydl ## .venv with ydl (editable) and all that demo and tests need

.PHONY: demo
demo: .venv/.ydl ## run examples/demo.py: cold, warm, resumed
	@.venv/bin/python examples/demo.py $(ARGS)

# ---- tests --------------------------------------------------------------------------------------

.PHONY: test
test: build/.packages-test .venv/.ydl ## the C tests, then the Python tests (ARGS go to pytest)
	@$(MAKE) test-c
	@.venv/bin/pytest -q $(ARGS)

.PHONY: test-c asan tsan
test-c: ## the C tests of the core, without Python, under ASan and UBSan
asan: ## the same as test-c
tsan: ## the same under ThreadSanitizer
test-c asan: SANITIZER = asan
tsan: SANITIZER = tsan
test-c asan tsan: build/.packages-test
	@$(MAKE) -j$(JOBS) $(C_TESTS:%=build/$(SANITIZER)/%)
	@bash .ci/run-c-tests $(C_TESTS:%=build/$(SANITIZER)/%)

C_TESTS := $(basename $(notdir $(sort $(wildcard tests/c/test_*.c))))
C_SUPPORT := $(wildcard tests/c/support.c)
C_FLAGS := -std=c11 -D_GNU_SOURCE -O1 -g -fno-omit-frame-pointer -pthread -Icsrc -Itests/c \
           -Wall -Wextra -Wconversion -Werror
FLAGS_asan := -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_tsan := -fsanitize=thread

# In build/asan and build/tsan: the core as a library, and one program for each test file.
define sanitized
build/$(1)/%.o: %.c Makefile
	@mkdir -p $$(@D)
	@echo 'compile $(1) $$<'
	@$$(CC) $$(C_FLAGS) $$(FLAGS_$(1)) -MMD -MP -c $$< -o $$@

build/$(1)/libydl.a: $$(CORE_SOURCES:%.c=build/$(1)/%.o)
	@rm -f $$@
	@$$(AR) rcs $$@ $$^

$$(C_TESTS:%=build/$(1)/%): build/$(1)/%: build/$(1)/tests/c/%.o $$(C_SUPPORT:%.c=build/$(1)/%.o) \
    build/$(1)/libydl.a
	@echo 'link    $(1) $$@'
	@$$(CC) -pthread $$(FLAGS_$(1)) $$^ -lcmocka -o $$@

# What each object was compiled from, headers included, as the compiler wrote it down.
-include $$(patsubst %.c,build/$(1)/%.d,$$(CORE_SOURCES) $$(C_SUPPORT) $$(C_TESTS:%=tests/c/%.c))
endef
$(foreach sanitizer,asan tsan,$(eval $(call sanitized,$(sanitizer))))
.SECONDARY:

include tests/fuzz/fuzz.mk
include tests/fault/fault.mk
include tests/soak/soak.mk
$(FUZZ_TARGETS:%=build/fuzz/%) $(FUZZ_OBJECTS): | build/.packages-fuzz

.PHONY: test-matrix
test-matrix: build/.packages-build ## the Python tests on old and new Pythons and TensorFlows
	@bash .ci/test-matrix

.PHONY: test-client
test-client: .venv/.ydl ## an unchanged Determined trial, run by Determined
	@bash tests/client/run

# ---- style --------------------------------------------------------------------------------------

C_FILES = $(sort $(wildcard csrc/*/*.[ch] tests/c/*.[ch] tests/fuzz/*.[ch] tests/fault/*.[ch] \
                     bench/counts/*.[ch]))

.PHONY: lint
lint: .venv/.lint .venv/.ydl compdb ## ruff, mypy, clang-format and clang-tidy, changing nothing
	@failed=0; run() { echo "$$*" | cut -c-99; PATH=.venv/bin:$$PATH "$$@" || failed=1; }; \
	run ruff check .; \
	run ruff format --check .; \
	run mypy ydl; \
	run clang-format --dry-run -Werror $(C_FILES); \
	run xargs -P$(JOBS) -n4 clang-tidy --quiet -p . <<< '$(filter %.c,$(C_FILES))' 2>/dev/null; \
	exit $$failed

.PHONY: fmt
fmt: .venv/.lint ## let ruff and clang-format rewrite the sources
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	.venv/bin/clang-format -i $(C_FILES)

.PHONY: compdb
compdb: .venv/.deps ## compile_commands.json, for editors and clang-tidy
	@.venv/bin/python .ci/compdb.py $(CC) $(C_FLAGS) -- $(filter %.c,$(C_FILES))

# ---- releases and measurements ------------------------------------------------------------------

.PHONY: wheel
wheel: .venv/.deps ## a manylinux wheel in build/wheel/, tried where there is no compiler
	@bash .ci/wheel

# Not in the sdist.
-include bench/bench.mk

.PHONY: clean
clean: ## remove everything that make made
	rm -rf .venv build dist *.egg-info ydl/*.so compile_commands.json
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find csrc ydl tests examples bench -name __pycache__ -prune -exec rm -rf {} +
