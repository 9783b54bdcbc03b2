/* What the fuzz targets share.
 *
 * A target is one file: <name>_one takes any bytes and must end well, whatever they are; laws that
 * hold for them are checked with FUZZ_CHECK. <name>_repair changes bytes so that they get further,
 * above all by setting checksums right. Each target is compiled twice:
 *   by fuzz.mk with libFuzzer (YDL_LIBFUZZER), where files are pieces of memory (memory_file.c);
 *   into tests/c/test_fuzz_corpus.c, which replays the corpus with real files. */
#ifndef YDL_TESTS_FUZZ_H
#define YDL_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/layout.h"
#include "record/row.h"

typedef void fuzz_one_fn(const uint8_t *bytes, size_t n);

/* The first n of max bytes are an input, which changes in place; returns how many it has then.
 * Most seeds repair something. */
typedef size_t fuzz_repair_fn(uint8_t *bytes, size_t n, size_t max, unsigned seed);

struct fuzz_target {
    const char *name;
    fuzz_one_fn *one;
    fuzz_repair_fn *repair;
};

#ifdef YDL_LIBFUZZER
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t max);
#define FUZZ_TARGET(name)                                                                          \
    int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)                                     \
    {                                                                                              \
        name##_one(bytes, n);                                                                      \
        return 0;                                                                                  \
    }                                                                                              \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed)            \
    {                                                                                              \
        return name##_repair(bytes, LLVMFuzzerMutate(bytes, n, max), max, seed);                   \
    }
#else
#define FUZZ_TARGET(name)                                                                          \
    static const struct fuzz_target fuzz_##name = {#name, name##_one, name##_repair}
#endif

/* Not assert: it must stay in every build. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A file with these bytes, until the next call; its path. */
#ifdef YDL_LIBFUZZER
const char *fuzz_memory_file(const uint8_t *bytes, size_t n);
#define FUZZ_FILE fuzz_memory_file
#else
const char *fuzz_real_file(const uint8_t *bytes, size_t n);
#define FUZZ_FILE fuzz_real_file
#endif

/* An empty directory for files, on a file system in memory where there is one. */
const char *fuzz_directory(void);

/* A copy of exactly n bytes, so that a sanitizer sees a read of one more. */
static inline void *fuzz_copy(const void *bytes, size_t n)
{
    void *copy = malloc(n ? n : 1);
    FUZZ_CHECK(copy);
    if (n)
        memcpy(copy, bytes, n);
    return copy;
}

/* Reads all of them. */
static inline void fuzz_touch(const uint8_t *bytes, uint64_t n)
{
    uint8_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + bytes[i]);
    __asm__ volatile("" : : "r"(sum)); /* the loop has a use */
}

static inline void fuzz_touch_fields(const struct ydl_layout *layout,
                                     const struct ydl_field *fields)
{
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_field *field = &fields[c];
        FUZZ_CHECK(field->rank <= YDL_MAX_RANK);
        fuzz_touch(field->data, field->bytes);
        FUZZ_CHECK((field->lengths != NULL) == (layout->components[c].dtype == YDL_STRING));
        if (field->lengths)
            fuzz_touch(field->lengths, 4 * field->elements);
        else
            FUZZ_CHECK(field->bytes == field->elements * layout->components[c].item_bytes);
    }
}

/* Layouts that need no bytes: which % 3. */
static inline void fuzz_make_layout(struct ydl_layout *out, unsigned which)
{
    static const int64_t dims[] = {3, YDL_DIM_VARIES, 2};
    static const struct ydl_component_spec fixed[] = {
        {YDL_UINT8, 0, NULL}, {YDL_FLOAT32, 1, &dims[0]}, {YDL_INT64, 0, NULL}};
    static const struct ydl_component_spec varying[] = {{YDL_INT64, 0, NULL},
                                                        {YDL_FLOAT32, 2, &dims[1]},
                                                        {YDL_UINT8, YDL_RANK_VARIES, NULL},
                                                        {YDL_STRING, 1, &dims[1]}};
    static const struct ydl_component_spec text[] = {{YDL_STRING, 0, NULL}};
    static const struct ydl_component_spec *const specs[] = {fixed, varying, text};
    static const uint32_t counts[] = {3, 4, 1};
    struct ydl_error err;
    FUZZ_CHECK(ydl_layout_init(out, specs[which % 3], counts[which % 3], &err) == YDL_OK);
}

#endif
