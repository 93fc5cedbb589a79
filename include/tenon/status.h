/* How Tenon says that something failed. There is one style:
 *
 *   - A function that can fail returns a tn_status: TN_OK, or what kind of failure it was.
 *   - The few that return a pointer instead (tn_find, tn_function_at, the JSON functions …) return NULL.
 *   - Either way a sentence for the user is in tn_last_error(), on the thread that made the call.
 *   - Outputs of a function that failed have no meaning; nothing needs to be given back.
 *
 * A type that does not exist is an answer, not a failure: tn_type_named and tn_type_from_dlpack return TN_NO_TYPE.
 *
 * Unless a function says otherwise, it may be called from any thread, from many at once, and it keeps no pointer that
 * it is given: strings, structs and arrays may go when it returns. The library never prints, exits or aborts. */
#ifndef TENON_STATUS_H
#define TENON_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TN_API __attribute__((visibility("default")))
#define TN_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#else
#define TN_API
#define TN_PRINTF(fmt, arg)
#endif

/* X(name, what a person reads) */
#define TN_STATUSES(X)                                                  \
    X(OK, "ok")                                                         \
    X(BAD_VALUE, "an argument has a wrong value")                       \
    X(BAD_TYPE, "an argument has a wrong type")                         \
    X(BAD_SHAPE, "a tensor has a wrong shape")                          \
    X(BAD_DEVICE, "a tensor is on the wrong device")                    \
    X(BAD_CONTRACT, "an operator's contract or gradient rule is wrong") \
    X(BAD_PLUGIN, "a plugin cannot be used")                            \
    X(NOT_FOUND, "there is no such operator")                           \
    X(UNSUPPORTED, "no kernel does this")                               \
    X(NO_MEMORY, "out of memory")                                       \
    X(SYSTEM, "the operating system or a driver refused")

typedef enum tn_status {
#define TN_STATUS_ENUM(name, text) TN_##name,
    TN_STATUSES(TN_STATUS_ENUM)
#undef TN_STATUS_ENUM
} tn_status;

/* Both are constants of the library: nobody frees them. */
TN_API const char *tn_status_name(tn_status status); /* "BAD_SHAPE" */
TN_API const char *tn_status_text(tn_status status); /* "a tensor has a wrong shape" */

/* The message of this thread's last failure; "" when there was none. A call that succeeds leaves it as it is. The
 * memory is the library's, and the text stays until the next failure on this thread. */
TN_API const char *tn_last_error(void);

/* Writes this thread's message and returns `status`: `return tn_fail(TN_BAD_SHAPE, "softmax: …", …);` For kernels and
 * other code that reports failures in Tenon's way. */
TN_API tn_status tn_fail(tn_status status, const char *format, ...) TN_PRINTF(2, 3);

/* Passes a failure on to the caller. */
#define TN_TRY(expression)                                \
    do {                                                  \
        tn_status tn_try_status = (expression);           \
        if (tn_try_status != TN_OK) return tn_try_status; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
