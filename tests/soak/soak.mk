# The long forms of the tests of "nothing lost", each a program of its own in tests/soak/ (its
# docstring says what it does). Their short forms are among the Python tests.
#
# As root, with mkfs.ext4 and mkfs.xfs (xfsprogs), the power loss is tried on real file systems;
# elsewhere that part says why it is skipped.

SOAK = cd tests && PYTHONPATH=. nice ../.venv/bin/python -m soak

.PHONY: soak soak-packages
soak: .venv/.ydl soak-packages ## crashes, kills, power loss, damage and storms, at length (20 minutes)
	$(SOAK).model
	$(SOAK).kill --rounds 100
	$(SOAK).crash --states 20000 --kills 60
	$(SOAK).power_loss
	$(SOAK).flips
	$(SOAK).storm --pause-s 0.5 --every-s 0.2 --events 100
	$(SOAK).storm --pause-s 0.3 --every-s 0.3 --events 60 --clocks --takeover-ttl-s 0

# Without it, XFS is skipped.
soak-packages:
	@command -v mkfs.xfs >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq xfsprogs </dev/null >/dev/null || true

# atheris has wheels for CPython 3.11 to 3.13 only; ydl._core comes from the tree, so that the
# interpreter must be the one of .venv.
build/fuzz-venv/.made: .venv/.ydl
	"$$(cat build/.python)" -m venv --clear build/fuzz-venv
	build/fuzz-venv/bin/pip -qq --disable-pip-version-check install atheris numpy tqdm
	@touch $@

FUZZ_PYTHON_TARGETS := manifest schema
FUZZ_PYTHON_RUNS ?= 10000000

.PHONY: fuzz-python $(FUZZ_PYTHON_TARGETS:%=fuzz-python-%)
fuzz-python: $(FUZZ_PYTHON_TARGETS:%=fuzz-python-%) ## fuzz the manifest and schema parsers, FUZZ_PYTHON_RUNS (10^7) times
$(FUZZ_PYTHON_TARGETS:%=fuzz-python-%): fuzz-python-%: build/fuzz-venv/.made
	@mkdir -p build/fuzz/corpus/$*
	PYTHONPATH=. nice -n 19 build/fuzz-venv/bin/python tests/fuzz/atheris_json.py $* \
	    -runs=$(FUZZ_PYTHON_RUNS) -max_len=4096 -timeout=10 -print_final_stats=1 -verbosity=0 \
	    -artifact_prefix=build/fuzz/$*- build/fuzz/corpus/$* tests/fuzz/corpus/$*
