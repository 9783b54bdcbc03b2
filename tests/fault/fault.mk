# Failure injection: the core with one call after the other failing (tests/fault/fault.h), as a part
# of `make test-c`, under the same sanitizers.

FAULT_SOURCES := $(sort $(wildcard tests/fault/*.c)) tests/c/support.c
FAULT_OBJECTS := $(FAULT_SOURCES:%.c=build/asan/%.o)
# The list of FAULT_FUNCTIONS; openat2 and renameat2 are made through syscall(), and free only counts.
FAULT_WRAPPED := malloc calloc realloc aligned_alloc strdup free open openat fdopendir readdir mkdir \
                 read pread write pwrite sync_file_range fsync fdatasync close mmap fstat fstatat stat linkat \
                 renameat syscall unlink unlinkat getrandom pthread_create

test-c asan: test-fault

.PHONY: test-fault
test-fault: build/.packages-test ## failure injection into the core (a part of test-c)
	@$(MAKE) -j$(JOBS) build/asan/test_fault
	@bash .ci/run-c-tests build/asan/test_fault

build/asan/test_fault: $(FAULT_OBJECTS) build/asan/libydl.a
	@echo 'link    asan $@'
	@$(CC) -pthread $(FLAGS_asan) $(FAULT_WRAPPED:%=-Wl,--wrap=%) $^ -lcmocka -o $@

-include $(FAULT_OBJECTS:%.o=%.d)
