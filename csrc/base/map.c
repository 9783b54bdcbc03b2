#include "base/map.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(ATOMIC_POINTER_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2,
               "a signal handler may not wait for a lock");

/* One entry of the table. Entries are used again, never freed: a handler may look at any of them
 * at any time. */
struct ydl_map {
    atomic_bool taken;
    /* Odd while start and bytes change. A handler that sees it move skips the entry: the map that
     * its own thread reads from cannot be one that comes or goes. */
    _Atomic unsigned long version;
    _Atomic uintptr_t start; /* 0: no map */
    _Atomic size_t bytes;
    atomic_uint damaged;
};

enum { CHUNK_MAPS = 128 };

struct chunk {
    struct ydl_map maps[CHUNK_MAPS];
    struct chunk *next; /* constant once the chunk is in the list */
};

static struct chunk first_chunk; /* enough for most processes */
static struct chunk *_Atomic chunks = &first_chunk;

/* What was installed before, and whether its SA_RESETHAND has been used up. Written before our
 * handler is installed. */
static struct sigaction previous;
static atomic_bool previous_is_spent;

/* ---- in the signal handler: only system calls and atomics ---- */

static struct ydl_map *find_map(uintptr_t address)
{
    for (struct chunk *chunk = atomic_load(&chunks); chunk; chunk = chunk->next) {
        for (size_t i = 0; i < CHUNK_MAPS; i++) {
            struct ydl_map *map = &chunk->maps[i];
            unsigned long version = atomic_load(&map->version);
            uintptr_t start = atomic_load(&map->start);
            size_t bytes = atomic_load(&map->bytes);
            if (version % 2 == 0 && version == atomic_load(&map->version) && start != 0 &&
                address >= start && address - start < bytes)
                return map;
        }
    }
    return NULL;
}

static bool replace_by_zeros(struct ydl_map *map)
{
    /* Before the zeros are there: a thread that reads them without a fault must see it. */
    atomic_store(&map->damaged, 1);
    /* All of the map, so that it stays one mapping: page by page, a large part would run into
     * vm.max_map_count. By number: the sanitizers' mmap is not made for handlers. */
    long rc = syscall(SYS_mmap, atomic_load(&map->start), atomic_load(&map->bytes), PROT_READ,
                      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    return rc != -1;
}

static void die_by_default(int sig, bool is_fault)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(sig, &action, NULL);
    /* A fault comes again when the instruction is tried again. A sent signal has to be sent again;
     * it is blocked here and arrives when the handler returns. */
    if (!is_fault)
        raise(sig);
}

static void call_previous(int sig, siginfo_t *info, void *context)
{
    sigset_t block = previous.sa_mask;
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &block, &before);
    if (previous.sa_flags & SA_NODEFER && !sigismember(&previous.sa_mask, sig)) {
        sigset_t self;
        sigemptyset(&self);
        sigaddset(&self, sig);
        pthread_sigmask(SIG_UNBLOCK, &self, NULL);
    }
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(sig, info, context);
    else
        previous.sa_handler(sig);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
    bool is_fault = info->si_code > 0; /* else sent by a process */
    bool has_handler = previous.sa_flags & SA_SIGINFO ||
                       (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
    if (has_handler && previous.sa_flags & (int)SA_RESETHAND)
        has_handler = !atomic_exchange(&previous_is_spent, true);
    if (has_handler)
        call_previous(sig, info, context);
    else if (is_fault || previous.sa_handler != SIG_IGN) /* the kernel ignores no fault, either */
        die_by_default(sig, is_fault);
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    struct ydl_map *map = info->si_code > 0 ? find_map((uintptr_t)info->si_addr) : NULL;
    if (!map || !replace_by_zeros(map))
        pass_on(sig, info, context);
    errno = saved_errno;
}

/* ---- outside of it ---- */

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, NULL, &previous); /* first: ours may run as soon as it is there */
    sigaction(SIGBUS, &action, NULL);
}

static struct ydl_map *take_free(struct chunk *chunk)
{
    for (size_t i = 0; i < CHUNK_MAPS; i++) {
        struct ydl_map *map = &chunk->maps[i];
        if (!atomic_load(&map->taken) && !atomic_exchange(&map->taken, true))
            return map;
    }
    return NULL;
}

static struct ydl_map *take_entry(void)
{
    struct chunk *head = atomic_load(&chunks);
    for (struct chunk *chunk = head; chunk; chunk = chunk->next) {
        struct ydl_map *map = take_free(chunk);
        if (map)
            return map;
    }
    struct chunk *chunk = calloc(1, sizeof *chunk); /* never freed */
    if (!chunk)
        return NULL;
    struct ydl_map *map = take_free(chunk);
    chunk->next = head;
    while (!atomic_compare_exchange_weak(&chunks, &head, chunk))
        chunk->next = head;
    return map;
}

static void set_range(struct ydl_map *map, uintptr_t start, size_t bytes)
{
    atomic_fetch_add(&map->version, 1);
    atomic_store(&map->start, start);
    atomic_store(&map->bytes, bytes);
    atomic_fetch_add(&map->version, 1);
}

enum ydl_status ydl_map_new(int fd, size_t bytes, const char *path, struct ydl_map **out,
                            struct ydl_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* begins anew in a child forked amidst it */
    pthread_once(&once, install_handler);
    *out = NULL;
    struct ydl_map *map = take_entry();
    if (!map)
        return ydl_fail_memory(err, "a table of maps", sizeof(struct chunk));
    void *start = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) {
        int sys_errno = errno;
        atomic_store(&map->taken, false);
        return ydl_fail_os(err, sys_errno, path, "cannot map %zu bytes of %s", bytes, path);
    }
    atomic_store(&map->damaged, 0);
    set_range(map, (uintptr_t)start, bytes);
    *out = map;
    return YDL_OK;
}

void ydl_map_free(struct ydl_map *map)
{
    if (!map)
        return;
    void *start = (void *)atomic_load(&map->start);
    size_t bytes = atomic_load(&map->bytes);
    /* Out of the table first: what comes to this address next is somebody else's. */
    set_range(map, 0, 0);
    munmap(start, bytes);
    atomic_store(&map->taken, false);
}

const uint8_t *ydl_map_bytes(const struct ydl_map *map)
{
    return (const uint8_t *)atomic_load_explicit(&map->start, memory_order_relaxed);
}

void ydl_map_want(const struct ydl_map *map, size_t offset, size_t bytes)
{
    uintptr_t start = (uintptr_t)ydl_map_bytes(map) + offset;
    uintptr_t page = start & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    (void)madvise((void *)page, bytes + (start - page), MADV_WILLNEED);
}

void ydl_map_expect_random(const struct ydl_map *map)
{
    (void)madvise((void *)(uintptr_t)ydl_map_bytes(map),
                  atomic_load_explicit(&map->bytes, memory_order_relaxed), MADV_RANDOM);
}

bool ydl_map_is_damaged(const struct ydl_map *map)
{
    /* Not a mere load, which the loads of the copy could pass: the mark of a map whose zeros were
     * read was set before they came. */
    atomic_uint *damaged = &((struct ydl_map *)(uintptr_t)map)->damaged;
    return atomic_fetch_or(damaged, 0) != 0;
}
