/* The part file, version 1: constants and offsets. layout.h, row.h, part.h and writer.h use them.
 *
 *   0          header (64 B)
 *   64         rows, one after another
 *   ...        regions found through the region table: layout, index (only where rows vary)
 *   ...        region table, 32 B an entry
 *   size - 64  trailer (64 B)
 *
 * Everything is little-endian. A part is immutable once published and complete exactly when its
 * trailer is valid and st_size equals the size in it.
 *
 * Header                                      Trailer
 *   0   8  magic "\x89YDL\r\n\x1a\n"            0  16  build uuid
 *   8   4  version (1)                         16   8  records
 *  12   4  required feature flags              24   8  offset of the region table
 *  16   4  optional feature flags              32   4  entries in the region table
 *  20   4  0                                   36   4  0
 *  24  16  build uuid                          40   8  size of the file
 *  40   8  part number                         48   8  XXH3-64 of header, region table and the
 *  48   8  number of the first record                  trailer's first 48 bytes, in this order
 *  56   8  XXH3-64 of the 56 bytes before      56   8  tail magic "\nYDLend\x89"
 *
 * Region table entry                          Layout region
 *   0   4  type (YDL_REGION_*)                  0   4  components
 *   4   4  flags (bit 0: a reader must          4   4  flags (bit 0: rows vary)
 *          know the type)                       8   8  bytes of a row (0 where rows vary)
 *   8   8  offset                              16   4  checksum algorithm (1: see below)
 *  16   8  length                              20   4  bytes of a row's checksum (4)
 *  24   8  XXH3-64 of the region; 0 for        then per component
 *          rows (they carry their own)          0   4  dtype
 *                                               4   4  rank, or 0xffffffff where it varies
 * The table lists regions in file order.        8   8  offset in a fixed-size row, else 0
 * Each begins at the first multiple of 64      16   4  checksum group (0)
 * behind the one before, and so does the       20   4  codec (0)
 * table; what is skipped is zero. The          24   4  key id (0)
 * trailer follows the table directly.          28   4  0
 *                                              32   8  per dimension: size, or 2^64-1: varies
 *
 * In every later version the magic, the version and the header's hash keep their places and
 * meaning: so a newer file is told from a damaged one.
 *
 * Fixed-size row: every component at its naturally aligned offset, zero padding, and the checksum
 * in the last 4 bytes; the row's size is a multiple of its largest alignment (at least 4).
 *
 * Varying row: first, component by component, u32 words: the rank where it varies, each dimension
 * that varies, and for strings the length of every element; then the components' bytes without
 * padding; then the checksum. The index region holds one u64 a record: where its row ends,
 * counted from the start of the rows. Words are 32 bits so that a row with one varying dimension
 * costs 16 bytes beyond its data; a dimension or string of 2^32 or more is refused when written.
 *
 * Row checksum (algorithm 1): the low 32 bits of XXH3-64(row without its last 4 bytes) + seed(part)
 * + row number * 0x9E3779B97F4A7C15, with seed(part) = XXH3-64(build uuid, part number as u64) and
 * the row number counted within the part. The number enters outside the hash because seeding XXH3
 * costs more than hashing a small row; and as the factor is odd, a row that is found at another
 * place of its part always fails, not just almost always. */
#ifndef YDL_RECORD_FORMAT_H
#define YDL_RECORD_FORMAT_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/hash.h"

#define YDL_HEAD_MAGIC "\x89YDL\r\n\x1a\n"
#define YDL_TAIL_MAGIC "\nYDLend\x89"

enum {
    YDL_FORMAT_VERSION = 1,
    YDL_UUID_BYTES = 16,
    YDL_HEADER_BYTES = 64,
    YDL_TRAILER_BYTES = 64,
    YDL_REGION_ENTRY_BYTES = 32,
    YDL_REGION_ALIGNMENT = 64,
    YDL_CHECKSUM_BYTES = 4,
    YDL_CHECKSUM_XXH3_LOW32 = 1,

    YDL_REGION_ROWS = 1,
    YDL_REGION_LAYOUT = 2,
    YDL_REGION_INDEX = 3,
    YDL_REGION_REQUIRED = 1, /* flag; unknown flags are ignored */

    /* A writer makes three regions; the cap only bounds what a hostile table can ask for. */
    YDL_MAX_REGIONS = 64,
    /* NumPy 1.x stops at 32 dimensions, one of which a batch adds. */
    YDL_MAX_RANK = 31,
    YDL_MAX_COMPONENTS = 4096,
};

static inline uint64_t ydl_part_seed(const uint8_t build_uuid[YDL_UUID_BYTES], uint64_t part_number)
{
    uint8_t bytes[YDL_UUID_BYTES + 8];
    memcpy(bytes, build_uuid, YDL_UUID_BYTES);
    ydl_store_u64(bytes + YDL_UUID_BYTES, part_number);
    return ydl_hash(bytes, sizeof bytes);
}

/* bytes, n: the row without its checksum. row: its number within the part. */
static inline uint32_t ydl_row_checksum(const void *bytes, size_t n, uint64_t part_seed,
                                        uint64_t row)
{
    return (uint32_t)(ydl_hash(bytes, n) + part_seed + row * UINT64_C(0x9E3779B97F4A7C15));
}

#endif
