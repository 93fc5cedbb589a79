/* Numbers of the public headers, by name, for callers that cannot read C: Python declares the same structs for ctypes
 * and compares them with these when it opens the library (python/tenon/_structs.py). */
#include <string.h>

#include <tenon/fuse.h>
#include <tenon/kernel.h>

#define CONSTANT(name) \
    { #name, name }
#define SIZE(type) \
    { #type, sizeof(type) }
#define FIELD(type, field) \
    { #type "." #field, offsetof(type, field) }

static const struct {
    const char *name;
    size_t value;
} numbers[] = {
    CONSTANT(TN_MAX_RANK),
    CONSTANT(TN_TYPE_COUNT),
    CONSTANT(TN_ATTR_UNSET),
    CONSTANT(TN_ATTR_INT),
    CONSTANT(TN_ATTR_FLOAT),
    CONSTANT(TN_ATTR_BOOL),
    CONSTANT(TN_ATTR_STR),
    CONSTANT(TN_ATTR_TYPE),
    CONSTANT(TN_ATTR_INTS),
    CONSTANT(TN_CPU),
    CONSTANT(TN_CUDA),
    SIZE(tn_dlpack_type),
    FIELD(tn_dlpack_type, code),
    FIELD(tn_dlpack_type, bits),
    FIELD(tn_dlpack_type, lanes),
    SIZE(tn_device),
    FIELD(tn_device, kind),
    FIELD(tn_device, index),
    SIZE(tn_tensor),
    FIELD(tn_tensor, data),
    FIELD(tn_tensor, device),
    FIELD(tn_tensor, ndim),
    FIELD(tn_tensor, dtype),
    FIELD(tn_tensor, shape),
    FIELD(tn_tensor, strides),
    FIELD(tn_tensor, byte_offset),
    SIZE(tn_value),
    FIELD(tn_value, kind),
    FIELD(tn_value, choice),
    FIELD(tn_value, count),
    FIELD(tn_value, i),
    SIZE(tn_attr),
    FIELD(tn_attr, name),
    FIELD(tn_attr, value),
    SIZE(tn_args),
    FIELD(tn_args, in),
    FIELD(tn_args, n_in),
    FIELD(tn_args, lengths),
    FIELD(tn_args, attrs),
    FIELD(tn_args, n_attrs),
    FIELD(tn_args, out),
    FIELD(tn_args, n_out),
    FIELD(tn_args, kernel),
    SIZE(tn_spec),
    FIELD(tn_spec, present),
    FIELD(tn_spec, type),
    FIELD(tn_spec, ndim),
    FIELD(tn_spec, shape),
    SIZE(tn_host),
    FIELD(tn_host, context),
    FIELD(tn_host, stream),
    FIELD(tn_host, alloc),
    FIELD(tn_host, release),
    FIELD(tn_host, parallel),
    FIELD(tn_host, threads),
    SIZE(tn_fuse_options),
    FIELD(tn_fuse_options, name),
    FIELD(tn_fuse_options, fast),
    SIZE(tn_source),
    FIELD(tn_source, cuda),
    FIELD(tn_source, cpu),
    FIELD(tn_source, launch),
    FIELD(tn_source, file),
    FIELD(tn_source, options),
    SIZE(tn_kernel_text),
    FIELD(tn_kernel_text, size),
    FIELD(tn_kernel_text, signature),
    FIELD(tn_kernel_text, doc),
    FIELD(tn_kernel_text, formula),
    FIELD(tn_kernel_text, grad),
    FIELD(tn_kernel_text, samples),
    FIELD(tn_kernel_text, source),
};

TN_API int64_t tn_layout(const char *name); /* a constant, sizeof a struct or offsetof a field; -1: there is none */

int64_t tn_layout(const char *name) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(numbers[i].name, name)) return (int64_t)numbers[i].value;
    return -1;
}
