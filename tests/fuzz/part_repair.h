/* The part of part.c that makes changed files come further than their first hash. */

/* Places the table, and the regions one behind the other, as far as they fit. */
static void repair_places(struct image *image)
{
    uint8_t *trailer = image->bytes + image->n - YDL_TRAILER_BYTES;
    uint32_t entries = ydl_load_u32(trailer + 32);
    uint64_t room = image->n - YDL_HEADER_BYTES - YDL_TRAILER_BYTES;
    memcpy(image->bytes, YDL_HEAD_MAGIC, 8);
    ydl_store_u32(image->bytes + 8, YDL_FORMAT_VERSION);
    memcpy(trailer, image->bytes + 24, YDL_UUID_BYTES);
    memcpy(trailer + 56, YDL_TAIL_MAGIC, 8);
    if (entries > 4 || entries * (uint64_t)YDL_REGION_ENTRY_BYTES > room)
        return;
    uint64_t table = image->n - YDL_TRAILER_BYTES - entries * (uint64_t)YDL_REGION_ENTRY_BYTES;
    ydl_store_u64(trailer + 24, table);
    ydl_store_u64(trailer + 40, image->n);
    uint64_t at = YDL_HEADER_BYTES;
    for (uint32_t i = 0; i < entries; i++) {
        uint8_t *entry = image->bytes + table + i * (size_t)YDL_REGION_ENTRY_BYTES;
        uint64_t start;
        uint64_t end;
        if (!ydl_align_u64(at, YDL_REGION_ALIGNMENT, &start) || start > table)
            return;
        uint64_t bytes = ydl_load_u64(entry + 16);
        if (!ydl_add_u64(start, bytes, &end) || end > table)
            bytes = table - start;
        memset(image->bytes + at, 0, start - at);
        ydl_store_u64(entry + 8, start);
        ydl_store_u64(entry + 16, bytes);
        at = start + bytes;
    }
    memset(image->bytes + at, 0, table - at);
}

/* Lengths that follow from the number of records. */
static void repair_lengths(struct image *image)
{
    struct ydl_error err;
    struct ydl_layout layout;
    uint8_t *trailer = image->bytes + image->n - YDL_TRAILER_BYTES;
    uint64_t layout_bytes;
    uint64_t rows_bytes;
    uint64_t index_bytes;
    const uint8_t *region = find_region(image, YDL_REGION_LAYOUT, &layout_bytes);
    const uint8_t *rows = find_region(image, YDL_REGION_ROWS, &rows_bytes);
    uint8_t *index = find_region(image, YDL_REGION_INDEX, &index_bytes);
    if (!region || !rows || ydl_layout_parse(&layout, region, layout_bytes, &err) != YDL_OK)
        return;
    if (!layout.rows_vary) {
        ydl_store_u64(trailer + 16, rows_bytes / layout.row_bytes);
    } else if (index && index_bytes >= 8) {
        ydl_store_u64(trailer + 16, index_bytes / 8);
        ydl_store_u64(index + 8 * (index_bytes / 8 - 1), rows_bytes);
    }
    ydl_layout_clear(&layout);
}

static void repair_rows(struct image *image)
{
    struct ydl_error err;
    struct ydl_layout layout;
    uint64_t layout_bytes;
    uint64_t rows_bytes;
    uint64_t index_bytes = 0;
    const uint8_t *region = find_region(image, YDL_REGION_LAYOUT, &layout_bytes);
    uint8_t *rows = find_region(image, YDL_REGION_ROWS, &rows_bytes);
    const uint8_t *index = find_region(image, YDL_REGION_INDEX, &index_bytes);
    if (!region || !rows || ydl_layout_parse(&layout, region, layout_bytes, &err) != YDL_OK)
        return;
    uint64_t seed = ydl_part_seed(image->bytes + 24, ydl_load_u64(image->bytes + 40));
    uint64_t records = layout.rows_vary ? index_bytes / 8 : rows_bytes / layout.row_bytes;
    uint64_t start = 0;
    for (uint64_t row = 0; row < records && (index || !layout.rows_vary); row++) {
        uint64_t end = layout.rows_vary ? ydl_load_u64(index + 8 * row) : start + layout.row_bytes;
        if (end > rows_bytes || end < start || end - start < YDL_CHECKSUM_BYTES)
            break;
        uint64_t body = end - start - YDL_CHECKSUM_BYTES;
        ydl_store_u32(rows + start + body, ydl_row_checksum(rows + start, body, seed, row));
        start = end;
    }
    ydl_layout_clear(&layout);
}

static void repair_hashes(struct image *image)
{
    uint32_t entries;
    uint8_t *table = find_table(image, &entries);
    uint8_t *trailer = image->bytes + image->n - YDL_TRAILER_BYTES;
    ydl_store_u64(image->bytes + 56, ydl_hash(image->bytes, 56));
    if (!table || entries > YDL_MAX_REGIONS)
        return;
    for (uint32_t i = 0; i < entries; i++) {
        uint8_t *entry = table + i * (size_t)YDL_REGION_ENTRY_BYTES;
        uint64_t offset = ydl_load_u64(entry + 8);
        uint64_t bytes = ydl_load_u64(entry + 16);
        bool has_hash = ydl_load_u32(entry) != YDL_REGION_ROWS;
        if (offset <= image->n && bytes <= image->n - offset)
            ydl_store_u64(entry + 24, has_hash ? ydl_hash(image->bytes + offset, bytes) : 0);
    }
    uint8_t hashed[YDL_HEADER_BYTES + YDL_MAX_REGIONS * YDL_REGION_ENTRY_BYTES + 48];
    size_t table_bytes = entries * (size_t)YDL_REGION_ENTRY_BYTES;
    memcpy(hashed, image->bytes, YDL_HEADER_BYTES);
    memcpy(hashed + YDL_HEADER_BYTES, table, table_bytes);
    memcpy(hashed + YDL_HEADER_BYTES + table_bytes, trailer, 48);
    ydl_store_u64(trailer + 48, ydl_hash(hashed, YDL_HEADER_BYTES + table_bytes + 48));
}

/* Of eight seeds: one changes nothing, three set hashes, two also places, two also lengths. */
static size_t part_repair(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    (void)max;
    struct image image = {.bytes = bytes + 1, .n = n - 1};
    if (n < 1 + YDL_HEADER_BYTES + YDL_TRAILER_BYTES || seed % 8 == 0)
        return n;
    if (seed % 8 >= 4)
        repair_places(&image);
    if (seed % 8 >= 6)
        repair_lengths(&image);
    if (seed % 8 != 1)
        repair_rows(&image);
    repair_hashes(&image);
    return n;
}
