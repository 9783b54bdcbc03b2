# Fuzzing with libFuzzer (clang 14 or newer with its runtime: libclang-rt-14-dev). The corpus is
# replayed by `make test-c` without clang (tests/c/test_fuzz_corpus.c).

FUZZ_CC ?= clang
FUZZ_RUNS ?= 10000000
FUZZ_TARGETS := part layout row write lease_record log_name
# The writer is no parser, and each of its runs makes files: a hundredth of the others' runs.
FUZZ_RUNS_write = $(shell expr $(FUZZ_RUNS) / 100 + 1)
FUZZ_MAX_LEN_part := 4096
FUZZ_MAX_LEN_layout := 1024
FUZZ_MAX_LEN_row := 1024
FUZZ_MAX_LEN_write := 256
FUZZ_MAX_LEN_lease_record := 2048
FUZZ_MAX_LEN_log_name := 128
FUZZ_FLAGS := -std=c11 -D_GNU_SOURCE -O1 -g -fno-omit-frame-pointer -pthread -Icsrc -Itests/fuzz \
              -Wall -Wextra -Wconversion -Werror -DYDL_LIBFUZZER \
              -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
FUZZ_WRAP := -Wl,--wrap=open,--wrap=fstat,--wrap=close,--wrap=pread,--wrap=mmap,--wrap=munmap
FUZZ_SOURCES := $(sort $(wildcard $(addprefix csrc/,$(addsuffix /*.c,base record order store batch))))

.PHONY: fuzz fuzz-corpus
fuzz: $(FUZZ_TARGETS:%=fuzz-%) ## run every fuzz target FUZZ_RUNS (10^7) times

# New inputs go to build/fuzz/corpus/<target>, findings to build/fuzz/<target>-crash-...
$(FUZZ_TARGETS:%=fuzz-%): fuzz-%: build/fuzz/%
	@mkdir -p build/fuzz/corpus/$*
	nice -n 19 build/fuzz/$* -runs=$(or $(FUZZ_RUNS_$*),$(FUZZ_RUNS)) -max_len=$(FUZZ_MAX_LEN_$*) -timeout=10 \
	    -rss_limit_mb=1024 -print_final_stats=1 -verbosity=0 -artifact_prefix=build/fuzz/$*- \
	    build/fuzz/corpus/$* tests/fuzz/corpus/$*
.PHONY: $(FUZZ_TARGETS:%=fuzz-%)

FUZZ_OBJECTS := $(FUZZ_SOURCES:%.c=build/fuzz/%.o) build/fuzz/tests/fuzz/memory_file.o
build/fuzz/%.o: %.c
	@mkdir -p $(@D)
	@$(FUZZ_CC) $(FUZZ_FLAGS) -MMD -MP -c $< -o $@
$(FUZZ_TARGETS:%=build/fuzz/%): build/fuzz/%: build/fuzz/tests/fuzz/%.o $(FUZZ_OBJECTS)
	@echo 'fuzzer  $@'
	@$(FUZZ_CC) $(FUZZ_FLAGS) $(FUZZ_WRAP) $^ -o $@
-include $(FUZZ_OBJECTS:%.o=%.d) $(FUZZ_TARGETS:%=build/fuzz/tests/fuzz/%.d)

# The seeds anew: only after a change of the format or of make_corpus.c.
fuzz-corpus: build/fuzz/make_corpus
	build/fuzz/make_corpus tests/fuzz/corpus
build/fuzz/make_corpus: tests/fuzz/make_corpus.c tests/fuzz/fuzz.h $(FUZZ_SOURCES)
	@mkdir -p $(@D)
	@$(CC) -std=c11 -D_GNU_SOURCE -O1 -g -pthread -Icsrc -Itests/fuzz $(filter %.c,$^) -o $@
