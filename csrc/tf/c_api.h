/* The part of TensorFlow's C API that the op needs, found at run time.
 *
 * Declared here by hand (source: tensorflow/c/c_api.h, ops.h, kernels.h, tf_tensor.h, tf_tstring.h;
 * unchanged from 2.8 on), so that building needs no TensorFlow and one binary serves them all: the
 * symbols are looked up in the TensorFlow that is loaded. */
#ifndef YDL_TF_C_API_H
#define YDL_TF_C_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tf_status;
struct tf_tensor;
struct tf_context;      /* of one run of a kernel */
struct tf_construction; /* of a kernel */
struct tf_op_builder;
struct tf_kernel_builder;
struct tf_shape_context;

enum tf_code {
    TF_OK = 0,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_OUT_OF_RANGE = 11,
};
enum { TF_STRING = 7, TF_INT64 = 9 };
/* A TF_TString; zero bytes are an empty one. */
enum { TF_TSTRING_BYTES = 24 };

#define TF_FUNCTIONS(X)                                                                            \
    X(struct tf_status *, TF_NewStatus, (void))                                                    \
    X(void, TF_DeleteStatus, (struct tf_status *))                                                 \
    X(void, TF_SetStatus, (struct tf_status *, int code, const char *text))                        \
    X(int, TF_GetCode, (const struct tf_status *))                                                 \
    X(struct tf_op_builder *, TF_NewOpDefinitionBuilder, (const char *op))                         \
    X(void, TF_OpDefinitionBuilderAddAttr, (struct tf_op_builder *, const char *))                 \
    X(void, TF_OpDefinitionBuilderAddInput, (struct tf_op_builder *, const char *))                \
    X(void, TF_OpDefinitionBuilderAddOutput, (struct tf_op_builder *, const char *))               \
    X(void, TF_OpDefinitionBuilderSetIsStateful, (struct tf_op_builder *, bool))                   \
    X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                       \
      (struct tf_op_builder *, void (*infer)(struct tf_shape_context *, struct tf_status *)))      \
    X(void, TF_ShapeInferenceContextSetUnknownShape,                                               \
      (struct tf_shape_context *, struct tf_status *))                                             \
    X(void, TF_RegisterOpDefinition, (struct tf_op_builder *, struct tf_status *))                 \
    X(struct tf_kernel_builder *, TF_NewKernelBuilder,                                             \
      (const char *op, const char *device, void *(*create)(struct tf_construction *),              \
       void (*compute)(void *, struct tf_context *), void (*destroy)(void *)))                     \
    X(void, TF_RegisterKernelBuilder,                                                              \
      (const char *name, struct tf_kernel_builder *, struct tf_status *))                          \
    X(void, TF_GetInput, (struct tf_context *, int i, struct tf_tensor **, struct tf_status *))    \
    X(int, TF_NumOutputs, (struct tf_context *))                                                   \
    X(int, TF_ExpectedOutputDataType, (struct tf_context *, int i))                                \
    X(void, TF_SetOutput,                                                                          \
      (struct tf_context *, int i, const struct tf_tensor *, struct tf_status *))                  \
    X(struct tf_tensor *, TF_AllocateOutput,                                                       \
      (struct tf_context *, int i, int dtype, const int64_t *dims, int rank, size_t bytes,         \
       struct tf_status *))                                                                        \
    X(void, TF_OpKernelContext_Failure, (struct tf_context *, struct tf_status *))                 \
    X(struct tf_tensor *, TF_NewTensor,                                                            \
      (int dtype, const int64_t *dims, int rank, void *data, size_t bytes,                         \
       void (*release)(void *data, size_t bytes, void *argument), void *argument))                 \
    X(void, TF_DeleteTensor, (struct tf_tensor *))                                                 \
    X(int, TF_TensorType, (const struct tf_tensor *))                                              \
    X(int64_t, TF_TensorElementCount, (const struct tf_tensor *))                                  \
    X(void *, TF_TensorData, (const struct tf_tensor *))                                           \
    X(size_t, TF_DataTypeSize, (int dtype))                                                        \
    X(void, TF_StringCopy, (void *string, const char *bytes, size_t n))

struct tf_api {
#define TF_POINTER(result, name, arguments) result(*name) arguments;
    TF_FUNCTIONS(TF_POINTER)
#undef TF_POINTER
};

/* The name of what is not there, or NULL: all was found. */
const char *ydl_tf_find(struct tf_api *out);

#endif
