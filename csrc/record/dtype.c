#include "record/dtype.h"

#include <string.h>

static const struct ydl_dtype_info infos[] = {
#define YDL_DTYPE_INFO(code, number, name, bytes, alignment) [number] = {name, bytes, alignment},
    YDL_DTYPE_TABLE(YDL_DTYPE_INFO)
#undef YDL_DTYPE_INFO
};

enum { INFO_COUNT = sizeof infos / sizeof infos[0] };

const struct ydl_dtype_info *ydl_dtype_info(uint32_t number)
{
    if (number >= INFO_COUNT || !infos[number].name)
        return NULL;
    return &infos[number];
}

const struct ydl_dtype_info *ydl_dtype_by_name(const char *name, enum ydl_dtype *out)
{
    for (uint32_t number = 0; number < INFO_COUNT; number++) {
        if (infos[number].name && strcmp(infos[number].name, name) == 0) {
            *out = (enum ydl_dtype)number;
            return &infos[number];
        }
    }
    return NULL;
}
