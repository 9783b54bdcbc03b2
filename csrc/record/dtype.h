/* The element types that a component may have. The numbers are in files: never reuse one. */
#ifndef YDL_RECORD_DTYPE_H
#define YDL_RECORD_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(code, number in files, name, bytes per element, alignment); string: 0 bytes, elements vary. */
#define YDL_DTYPE_TABLE(X)                                                                         \
    X(BOOL, 1, "bool", 1, 1)                                                                       \
    X(INT8, 2, "int8", 1, 1)                                                                       \
    X(INT16, 3, "int16", 2, 2)                                                                     \
    X(INT32, 4, "int32", 4, 4)                                                                     \
    X(INT64, 5, "int64", 8, 8)                                                                     \
    X(UINT8, 6, "uint8", 1, 1)                                                                     \
    X(UINT16, 7, "uint16", 2, 2)                                                                   \
    X(UINT32, 8, "uint32", 4, 4)                                                                   \
    X(UINT64, 9, "uint64", 8, 8)                                                                   \
    X(FLOAT16, 10, "float16", 2, 2)                                                                \
    X(FLOAT32, 11, "float32", 4, 4)                                                                \
    X(FLOAT64, 12, "float64", 8, 8)                                                                \
    X(BFLOAT16, 13, "bfloat16", 2, 2)                                                              \
    X(COMPLEX64, 14, "complex64", 8, 4)                                                            \
    X(COMPLEX128, 15, "complex128", 16, 8)                                                         \
    X(STRING, 16, "string", 0, 1)                                                                  \
    X(FLOAT8_E5M2, 17, "float8_e5m2", 1, 1)                                                        \
    X(FLOAT8_E4M3FN, 18, "float8_e4m3fn", 1, 1)

enum ydl_dtype {
#define YDL_DTYPE_ENUM(code, number, name, bytes, alignment) YDL_##code = number,
    YDL_DTYPE_TABLE(YDL_DTYPE_ENUM)
#undef YDL_DTYPE_ENUM
};

struct ydl_dtype_info {
    const char *name;
    uint32_t bytes; /* per element; 0 for string */
    uint32_t alignment;
};

/* NULL where no dtype has this number / this name. */
const struct ydl_dtype_info *ydl_dtype_info(uint32_t number);
const struct ydl_dtype_info *ydl_dtype_by_name(const char *name, enum ydl_dtype *out);

#endif
