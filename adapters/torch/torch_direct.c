/* The short way from Python. torch's dispatcher costs more than a small operator does: about 4 µs a call, where
 * torch.softmax as a whole takes 3. For the common case (plain tensors, nothing to differentiate, no mode,
 * no transform, no profiler) a Python function made here reads the tensors through torch's DLPack exchange table and
 * calls the core at once. For every other case it hands the same arguments on to a Python function that goes through
 * the dispatcher. Whatever it needs of Python and torch is looked up by name; where something is missing, setup says so
 * and callers use the dispatcher always. */
#include <dlfcn.h>
#include <string.h>

#include "core/host/memory.h"
#include "core/table/table.h"
#include "torch.h"

typedef struct python_object python_object; /* PyObject */

/* Python's stable interface. X(result, name, parameters) */
#define PYTHON(X)                                                                                          \
    X(python_object *, PyCFunction_NewEx, (void *method, python_object *self, python_object *module))      \
    X(python_object *, PyCFunction_GetSelf, (python_object * function))                                    \
    X(python_object *, PyCapsule_New, (void *pointer, const char *name, void (*destroy)(python_object *))) \
    X(void *, PyCapsule_GetPointer, (python_object * capsule, const char *name))                           \
    X(python_object *, PyObject_Vectorcall,                                                                \
      (python_object * function, python_object *const *args, size_t n, python_object *names))              \
    X(python_object *, PyObject_Type, (python_object * object))                                            \
    X(python_object *, PyObject_GetAttr, (python_object * object, python_object * name))                   \
    X(python_object *, PyUnicode_InternFromString, (const char *text))                                     \
    X(const char *, PyUnicode_AsUTF8AndSize, (python_object * text, intptr_t * size))                      \
    X(python_object *, PyDict_GetItem, (python_object * dict, python_object * key))                        \
    X(long long, PyLong_AsLongLong, (python_object * number))                                              \
    X(python_object *, PyLong_FromLongLong, (long long number))                                            \
    X(python_object *, PyLong_FromVoidPtr, (void *pointer))                                                \
    X(unsigned long long, PyLong_AsUnsignedLongLongMask, (python_object * number))                         \
    X(double, PyFloat_AsDouble, (python_object * number))                                                  \
    X(intptr_t, PySequence_Size, (python_object * sequence))                                               \
    X(python_object *, PyList_GetItem, (python_object * list, intptr_t index))                             \
    X(python_object *, PyTuple_GetItem, (python_object * tuple, intptr_t index))                           \
    X(python_object *, PyTuple_New, (intptr_t size))                                                       \
    X(int, PyTuple_SetItem, (python_object * tuple, intptr_t index, python_object * item))                 \
    X(python_object *, PyErr_Occurred, (void))                                                             \
    X(void, PyErr_Clear, (void))                                                                           \
    X(void, PyErr_SetString, (python_object * type, const char *message))                                  \
    X(void *, PyEval_SaveThread, (void))                                                                   \
    X(void, PyEval_RestoreThread, (void *state))                                                           \
    X(void, Py_IncRef, (python_object * object))                                                           \
    X(void, Py_DecRef, (python_object * object))

/* Python's objects: the symbol is the object itself. */
#define PYTHON_OBJECTS(X) \
    X(_Py_NoneStruct)     \
    X(_Py_TrueStruct) X(_Py_FalseStruct) X(PyLong_Type) X(PyFloat_Type) X(PyUnicode_Type) X(PyList_Type) X(PyTuple_Type)

/* Python's exceptions: the symbol is a pointer to the object. */
#define PYTHON_ERRORS(X) \
    X(PyExc_ValueError) X(PyExc_TypeError) X(PyExc_NotImplementedError) X(PyExc_RuntimeError) X(PyExc_MemoryError)

/* DLPack's exchange table, versions 1.x; the functions that are not used have no type. */
typedef struct exchange {
    uint32_t major, minor;
    void *previous, *allocate, *export, *import;
    int (*read)(python_object *tensor, tn_tensor *view); /* borrows shape and strides; -1 and a Python error */
} exchange;

static struct {
#define FIELD(result, name, parameters) result(*name) parameters;
    PYTHON(FIELD)
#undef FIELD
#define OBJECT(name) python_object *name;
    PYTHON_OBJECTS(OBJECT)
    PYTHON_ERRORS(OBJECT)
#undef OBJECT
    python_object *requires_grad, *current_level; /* names */
    /* of torch */
    python_object *tensor, *parameter; /* the two types that are plain tensors */
    python_object *is_neg;             /* Tensor.is_neg: a sign that is still to be applied */
    python_object *bump;               /* torch._C._increment_version: says that tensors were written */
    python_object *forward_ad;         /* the variables of torch.autograd.forward_ad */
    const exchange *exchange;
    python_object *(*wrap)(tni_torch_handle tensor); /* before 2.14; not in the stable interface */
    bool (*function_mode)(void);
    bool (*profiling)(void);
    void *keys_library; /* of the thread's set of dispatch keys */
    /* where a Python tensor points to torch's, and where that has its dispatch keys; the key that says what is_neg
     * does. 0: not known, and is_neg is asked */
    int64_t torch_at, keys_at;
    uint64_t negative;
} py;

#define KEYS "_ZN3c104impl26raw_local_dispatch_key_setE" /* two words in each thread; 0 is the usual state */

enum { MOST_STATES = 4, LARGE = 65536, METH_FASTCALL = 0x80 };

/* Dispatch keys that a call may find: the usual ones, and those of torch.inference_mode(). */
static uint64_t states[MOST_STATES][2];
static int n_states;

typedef struct method { /* PyMethodDef */
    const char *name;
    python_object *(*call)(python_object *self, python_object *const *args, intptr_t n);
    int flags;
    const char *doc;
} method;

/* What a Python function made here calls. */
typedef struct entry {
    const tn_function *op;
    python_object *with_grad; /* for calls that must be recorded */
    python_object *general;   /* for every other call that is not plain */
    uint64_t shown;           /* outputs to return, a bit for each */
    bool all;                 /* with None for absent outputs; else only those that are there */
    bool mutates;
    int32_t over, over_in; /* argument that gives its memory to the first output, and its place among the tensors; -1 */
} entry;

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static bool find_python(void) {
    bool all = true;
#define FIND(result, name, parameters) all &= (*(void **)&py.name = dlsym(RTLD_DEFAULT, #name)) != NULL;
    PYTHON(FIND)
#undef FIND
#define FIND_OBJECT(name) all &= (py.name = dlsym(RTLD_DEFAULT, #name)) != NULL;
    PYTHON_OBJECTS(FIND_OBJECT)
#undef FIND_OBJECT
#define FIND_ERROR(name)                               \
    python_object **name = dlsym(RTLD_DEFAULT, #name); \
    all &= name != NULL;                               \
    py.name = name ? *name : NULL;
    PYTHON_ERRORS(FIND_ERROR)
#undef FIND_ERROR
    return all;
}

static bool find_torch(void) {
    *(void **)&py.wrap = tni_torch_symbol("_Z16THPVariable_WrapRKN2at10TensorBaseE");
    *(void **)&py.function_mode = tni_torch_symbol("_ZN2at4impl27torch_function_mode_enabledEv");
    *(void **)&py.profiling = tni_torch_symbol("_ZN5torch8profiler4impl15profilerEnabledEv");
    py.keys_library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
    return (py.wrap || tni_torch.torch_tensor_to_pyobject) && py.function_mode && py.profiling && py.keys_library &&
           dlsym(py.keys_library, KEYS);
}

/* The dispatch keys that this thread adds and leaves out. */
static const uint64_t *thread_keys(void) {
    static _Thread_local const uint64_t *keys;
    if (!keys) keys = dlsym(py.keys_library, KEYS);
    return keys;
}

/* Nothing stands between the call and the kernel: no mode, no transform, no autocast, no tracing, no profiler. */
static bool is_plain(void) {
    const uint64_t *keys = thread_keys();
    bool known = false;
    for (int i = 0; i < n_states; i++) known |= keys[0] == states[i][0] && keys[1] == states[i][1];
    if (!known || py.function_mode() || py.profiling()) return false;
    python_object *level = py.PyDict_GetItem(py.forward_ad, py.current_level);
    return level && py.PyLong_AsLongLong(level) < 0;
}

static bool is_a(python_object *object, const python_object *type) {
    python_object *own = py.PyObject_Type(object);
    py.Py_DecRef(own); /* the object keeps it */
    return own == type;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* What reading an argument says. */
typedef enum verdict { PLAIN, NEEDS_GRAD, NOT_PLAIN, FAILED } verdict;

static verdict drop_error(void) {
    py.PyErr_Clear();
    return NOT_PLAIN;
}

static bool is_true(python_object *value) {
    if (!value) {
        py.PyErr_Clear();
        return true; /* strange enough for the general way */
    }
    py.Py_DecRef(value);
    return value == py._Py_TrueStruct;
}

static bool is_negated(python_object *tensor) {
    if (!py.negative) return is_true(py.PyObject_Vectorcall(py.is_neg, &tensor, 1, NULL));
    const char *own = *(char *const *)((const char *)tensor + py.torch_at);
    return *(const uint64_t *)(own + py.keys_at) & py.negative;
}

/* `needs_grad`: set where the tensor requires a gradient; NULL where nothing is recorded. */
static verdict add_tensor(tni_torch_frame *frame, python_object *object, bool *needs_grad) {
    if (tni_torch_frame_room(frame, 1) != TN_OK) return FAILED;
    python_object *type = py.PyObject_Type(object);
    py.Py_DecRef(type);
    if (type != py.tensor && type != py.parameter) return NOT_PLAIN;
    if (needs_grad) *needs_grad |= is_true(py.PyObject_GetAttr(object, py.requires_grad));
    if (is_negated(object)) return NOT_PLAIN;
    int32_t i = frame->args.n_in++;
    tn_tensor *t = &frame->tensors[i];
    frame->in[i] = t;
    if (py.exchange->read(object, t)) return drop_error();
    bool complex = t->dtype.code == tn_type_to_dlpack(TN_C64).code; /* may have a conjugation still to be applied */
    if ((t->device.kind != TN_CPU && t->device.kind != TN_CUDA) || t->ndim > TN_MAX_RANK || complex) return NOT_PLAIN;
    if (t->data) return PLAIN;
    bool empty = false; /* without memory, yet with elements: torch stands in for them */
    for (int32_t d = 0; d < t->ndim; d++) empty |= t->shape[d] == 0;
    return empty ? PLAIN : NOT_PLAIN;
}

static python_object *sequence_item(python_object *sequence, intptr_t i) {
    return is_a(sequence, py.PyList_Type) ? py.PyList_GetItem(sequence, i) : py.PyTuple_GetItem(sequence, i);
}

/* The length of a list or a tuple; -1: it is neither. */
static intptr_t sequence_size(python_object *sequence) {
    bool known = is_a(sequence, py.PyList_Type) || is_a(sequence, py.PyTuple_Type);
    return known ? py.PySequence_Size(sequence) : -1;
}

static verdict add_list(tni_torch_frame *frame, python_object *list, bool *needs_grad, int32_t *length) {
    intptr_t size = sequence_size(list);
    if (size < 0 || size > INT16_MAX) return NOT_PLAIN;
    for (intptr_t k = 0; k < size; k++) {
        verdict v = add_tensor(frame, sequence_item(list, k), needs_grad);
        if (v != PLAIN) return v;
    }
    *length = (int32_t)size;
    return PLAIN;
}

static verdict read_input(tni_torch_frame *frame, int32_t i, python_object *object, bool *needs_grad) {
    const tni_param *param = &frame->op->contract->inputs[i];
    bool absent = object == py._Py_NoneStruct;
    frame->lengths[i] = !param->list;
    if (absent && !param->optional) return NOT_PLAIN;
    if (param->list) return absent ? PLAIN : add_list(frame, object, needs_grad, &frame->lengths[i]);
    if (!absent) return add_tensor(frame, object, needs_grad);
    if (tni_torch_frame_room(frame, 1) != TN_OK) return FAILED;
    frame->in[frame->args.n_in++] = NULL;
    return PLAIN;
}

static verdict read_int(python_object *object, int64_t *value) {
    if (!is_a(object, py.PyLong_Type)) return NOT_PLAIN;
    *value = py.PyLong_AsLongLong(object);
    return *value == -1 && py.PyErr_Occurred() ? drop_error() : PLAIN;
}

static verdict read_float(python_object *object, double *value) {
    if (!is_a(object, py.PyFloat_Type) && !is_a(object, py.PyLong_Type)) return NOT_PLAIN;
    *value = py.PyFloat_AsDouble(object);
    return *value == -1 && py.PyErr_Occurred() ? drop_error() : PLAIN;
}

static verdict read_bool(python_object *object, bool *value) {
    *value = object == py._Py_TrueStruct;
    return *value || object == py._Py_FalseStruct ? PLAIN : NOT_PLAIN;
}

static verdict read_string(python_object *object, const char **value) {
    if (!is_a(object, py.PyUnicode_Type)) return NOT_PLAIN;
    *value = py.PyUnicode_AsUTF8AndSize(object, NULL);
    return *value ? PLAIN : drop_error();
}

static verdict read_ints(tni_torch_frame *frame, python_object *object, tn_value *value) {
    intptr_t size = sequence_size(object);
    if (size < 0 || frame->n_ints + size > TNI_MAX_INTS) return NOT_PLAIN;
    int64_t *ints = frame->ints + frame->n_ints;
    for (intptr_t i = 0; i < size; i++) {
        verdict v = read_int(sequence_item(object, i), &ints[i]);
        if (v != PLAIN) return v;
    }
    frame->n_ints += (int32_t)size;
    value->count = (int32_t)size;
    value->ints = ints;
    return PLAIN;
}

static verdict read_attr(tni_torch_frame *frame, int32_t i, python_object *object) {
    const tni_attr *attr = &frame->op->contract->attrs[i];
    tn_value *value = &frame->attrs[i].value;
    frame->attrs[i].name = NULL; /* by its place */
    *value = (tn_value){.kind = TN_ATTR_UNSET};
    if (object == py._Py_NoneStruct) return attr->optional ? PLAIN : NOT_PLAIN;
    switch (attr->kind) {
    case TNI_A_INT:
    case TNI_A_AXIS: value->kind = TN_ATTR_INT; return read_int(object, &value->i);
    case TNI_A_FLOAT: value->kind = TN_ATTR_FLOAT; return read_float(object, &value->f);
    case TNI_A_BOOL: value->kind = TN_ATTR_BOOL; return read_bool(object, &value->b);
    case TNI_A_STR:
    case TNI_A_CHOICE:
    case TNI_A_ACTIVATION: value->kind = TN_ATTR_STR; return read_string(object, &value->s);
    case TNI_A_AXES:
    case TNI_A_INTS: value->kind = TN_ATTR_INTS; return read_ints(frame, object, value);
    case TNI_A_DTYPE: return NOT_PLAIN;
    }
    return NOT_PLAIN;
}

/* Whether inputs whose type is the same variable have the same type; others are promoted first, in Python. */
static bool types_agree(const tni_torch_frame *frame) {
    const tni_contract *c = frame->op->contract;
    const tn_tensor *first[TNI_MAX_TYPES] = {NULL};
    for (int32_t i = 0, at = 0; i < c->n_inputs; at += frame->lengths[i++]) {
        const tni_type *type = &c->inputs[i].type;
        if (c->inputs[i].list || type->kind != TNI_TYPE_VAR || type->wrap != TNI_PLAIN || !frame->in[at]) continue;
        if (!first[type->ref]) first[type->ref] = frame->in[at];
        if (memcmp(&first[type->ref]->dtype, &frame->in[at]->dtype, sizeof(tn_dlpack_type)) != 0) return false;
    }
    return true;
}

/* Whether all inputs are on one device. torch takes a number of the CPU beside others, which Python moves. */
static bool devices_agree(const tni_torch_frame *frame) {
    const tn_tensor *first = NULL;
    for (int32_t i = 0; i < frame->args.n_in; i++) {
        if (!frame->in[i]) continue;
        if (!first) first = frame->in[i];
        if (frame->in[i]->device.kind != first->device.kind) return false;
    }
    return true;
}

/* All parameters of the schema must be there, by position. */
static verdict read_all(tni_torch_frame *frame, python_object *const *args, intptr_t n) {
    const tni_contract *c = frame->op->contract;
    int32_t n_written = c->n_order - c->n_inputs; /* attributes; the implied ones follow */
    bool needs_grad = false, *asked = tni_torch.aoti_torch_grad_mode_is_enabled() ? &needs_grad : NULL;
    if (n != c->n_inputs + c->n_attrs) return NOT_PLAIN;
    for (int32_t k = 0; k < n; k++) {
        bool is_attr = k >= c->n_order || c->order[k].is_attr;
        int32_t index = k < c->n_order ? c->order[k].index : n_written + k - c->n_order;
        verdict v = is_attr ? read_attr(frame, index, args[k]) : read_input(frame, index, args[k], asked);
        if (v != PLAIN) return v;
    }
    if (!types_agree(frame) || !devices_agree(frame)) return NOT_PLAIN;
    return needs_grad ? NEEDS_GRAD : PLAIN;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static python_object *error_of(tn_status status) {
    switch (status) {
    case TN_BAD_VALUE:
    case TN_BAD_SHAPE: return py.PyExc_ValueError;
    case TN_BAD_TYPE: return py.PyExc_TypeError;
    case TN_UNSUPPORTED: return py.PyExc_NotImplementedError;
    default: return py.PyExc_RuntimeError;
    }
}

static python_object *raise_status(tn_status status) {
    py.PyErr_SetString(error_of(status), tn_last_error());
    return NULL;
}

static python_object *wrap(tni_torch_handle tensor) {
    void *object = NULL;
    if (!tensor) {
        py.Py_IncRef(py._Py_NoneStruct);
        return py._Py_NoneStruct;
    }
    if (!tni_torch.torch_tensor_to_pyobject) return py.wrap(tensor);
    if (tni_torch.torch_tensor_to_pyobject(tensor, NULL, &object) || !object) {
        if (!py.PyErr_Occurred()) py.PyErr_SetString(py.PyExc_RuntimeError, "torch could not make a tensor");
        return NULL;
    }
    return object;
}

static bool is_shown(const entry *e, const tni_torch_frame *frame, int32_t i) {
    return (e->shown >> i & 1) && (e->all || frame->out[i] || (i == 0 && frame->over));
}

/* Output i, for Python; `over` is the object of frame->over. */
static python_object *result(const tni_torch_frame *frame, python_object *over, int32_t i) {
    if (i != 0 || !frame->over) return wrap(frame->out[i]);
    py.Py_IncRef(over);
    return over;
}

static python_object *results(const entry *e, const tni_torch_frame *frame, python_object *over) {
    int32_t n_outputs = e->op->contract->n_outputs, n = 0, only = 0;
    for (int32_t i = 0; i < n_outputs; i++) {
        if (!is_shown(e, frame, i)) continue;
        only = i;
        n++;
    }
    if (n == 1) return result(frame, over, only);
    if (n_outputs == 0) return wrap(NULL);
    python_object *tuple = py.PyTuple_New(n);
    for (int32_t i = 0, at = 0; tuple && i < n_outputs; i++) {
        if (!is_shown(e, frame, i)) continue;
        python_object *item = result(frame, over, i);
        if (item) {
            py.PyTuple_SetItem(tuple, at++, item);
        } else {
            py.Py_DecRef(tuple);
            tuple = NULL;
        }
    }
    return tuple;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* A call that takes a while lets Python's other threads run. */
static bool is_large(const tni_torch_frame *frame) {
    for (int32_t i = 0; i < frame->args.n_in; i++) {
        const tn_tensor *t = frame->in[i];
        int64_t n = 1;
        for (int32_t d = 0; t && d < t->ndim; d++) n *= t->shape[d];
        if (n >= LARGE) return true;
    }
    return false;
}

/* Tells torch that a tensor, or a list of them, was written, as an operator of its own would. */
static bool bump_version(python_object *object, bool list) {
    python_object *written = list ? object : py.PyTuple_New(1);
    if (!written) return false;
    py.Py_IncRef(object); /* for the tuple, or for the DecRef below */
    if (!list) py.PyTuple_SetItem(written, 0, object);
    python_object *none = py.PyObject_Vectorcall(py.bump, &written, 1, NULL);
    py.Py_DecRef(written);
    if (none) py.Py_DecRef(none);
    return none != NULL;
}

static bool bump_versions(const tni_contract *c, python_object *const *args) {
    bool good = true;
    for (int32_t k = 0; good && k < c->n_order; k++) {
        const tni_param *param = &c->inputs[c->order[k].index];
        if (c->order[k].is_attr || !param->inplace || args[k] == py._Py_NoneStruct) continue;
        good = bump_version(args[k], param->list);
    }
    return good;
}

/* `over`: the object of frame->over. */
static python_object *run(const entry *e, tni_torch_frame *frame, python_object *const *args, python_object *over) {
    void *thread = is_large(frame) ? py.PyEval_SaveThread() : NULL;
    tn_status status = tni_torch_call(frame);
    if (thread) py.PyEval_RestoreThread(thread);
    python_object *made = NULL;
    if (status != TN_OK) {
        raise_status(status);
    } else if (!e->mutates || bump_versions(e->op->contract, args)) {
        made = results(e, frame, over);
    }
    tni_torch_delete_outputs(frame);
    return made;
}

/* Into a tensor of the caller's, if that can be: it is what is returned then. */
static python_object *run_into(const entry *e, tni_torch_frame *frame, python_object *const *args,
                               python_object *into) {
    if (tni_torch_frame_room(frame, 1) != TN_OK) return raise_status(TN_NO_MEMORY);
    const int32_t n_in = frame->args.n_in;
    if (add_tensor(frame, into, NULL) == PLAIN) frame->over = frame->in[n_in];
    frame->args.n_in = n_in;
    python_object *made = run(e, frame, args, into);
    if (made != into || bump_version(into, false)) return made;
    py.Py_DecRef(made);
    return NULL;
}

/* One argument more than the schema has is where the first output goes. */
static python_object *call(python_object *self, python_object *const *args, intptr_t n) {
    const entry *e = py.PyCapsule_GetPointer(py.PyTuple_GetItem(self, 0), NULL);
    if (!e) return NULL;
    const bool has_into = n > e->op->contract->n_inputs + e->op->contract->n_attrs;
    if (has_into) n--;
    tni_torch_frame frame;
    tni_torch_frame_init(&frame, e->op);
    verdict v = is_plain() ? read_all(&frame, args, n) : NOT_PLAIN;
    python_object *made = NULL;
    switch (v) {
    case PLAIN:
        if (e->over_in >= 0) frame.over = frame.in[e->over_in];
        made = has_into ? run_into(e, &frame, args, args[n]) : run(e, &frame, args, e->over < 0 ? NULL : args[e->over]);
        break;
    case NEEDS_GRAD: made = py.PyObject_Vectorcall(e->with_grad, args, (size_t)n, NULL); break;
    case NOT_PLAIN: made = py.PyObject_Vectorcall(e->general, args, (size_t)n, NULL); break;
    case FAILED: made = raise_status(TN_NO_MEMORY); break;
    }
    tni_torch_frame_free(&frame);
    return made;
}

/* Seeds that lie ready for a stream, as Python keeps them: the generator's seed, the number of the first, and a list
 * with None for those that are not there. */
static python_object *ready_seed(python_object *of_stream, uint64_t seed, int64_t number) {
    if (!of_stream || py.PyLong_AsUnsignedLongLongMask(py.PyTuple_GetItem(of_stream, 0)) != seed) return NULL;
    const int64_t place = number - py.PyLong_AsLongLong(py.PyTuple_GetItem(of_stream, 1));
    python_object *list = py.PyTuple_GetItem(of_stream, 2);
    if (place < 0 || place >= py.PySequence_Size(list)) return NULL;
    python_object *found = py.PyList_GetItem(list, (intptr_t)place);
    return found == py._Py_NoneStruct ? NULL : found;
}

/* take(source, count, always): the seed that belongs to where a generator stands, or, if it does not lie ready, that
 * place in steps of `count`; None where the call is not plain, unless `always`. The generator goes on by `count`:
 * between asking and setting no other thread of Python runs, as one might in Python itself. source: (the generator's
 * get_offset, set_offset and initial_seed, its GPU, {stream: what lies ready}). */
static python_object *take(python_object *self, python_object *const *args, intptr_t n) {
    (void)self, (void)n;
    void *stream = NULL;
    python_object *source = args[0], *made = NULL, *next = NULL, *none = NULL;
    const int64_t step = py.PyLong_AsLongLong(args[1]);
    const int32_t gpu = (int32_t)py.PyLong_AsLongLong(py.PyTuple_GetItem(source, 3));
    if ((args[2] != py._Py_TrueStruct && !is_plain()) || !tni_torch.aoti_torch_get_current_cuda_stream ||
        tni_torch.aoti_torch_get_current_cuda_stream(gpu, &stream)) {
        return wrap(NULL);
    }
    python_object *now = py.PyObject_Vectorcall(py.PyTuple_GetItem(source, 0), NULL, 0, NULL);
    python_object *seed = now ? py.PyObject_Vectorcall(py.PyTuple_GetItem(source, 2), NULL, 0, NULL) : NULL;
    if (!seed) { /* a stream that is captured */
        if (now) py.Py_DecRef(now);
        py.PyErr_Clear();
        return wrap(NULL);
    }
    const int64_t at = py.PyLong_AsLongLong(now);
    next = py.PyLong_FromLongLong(at + step);
    if (next) none = py.PyObject_Vectorcall(py.PyTuple_GetItem(source, 1), &next, 1, NULL);
    python_object *key = none ? py.PyLong_FromVoidPtr(stream) : NULL;
    if (key) {
        python_object *ready = py.PyDict_GetItem(py.PyTuple_GetItem(source, 4), key);
        made = ready_seed(ready, py.PyLong_AsUnsignedLongLongMask(seed), at / step);
        if (made) {
            py.Py_IncRef(made);
        } else {
            made = py.PyLong_FromLongLong(at / step);
        }
    }
    python_object *gone[] = {now, seed, next, none, key};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        if (gone[i]) py.Py_DecRef(gone[i]);
    }
    return made;
}

/* ---- for Python's ctypes, which holds the lock of the interpreter ------------------------------------------------ */

/* Once, before the functions below. The arguments are of torch: Tensor, Parameter, Tensor.is_neg, _increment_version,
 * the variables of torch.autograd.forward_ad and Tensor.__dlpack_c_exchange_api__. They are kept. */
TN_API tn_status tn_torch_direct_setup(python_object *tensor, python_object *parameter, python_object *is_neg,
                                       python_object *bump, python_object *forward_ad,
                                       python_object *exchange_capsule) {
    TN_TRY(tni_torch_load());
    if (!find_python() || !find_torch()) {
        return tn_fail(TN_UNSUPPORTED, "this Python or torch lacks what direct calls need");
    }
    py.exchange = py.PyCapsule_GetPointer(exchange_capsule, "dlpack_exchange_api");
    if (!py.exchange) py.PyErr_Clear();
    if (!py.exchange || py.exchange->major != 1 || !py.exchange->read) {
        return tn_fail(TN_UNSUPPORTED, "this torch has another version of DLPack's exchange table");
    }
    python_object *kept[] = {tensor, parameter, is_neg, bump, forward_ad, exchange_capsule};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) py.Py_IncRef(kept[i]);
    py.tensor = tensor;
    py.parameter = parameter;
    py.is_neg = is_neg;
    py.bump = bump;
    py.forward_ad = forward_ad;
    py.requires_grad = py.PyUnicode_InternFromString("requires_grad");
    py.current_level = py.PyUnicode_InternFromString("_current_level");
    n_states = 1; /* {0, 0} */
    return TN_OK;
}

/* Where tensors have their dispatch keys, as python/tenon/torch/_direct.py has found out; a key of 0: nobody knows. */
TN_API void tn_torch_direct_keys(int64_t torch_at, int64_t keys_at, uint64_t negative) {
    py.torch_at = torch_at;
    py.keys_at = keys_at;
    py.negative = negative;
}

/* Calls made in the state of dispatch that this thread is in now are plain, too. */
TN_API void tn_torch_direct_accept(void) {
    if (n_states == MOST_STATES) return;
    memcpy(states[n_states], thread_keys(), sizeof states[0]);
    n_states++;
}

/* Whether a call from here would be plain, as far as that does not depend on its arguments. */
TN_API bool tn_torch_direct_plain(void) {
    return is_plain();
}

/* The place of parameter k, a tensor, among the tensors of a call; -1 where that differs from call to call. */
static int32_t tensor_place(const tni_contract *c, int32_t k) {
    int32_t place = 0;
    for (int32_t i = 0; i < c->n_order && i < k; i++) {
        if (c->order[i].is_attr) continue;
        if (c->inputs[c->order[i].index].list) return -1;
        place++;
    }
    return k < 0 ? -1 : place;
}

/* What a function has as its self: (entry, [with_grad, general]). The list is what holds the two, so that Python's
 * collector sees them: most come back to the function itself. */
static entry *entry_of(python_object *self) {
    return py.PyCapsule_GetPointer(py.PyTuple_GetItem(self, 0), NULL);
}

static void free_entry(python_object *capsule) {
    tni_free(py.PyCapsule_GetPointer(capsule, NULL));
}

/* Takes the entry. */
static python_object *make_self(entry *e, python_object *held) {
    python_object *capsule = py.PyCapsule_New(e, NULL, free_entry);
    if (!capsule) tni_free(e);
    python_object *self = capsule ? py.PyTuple_New(2) : NULL;
    if (!self) {
        if (capsule) py.Py_DecRef(capsule);
        return NULL;
    }
    py.Py_IncRef(held);
    py.PyTuple_SetItem(self, 0, capsule); /* takes it */
    py.PyTuple_SetItem(self, 1, held);
    return self;
}

/* A Python function that takes all parameters of the operator's schema by position and, if the caller likes, a tensor
 * for the first output: it is what is returned where that could be written directly, a new one is where not. `held`: a
 * list of what calls go to that must be recorded, and all others; it holds the operator, too. `shown`: the outputs to
 * return, a bit for each; `all`: always a tuple of those (or the one), with None for absent ones; `over`: the
 * parameter, a tensor, whose memory the first output takes over in a plain call, or -1. NULL and a message: failed. */
TN_API python_object *tn_torch_direct(const tn_function *op, python_object *held, uint64_t shown, bool all,
                                      int32_t over) {
    static const method called = {"call", call, METH_FASTCALL, NULL};
    entry *e = tni_malloc(sizeof *e);
    if (!e) return NULL;
    *e = (entry){.op = op, .shown = shown, .all = all, .over = over};
    e->with_grad = py.PyList_GetItem(held, 0);
    e->general = py.PyList_GetItem(held, 1);
    e->over_in = tensor_place(op->contract, over);
    for (int32_t i = 0; i < op->contract->n_inputs; i++) e->mutates |= op->contract->inputs[i].inplace;
    python_object *self = make_self(e, held);
    python_object *function = self ? py.PyCFunction_NewEx((void *)&called, self, NULL) : NULL;
    if (self) py.Py_DecRef(self);
    if (!function) {
        py.PyErr_Clear();
        tn_fail(TN_NO_MEMORY, "%s: Python could not make a function", op->contract->name);
    }
    return function;
}

/* Reads again what a function that was made above holds: calls that must be recorded go elsewhere from now on. */
TN_API void tn_torch_direct_changed(python_object *function) {
    python_object *self = py.PyCFunction_GetSelf(function);
    entry_of(self)->with_grad = py.PyList_GetItem(py.PyTuple_GetItem(self, 1), 0);
}

/* take, see above, as a Python function. */
TN_API python_object *tn_torch_take(void) {
    static const method called = {"take", take, METH_FASTCALL, NULL};
    return py.PyCFunction_NewEx((void *)&called, NULL, NULL);
}
