/* A tn_status becomes the Python exception that a user expects. torch's stable interface can raise RuntimeError only;
 * the others are made the way torch's own code makes them, which is outside of what it promises to keep: where a symbol
 * is missing, or the compiler's exception interface is another, it is a RuntimeError with the same words. */
#include <string.h>

#include "torch.h"

/* Which exception, by status. What is not listed is a RuntimeError. X(status, vtable, type information) */
#define EXCEPTIONS(X)                                                   \
    X(TN_BAD_VALUE, "_ZTVN3c1010ValueErrorE", "_ZTIN3c1010ValueErrorE") \
    X(TN_BAD_SHAPE, "_ZTVN3c1010ValueErrorE", "_ZTIN3c1010ValueErrorE") \
    X(TN_BAD_TYPE, "_ZTVN3c109TypeErrorE", "_ZTIN3c109TypeErrorE")      \
    X(TN_UNSUPPORTED, "_ZTVN3c1019NotImplementedErrorE", "_ZTIN3c1019NotImplementedErrorE")

typedef struct exception_names {
    tn_status status;
    const char *vtable, *type;
} exception_names;

static const exception_names names[] = {
#define NAMES(status, vtable, type) {status, vtable, type},
    EXCEPTIONS(NAMES)
#undef NAMES
};

enum { ERROR_BYTES = 512 }; /* c10::Error has 128 */

typedef struct source_location { /* c10::SourceLocation */
    const char *function, *file;
    uint32_t line;
} source_location;

typedef struct cxx_string { /* std::string of libstdc++ */
    char *data;
    size_t length;
    union {
        char local[16];
        size_t capacity;
    };
} cxx_string;

typedef struct cxx {
    void *(*allocate)(size_t bytes);
    void (*throw)(void *exception, void *type, void (*destroy)(void *)) __attribute__((noreturn));
    void (*construct)(void *error, source_location where, cxx_string *message); /* c10::Error(SourceLocation, string) */
} cxx;

static bool find_cxx(cxx *c) {
    *(void **)&c->allocate = tni_torch_symbol("__cxa_allocate_exception");
    *(void **)&c->throw = tni_torch_symbol("__cxa_throw");
    *(void **)&c->construct = tni_torch_symbol(
        "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
    return c->allocate && c->throw &&c->construct && tni_torch.new_memory && tni_torch.delete_memory;
}

/* Throws a c10::Error with the vtable of the wanted class; its layout is the base's. Returns where that cannot be done.
 */
static void throw_as(const exception_names *exception, const char *message) {
    cxx c;
    if (!find_cxx(&c)) return;
    void **vtable = tni_torch_symbol(exception->vtable);
    void *type = tni_torch_symbol(exception->type);
    if (!vtable || !type) return;
    vtable += 2; /* behind the offset to the top and the type */
    void (*destroy)(void *);
    memcpy(&destroy, vtable, sizeof destroy);

    size_t length = strlen(message);
    cxx_string text = {.data = tni_torch.new_memory(length + 1), .length = length, .capacity = length};
    memcpy(text.data, message, length + 1);
    void *error = c.allocate(ERROR_BYTES);
    memset(error, 0, ERROR_BYTES);
    c.construct(error, (source_location){"tenon", "tenon", 0}, &text); /* takes the text's memory, most likely */
    if (text.data != text.local) tni_torch.delete_memory(text.data);
    *(void ***)error = vtable;
    c.throw(error, type, destroy);
}

_Noreturn void tni_torch_raise(tn_status status) {
    const char *message = tn_last_error();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].status == status) throw_as(&names[i], message);
    }
    tni_torch.aoti_torch_check(false, "tenon", "tenon", 0, message);
    __builtin_unreachable();
}
