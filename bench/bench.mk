# What measurements there are; bench/README.md says how to read them. Arguments are passed on:
# make bench ARGS="--rows numpy --kinds M".

.PHONY: bench bench-quick bench-scale bench-counts
bench: .venv/.ydl ## ydl beside all that can be installed, in ratios (bench/README.md)
	@.venv/bin/python bench/versus.py $(ARGS)

bench-quick: .venv/.ydl ## ydl beside yogadl, in ratios
	@bash bench/run-quick $(ARGS)

bench-scale: .venv/.ydl ## cost of opening, order and resuming for 10^4 to 10^9 records
	@.venv/bin/python bench/scale.py $(ARGS)

bench-counts: build/counts/counts ## instructions per record under callgrind, against limits
	@'$(PYTHON)' bench/counts/check.py $< $(ARGS)

# The core as setup.py compiles it, without Python.
COUNTS_FLAGS := -std=c11 -D_GNU_SOURCE -DNDEBUG -O3 -fvisibility=hidden -pthread -Icsrc -Wall
COUNTS_OBJECTS := $(CORE_SOURCES:%.c=build/counts/%.o) build/counts/bench/counts/counts.o

build/counts/%.o: %.c bench/bench.mk | build/.packages-counts
	@mkdir -p $(@D)
	@$(CC) $(COUNTS_FLAGS) -MMD -MP -c $< -o $@

build/counts/counts: $(COUNTS_OBJECTS)
	@echo 'link    counts $@'
	@$(CC) -pthread -Wl,-z,now $^ -o $@ # nothing is looked up while it counts

# clang-tidy wants callgrind's header, too.
lint: | build/.packages-counts

-include $(COUNTS_OBJECTS:%.o=%.d)
