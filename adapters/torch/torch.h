/* PyTorch from pure C. No torch header and no link: the library that `import torch` has loaded is asked for its C
 * symbols when the adapter is first used, so one libtenon.so serves every torch from 2.10 on.
 *
 * torch_symbols.c   finds the symbols
 * torch_values.c    arguments and results: torch's 64-bit slots to tn_tensor and tn_value, torch's memory and threads
 * torch_ops.c       one `tenon::<name>` for each row of the table: schema, kernel, registration
 * torch_fuse.c      `tenon::fuse`, one operator for all formulas
 * torch_raise.c     a tn_status as the Python exception that a user expects
 * torch_direct.c    the short way from Python for plain calls, past torch's dispatcher */
#ifndef TNI_TORCH_H
#define TNI_TORCH_H

#include "core/contract/contract.h"

/* ---- torch's C symbols ------------------------------------------------------------------------------------------- */

typedef struct tni_torch_object *tni_torch_handle; /* a tensor, list, string or library, by the symbol */
typedef int32_t tni_torch_error;                   /* 0: success */
typedef uint64_t tni_torch_slot;                   /* an argument or a result of a kernel */
typedef void (*tni_torch_kernel)(tni_torch_slot *stack, uint64_t n_in, uint64_t n_out);

/* Set by the X-lists below. All of them are there since torch 2.10. X(type of the result, name, parameters) */
#define TNI_TORCH_NEEDED(X)                                                                                            \
    X(uint64_t, aoti_torch_abi_version, (void))                                                                        \
    X(tni_torch_error, aoti_torch_library_init_fragment,                                                               \
      (const char *ns, const char *file, uint32_t line, tni_torch_handle *library))                                    \
    X(tni_torch_error, aoti_torch_library_init_impl,                                                                   \
      (const char *ns, const char *key, const char *file, uint32_t line, tni_torch_handle *library))                   \
    X(tni_torch_error, aoti_torch_library_def, (tni_torch_handle library, const char *schema))                         \
    X(tni_torch_error, torch_library_impl,                                                                             \
      (tni_torch_handle library, const char *name, tni_torch_kernel kernel, uint64_t version))                         \
    X(void, aoti_torch_check, (bool good, const char *function, const char *file, uint32_t line, const char *message)) \
    X(tni_torch_error, aoti_torch_is_defined, (tni_torch_handle tensor, bool *defined))                                \
    X(tni_torch_error, aoti_torch_get_dim, (tni_torch_handle tensor, int64_t * ndim))                                  \
    X(tni_torch_error, aoti_torch_get_sizes, (tni_torch_handle tensor, int64_t * *sizes))                              \
    X(tni_torch_error, aoti_torch_get_strides, (tni_torch_handle tensor, int64_t * *strides))                          \
    X(tni_torch_error, aoti_torch_get_dtype, (tni_torch_handle tensor, int32_t * dtype))                               \
    X(tni_torch_error, aoti_torch_get_device_type, (tni_torch_handle tensor, int32_t * type))                          \
    X(tni_torch_error, aoti_torch_get_device_index, (tni_torch_handle tensor, int32_t * index))                        \
    X(tni_torch_error, torch_get_const_data_ptr, (tni_torch_handle tensor, const void **data))                         \
    X(tni_torch_error, torch_get_mutable_data_ptr, (tni_torch_handle tensor, void **data))                             \
    X(tni_torch_error, aoti_torch_empty_strided,                                                                       \
      (int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,                 \
       int32_t device_index, tni_torch_handle *tensor))                                                                \
    X(tni_torch_error, aoti_torch_delete_tensor_object, (tni_torch_handle tensor))                                     \
    X(bool, aoti_torch_grad_mode_is_enabled, (void))                                                                   \
    X(int32_t, aoti_torch_device_type_cpu, (void))                                                                     \
    X(int32_t, aoti_torch_device_type_cuda, (void))                                                                    \
    X(tni_torch_error, torch_string_c_str, (tni_torch_handle string, const char **text))                               \
    X(tni_torch_error, torch_delete_string, (tni_torch_handle string))                                                 \
    X(tni_torch_error, torch_list_size, (tni_torch_handle list, size_t * size))                                        \
    X(tni_torch_error, torch_list_get_item, (tni_torch_handle list, size_t index, tni_torch_slot * item))              \
    X(tni_torch_error, torch_delete_list, (tni_torch_handle list))                                                     \
    X(tni_torch_error, torch_new_list_reserve_size, (size_t size, tni_torch_handle * list))                            \
    X(tni_torch_error, torch_list_push_back, (tni_torch_handle list, tni_torch_slot item))                             \
    X(tni_torch_error, torch_parallel_for,                                                                             \
      (int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t begin, int64_t end, void *context),             \
       void *context))                                                                                                 \
    X(tni_torch_error, torch_get_num_threads, (uint32_t * threads))

/* May be missing; the places that use them say what happens then. */
#define TNI_TORCH_OPTIONAL(X)                                                                                     \
    X(tni_torch_error, torch_new_stable_ivalue, (tni_torch_slot * *box))                               /* 2.13 */ \
    X(tni_torch_error, torch_delete_stable_ivalue, (tni_torch_slot * box))                             /* 2.13 */ \
    X(tni_torch_error, torch_tensor_to_pyobject, (tni_torch_handle tensor, void *type, void **object)) /* 2.14 */

struct tni_torch_symbols {
#define TNI_TORCH_FIELD(result, name, parameters) result(*name) parameters;
    TNI_TORCH_NEEDED(TNI_TORCH_FIELD)
    TNI_TORCH_OPTIONAL(TNI_TORCH_FIELD)
#undef TNI_TORCH_FIELD
    /* In libtorch_cuda, which a torch for the CPU alone does not have: NULL then. */
    tni_torch_error (*aoti_torch_get_current_cuda_stream)(int32_t device, void **stream);
    /* C++'s operator new and delete: the boxes of optional values before 2.13 */
    void *(*new_memory)(size_t bytes);
    void (*delete_memory)(void *memory);
    int32_t dtypes[TN_TYPE_COUNT]; /* torch's code of a type; -1: none */
    int32_t device_cpu, device_cuda;
};
extern struct tni_torch_symbols tni_torch; /* filled once by tni_torch_load */

/* Finds torch in this process. A message that says what is missing, and what to do, where that fails. */
tn_status tni_torch_load(void);
tn_type tni_torch_type(int32_t dtype); /* TN_NO_TYPE where Tenon has no such type */
/* A symbol that only one file needs, from torch's libraries or what they depend on; NULL where there is none. */
void *tni_torch_symbol(const char *name);

/* ---- a call ------------------------------------------------------------------------------------------------------ */

enum { TNI_TORCH_FEW = 16 }; /* tensors of a call that need no memory of their own */

/* The arguments of one call, on the stack of the kernel. Memory that a call with long lists needs hangs on `more`. */
typedef struct tni_torch_frame {
    const tn_function *op;
    tn_args args;
    tn_tensor few_tensors[TNI_TORCH_FEW];
    const tn_tensor *few_in[TNI_TORCH_FEW];
    tni_torch_handle few_owned[TNI_TORCH_FEW];
    int32_t lengths[TNI_MAX_ARGS];
    tn_attr attrs[TNI_MAX_ARGS];

    tn_tensor *tensors;      /* (capacity) */
    const tn_tensor **in;    /* (capacity) */
    tni_torch_handle *owned; /* (capacity) handles to delete */
    int32_t capacity, n_owned;
    int64_t ints[TNI_MAX_INTS]; /* of the first lists of integers */
    int32_t n_ints;
    void *more; /* chain of blocks */

    tn_tensor out_tensors[TNI_MAX_ARGS];
    uint64_t given;                     /* outputs that the caller has made, in out_tensors */
    tni_torch_handle out[TNI_MAX_ARGS]; /* (n_outputs) NULL: not there, or given */
    /* A tensor that gives its memory to the first output. It becomes NULL where the two are laid out differently, and
     * the output is made as usual. */
    const tn_tensor *over;
} tni_torch_frame;

/* Reads the slots of a call, in the order of the schema. Takes no ownership: tni_torch_release_slots frees them. */
tn_status tni_torch_read(tni_torch_frame *frame, const tni_torch_slot *stack, uint64_t n_in);
/* Runs the call; outputs are in frame->out. */
tn_status tni_torch_call(tni_torch_frame *frame);
void tni_torch_release_slots(tni_torch_frame *frame, const tni_torch_slot *stack, uint64_t n_in);
void tni_torch_delete_outputs(tni_torch_frame *frame);
/* The parts of tni_torch_read: the next tensor of the call, NULL where it is absent; the box of an optional value. */
tn_status tni_torch_add_tensor(tni_torch_frame *frame, const tni_param *param, tni_torch_handle tensor);
void tni_torch_delete_box(tni_torch_slot *box);
/* An output's memory is this tensor's, which must be laid out as Tenon does it. */
tn_status tni_torch_give_output(tni_torch_frame *frame, int32_t output, tni_torch_handle tensor);
/* Moves the outputs into the stack. */
tn_status tni_torch_push(tni_torch_frame *frame, tni_torch_slot *stack, uint64_t n_out);

/* For both ways of calling: an empty frame, room for n tensors, memory that lives as long as the frame. */
void tni_torch_frame_init(tni_torch_frame *frame, const tn_function *op);
tn_status tni_torch_frame_room(tni_torch_frame *frame, int32_t n);
void *tni_torch_frame_alloc(tni_torch_frame *frame, size_t bytes);
void tni_torch_frame_free(tni_torch_frame *frame);

/* ---- operators and errors ---------------------------------------------------------------------------------------- */

/* The operator's schema: "softmax(Tensor x, Tensor? mask=None, int axis=-1, …) -> Tensor"; overload: "" or ".name". */
void tni_torch_schema(tni_text *text, const tn_function *op, const char *overload);

/* Raises this thread's message as the Python exception that fits; does not return. Nothing may be owned any more. */
_Noreturn void tni_torch_raise(tn_status status);

/* Defines `tenon::<name>` and gives it one kernel for CPU and CUDA. */
tn_status tni_torch_define(const char *schema, const char *name, tni_torch_kernel kernel);
/* `tenon::fuse`, `tenon::fuse.raw` and `tenon::fuse.inplace`. */
tn_status tni_torch_register_fuse(void);

/* Registers every row of the table that is not registered yet, for CPU and CUDA. Call it again after tn_load. */
TN_API tn_status tn_torch_register(void);

#endif
