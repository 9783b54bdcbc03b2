/* A look at the current generation of a lease, whoever holds it. Thread-safe, no state. */
#ifndef YDL_STORE_LEASE_LOOK_H
#define YDL_STORE_LEASE_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "store/lease_record.h"

#define YDL_LEASE_SUFFIX ".lease"

struct ydl_lease_sight {
    uint64_t generation; /* 0: none */
    bool readable;       /* else the record is zeroed: held, by nobody knows whom */
    struct ydl_lease_record record;
};

/* Costs a listing of the directory and the reading of one file, a few times where the file is just
 * being rewritten. */
YDL_MUST_CHECK enum ydl_status ydl_lease_look(const char *dir, struct ydl_lease_sight *out,
                                              struct ydl_error *err);

void ydl_lease_fill_view(const struct ydl_lease_sight *sight, bool stale,
                         struct ydl_lease_view *out);

#endif
