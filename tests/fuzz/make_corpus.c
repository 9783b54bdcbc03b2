/* Writes the seeds of all targets: make_corpus DIR makes DIR/<target>/<name>. The same bytes each
 * time (`make fuzz-corpus` calls it). What the fuzzers found later lies beside them, named by its
 * SHA-1. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "record/writer.h"
#include "store/lease_record.h"

static const char *root;
static struct ydl_error err;

static void put(const char *target, const char *name, const struct ydl_buf *bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, target);
    FUZZ_CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/%s/%s", root, target, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(ydl_write_all(fd, bytes->data, bytes->len, path, &err) == YDL_OK);
    FUZZ_CHECK(ydl_close(fd, path, &err) == YDL_OK);
}

static void append(struct ydl_buf *buf, const void *bytes, size_t n)
{
    FUZZ_CHECK(ydl_buf_append(buf, bytes, n, &err) == YDL_OK);
}

static void append_byte(struct ydl_buf *buf, uint8_t byte)
{
    append(buf, &byte, 1);
}

/* ---- parts ---- */

/* `records` records of fuzz_make_layout(which), made up. */
static void append_records(struct ydl_writer *writer, unsigned which, uint64_t records)
{
    static const uint8_t data[64] = "some bytes, which mean different things to different types";
    static const int64_t dims[] = {3, 2, 2, 2};
    static const struct ydl_slice strings[] = {{data, 4}, {data + 5, 0}, {data + 5, 5}};
    for (uint64_t i = 0; i < records; i++) {
        const int64_t lengths[] = {(int64_t)(i % 3), 2};
        struct ydl_input fixed[] = {
            {.data = data + i}, {.rank = 1, .dims = dims, .data = data}, {.data = data + i}};
        struct ydl_input varying[] = {{.data = data + i},
                                      {.rank = 2, .dims = lengths, .data = data},
                                      {.rank = (uint32_t)(i % 3), .dims = dims + 1, .data = data},
                                      {.rank = 1, .dims = lengths, .strings = strings}};
        struct ydl_input text[] = {{.strings = &strings[i % 3]}};
        const struct ydl_input *const inputs[] = {fixed, varying, text};
        FUZZ_CHECK(ydl_writer_append(writer, 1, inputs[which], &err) == YDL_OK);
    }
}

/* Appends the file of a part, as the writer makes it. */
static void append_part(struct ydl_buf *out, unsigned which, uint64_t records)
{
    static const uint8_t uuid[] = "a seed of a part";
    char dir[] = "/tmp/ydl-corpus-XXXXXX";
    char path[64];
    struct ydl_layout layout;
    struct ydl_writer *writer;
    size_t count;
    FUZZ_CHECK(mkdtemp(dir));
    fuzz_make_layout(&layout, which);
    FUZZ_CHECK(ydl_writer_new(dir, uuid, &layout, 1 << 20, &writer, &err) == YDL_OK);
    append_records(writer, which, records);
    FUZZ_CHECK(ydl_writer_finish(writer, &err) == YDL_OK);
    const struct ydl_written_part *parts = ydl_writer_parts(writer, &count);
    FUZZ_CHECK(count == 1);
    snprintf(path, sizeof path, "%s/%s", dir, parts[0].name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && ydl_buf_reserve(out, parts[0].bytes, &err) == YDL_OK);
    FUZZ_CHECK(ydl_pread_all(fd, out->data + out->len, parts[0].bytes, 0, path, &err) == YDL_OK);
    out->len += parts[0].bytes;
    close(fd);
    unlink(path);
    rmdir(dir);
    ydl_writer_free(writer);
    ydl_layout_clear(&layout);
}

static void make_parts(struct ydl_buf *buf)
{
    static const char *const names[] = {"fixed", "varying", "text"};
    char name[32];
    for (unsigned which = 0; which < 3; which++) {
        for (uint64_t records = 1; records <= 7; records += 3) {
            buf->len = 0;
            append_byte(buf, 0);
            append_part(buf, which, records);
            snprintf(name, sizeof name, "%s-%d", names[which], (int)records);
            put("part", name, buf);
        }
        for (unsigned claim = 1; claim < 256; claim *= 2) { /* what a manifest may get wrong */
            buf->data[0] = (uint8_t)claim;
            snprintf(name, sizeof name, "%s-claim-%u", names[which], claim);
            put("part", name, buf);
        }
        buf->data[0] = 0;
        buf->len /= 2;
        snprintf(name, sizeof name, "%s-half", names[which]);
        put("part", name, buf);
    }
}

/* ---- layouts and rows ---- */

static void make_layouts(struct ydl_buf *buf)
{
    static const char *const names[] = {"fixed", "varying", "text"};
    static const int64_t ones[YDL_MAX_RANK] = {1, 1, 1, 1, YDL_DIM_VARIES, 1};
    struct ydl_component_spec all[18];
    struct ydl_layout layout;
    for (unsigned which = 0; which < 3; which++) {
        fuzz_make_layout(&layout, which);
        buf->len = 0;
        FUZZ_CHECK(ydl_layout_encode(&layout, buf, &err) == YDL_OK);
        put("layout", names[which], buf);
        ydl_layout_clear(&layout);
    }
    for (int i = 0; i < 18; i++) /* every dtype, many ranks */
        all[i] = (struct ydl_component_spec){(enum ydl_dtype)(i + 1), i % 5, ones};
    for (int varies = 0; varies < 2; varies++) {
        all[15].rank = varies ? YDL_RANK_VARIES : 0;
        all[15].dtype = varies ? YDL_STRING : YDL_INT8;
        FUZZ_CHECK(ydl_layout_init(&layout, all, 18, &err) == YDL_OK);
        buf->len = 0;
        FUZZ_CHECK(ydl_layout_encode(&layout, buf, &err) == YDL_OK);
        put("layout", varies ? "all-varying" : "all-fixed", buf);
        ydl_layout_clear(&layout);
    }
}

static void make_rows(struct ydl_buf *buf)
{
    struct ydl_layout layout;
    struct ydl_buf part = {.max = 1 << 20};
    char name[32];
    for (unsigned which = 0; which < 3; which++) {
        part.len = 0;
        append_part(&part, which, 1);
        const uint8_t *table = part.data + ydl_load_u64(part.data + part.len - 40);
        size_t row_bytes = (size_t)ydl_load_u64(table + 16); /* rows come first, and it is one */
        buf->len = 0;
        append_byte(buf, (uint8_t)which);
        append(buf, part.data + YDL_HEADER_BYTES, row_bytes);
        snprintf(name, sizeof name, "builtin-%u", which);
        put("row", name, buf);

        fuzz_make_layout(&layout, which);
        struct ydl_buf encoded = {.max = 1 << 20};
        FUZZ_CHECK(ydl_layout_encode(&layout, &encoded, &err) == YDL_OK);
        buf->len = 0;
        append_byte(buf, 3);
        append_byte(buf, (uint8_t)encoded.len);
        append_byte(buf, (uint8_t)(encoded.len >> 8));
        append(buf, encoded.data, encoded.len);
        append(buf, part.data + YDL_HEADER_BYTES, row_bytes);
        snprintf(name, sizeof name, "own-%u", which);
        put("row", name, buf);
        ydl_buf_clear(&encoded);
        ydl_layout_clear(&layout);
    }
    ydl_buf_clear(&part);
}

/* Any bytes are a program; these write something. */
static void make_programs(struct ydl_buf *buf)
{
    static const uint8_t fixed[] = {1, 5, 1, 3, 10, 2, 2, 3, 20, 3, 0,
                                    0, 1, 0, 9, 5,  7, 2, 8, 8,  3};
    static const uint8_t varying[] = {2, 15, 1, 3, 4, 0, 8, 2, 0, 20, 0, 1, 3, 3, 4, 2, 1, 2,
                                      2, 9,  1, 1, 0, 5, 6, 1, 3, 3,  3, 3, 3, 1, 2, 3, 4, 5};
    buf->len = 0;
    append(buf, fixed, sizeof fixed);
    put("write", "fixed", buf);
    buf->len = 0;
    append(buf, varying, sizeof varying);
    put("write", "varying", buf);
    for (uint8_t i = 0; i < 200; i++)
        append_byte(buf, (uint8_t)(i * 37));
    put("write", "long", buf);
}

/* ---- names and leases ---- */

static void make_names(struct ydl_buf *buf)
{
    static const char names[] =
        "00000001.json\n00000002.json\n99999999.json\n1.json\n000000012.json"
        "\n-0000001.json\n0000000a.json\n00000003.json.tmp\n.\n..\n"
        ".00000004.json.0123456789abcdef.tmp\n00000001.lease\n00000007";
    for (uint8_t suffix = 0; suffix < 3; suffix++) {
        char name[16];
        buf->len = 0;
        append_byte(buf, suffix);
        append(buf, names, sizeof names - 1);
        snprintf(name, sizeof name, "names-%u", suffix);
        put("log_name", name, buf);
    }
}

static void make_leases(struct ydl_buf *buf)
{
    struct ydl_lease_record record = {
        .state = YDL_LEASE_HELD,
        .holder = "0123456789abcdef0123456789abcdef",
        .process = {"a-host", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", 4026531836, 4711, 1234567},
        .beat = 3,
        .since = 1700000000,
        .progress = 12345,
    };
    char bytes[YDL_LEASE_RECORD_BYTES];
    static const char *const names[] = {"held", "released", "failed"};
    for (int state = 0; state < 3; state++) {
        record.state = (enum ydl_lease_state)state;
        record.failures = (uint32_t)state;
        snprintf(record.error, sizeof record.error, "%s",
                 state == 2 ? "ValueError: na\xc3\xafve" : "");
        ydl_lease_record_format(&record, bytes);
        buf->len = 0;
        append(buf, bytes, sizeof bytes);
        put("lease_record", names[state], buf);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    root = argv[1];
    struct ydl_buf buf;
    ydl_buf_init(&buf, 1 << 20);
    make_parts(&buf);
    make_layouts(&buf);
    make_rows(&buf);
    make_programs(&buf);
    make_names(&buf);
    make_leases(&buf);
    ydl_buf_clear(&buf);
    return 0;
}

const char *fuzz_real_file(const uint8_t *bytes, size_t n)
{
    (void)bytes;
    (void)n;
    abort(); /* no target runs here */
}

const char *fuzz_directory(void)
{
    abort();
}
