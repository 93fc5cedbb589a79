/* Loops over integers and truth values, conversions, memory of every type, random numbers. */
#include <math.h>
#include <string.h>

#include "block_loops.h"
#include "core/layout/layout.h"
#include "cpu/isa.h"
#include "cpu/vec/variants.h"

/* ---- the sets of this machine ------------------------------------------------------------------------------------ */

#define DECLARE(isa, needs, none)                       \
    extern const tni_real_loops fuse_loops_##isa##_f32; \
    extern const tni_real_loops fuse_loops_##isa##_f64; \
    extern const tni_pair_loops fuse_pairs_##isa##_f32; \
    extern const tni_pair_loops fuse_pairs_##isa##_f64;
TNI_VARIANTS(DECLARE, )

static const struct {
    const char *name;
    uint32_t needs;
    const tni_real_loops *f32, *f64;
    const tni_pair_loops *pairs_f32, *pairs_f64;
} variants[] = {
#define ROW(isa, needs, none) \
    {#isa, needs, &fuse_loops_##isa##_f32, &fuse_loops_##isa##_f64, &fuse_pairs_##isa##_f32, &fuse_pairs_##isa##_f64},
    TNI_VARIANTS(ROW, )};

static size_t best(void) {
    size_t i = 0;
    while (variants[i].needs & ~tni_cpu_isa()) i++; /* the last one needs nothing */
    return i;
}

const tni_real_loops *tni_real_loops_of(int lane) {
    return lane == TNI_LANE_F64 ? variants[best()].f64 : variants[best()].f32;
}

const char *tni_loops_isa(void) {
    return variants[best()].name;
}

tni_loop tni_pair_loop(int lane, int first, int second, bool relu) {
    const tni_pair_loops *pairs = lane == TNI_LANE_F64 ? variants[best()].pairs_f64 : variants[best()].pairs_f32;
    return pairs->loop[first][second][relu];
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

#define WHERE(type)                                                                                   \
    const uint8_t *c = arg[0];                                                                        \
    const type *a = arg[1], *b = arg[2];                                                              \
    type *y = out;                                                                                    \
    const int64_t by_c = scalars & 1 ? 0 : 1, by_a = scalars & 2 ? 0 : 1, by_b = scalars & 4 ? 0 : 1; \
    for (int64_t i = 0; i < n; i++) y[i] = c[by_c * i] ? a[by_a * i] : b[by_b * i];

/* Arithmetic wraps around, as the hardware's does. */
static int64_t wrap_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static int64_t wrap_sub(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static int64_t wrap_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* With the sign of b; 0 where b is. */
static int64_t modulo(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t power(int64_t a, int64_t b) {
    uint64_t made = 1, square = (uint64_t)a;
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b > 0; b /= 2, square *= square) made *= b % 2 ? square : 1;
    return (int64_t)made;
}

static int64_t shift_left(int64_t a, int64_t b) {
    return (uint64_t)b < 64 ? (int64_t)((uint64_t)a << b) : 0;
}
static int64_t shift_right(int64_t a, int64_t b) {
    return a >> ((uint64_t)b < 64 ? b : 63);
}

/* By the reference, which has numbers of 53 bits. */
static void by_reference(int op, const void *const *arg, unsigned scalars, int64_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double v[3] = {0};
        for (int k = 0; k < tni_prims[op].arity; k++)
            v[k] = (double)((const int64_t *)arg[k])[scalars >> k & 1 ? 0 : i];
        y[i] = tni_whole(tni_prims[op].eval(v[0], v[1], v[2]));
    }
}

#define INT_INTEGER(expression) TNI_UNARY_LOOP(int64_t, expression)
#define INT_INTEGER_2(expression) TNI_BINARY_LOOP(int64_t, int64_t, expression)
#define INT_TEST(op) TNI_BINARY_LOOP(int64_t, uint8_t, a op b)
#define INT_CHOICE WHERE(int64_t)
#define INT_REFERENCE by_reference(op_of_this, arg, scalars, out, n);
#define INT_NONE
#define PRIMITIVE(id, value, real, whole, ...)                                             \
    static void int_##id(const void *const *arg, unsigned scalars, void *out, int64_t n) { \
        const int op_of_this = TNI_P_##id;                                                 \
        (void)op_of_this, (void)arg, (void)scalars, (void)out, (void)n;                    \
        INT_##whole                                                                        \
    }
#include "fuse/graph/primitive_list.h"

/* ---- truth values ------------------------------------------------------------------------------------------------ */

#define BOOL_TRUTH(expression) TNI_UNARY_LOOP(uint8_t, expression)
#define BOOL_TRUTH_2(expression) TNI_BINARY_LOOP(uint8_t, uint8_t, expression)
#define BOOL_CHOICE WHERE(uint8_t)
#define BOOL_NONE
#define PRIMITIVE(id, value, real, whole, truth, ...)                                       \
    static void bool_##id(const void *const *arg, unsigned scalars, void *out, int64_t n) { \
        (void)arg, (void)scalars, (void)out, (void)n;                                       \
        BOOL_##truth                                                                        \
    }
#include "fuse/graph/primitive_list.h"

/* ---- all of them ------------------------------------------------------------------------------------------------- */

tni_loop tni_loop_of(int lane, int op) {
#define PRIMITIVE(id, value, real, whole, ...) [TNI_P_##id] = TNI_HAS_##whole ? int_##id : NULL,
    static const tni_loop ints[TNI_PRIMS] = {
#include "fuse/graph/primitive_list.h"
    };
#define PRIMITIVE(id, value, real, whole, truth, ...) [TNI_P_##id] = TNI_HAS_##truth ? bool_##id : NULL,
    static const tni_loop bools[TNI_PRIMS] = {
#include "fuse/graph/primitive_list.h"
    };
    if (lane == TNI_LANE_BOOL) return bools[op];
    return lane == TNI_LANE_INT ? ints[op] : tni_real_loops_of(lane)->op[op];
}

/* ---- from lane to lane ------------------------------------------------------------------------------------------- */

#define CONVERT(name, from, to, expression)                                                      \
    static void convert_##name(const void *const *arg, unsigned scalars, void *out, int64_t n) { \
        const from *x = arg[0];                                                                  \
        to *y = out;                                                                             \
        (void)scalars;                                                                           \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) {                                              \
            const from a = x[i];                                                                 \
            y[i] = (to)(expression);                                                             \
        }                                                                                        \
    }
CONVERT(bool_int, uint8_t, int64_t, a)
CONVERT(bool_f32, uint8_t, float, a)
CONVERT(bool_f64, uint8_t, double, a)
CONVERT(int_bool, int64_t, uint8_t, a != 0)
CONVERT(int_f32, int64_t, float, a)
CONVERT(int_f64, int64_t, double, a)
CONVERT(f32_bool, float, uint8_t, a != 0)
CONVERT(f32_int, float, int64_t, tni_whole(a))
CONVERT(f32_f64, float, double, a)
CONVERT(f64_bool, double, uint8_t, a != 0)
CONVERT(f64_int, double, int64_t, tni_whole(a))
CONVERT(f64_f32, double, float, a)

tni_loop tni_convert_loop(int from, int to) {
    static const tni_loop loops[TNI_LANES][TNI_LANES] = {
        {NULL, convert_bool_int, convert_bool_f32, convert_bool_f64},
        {convert_int_bool, NULL, convert_int_f32, convert_int_f64},
        {convert_f32_bool, convert_f32_int, NULL, convert_f32_f64},
        {convert_f64_bool, convert_f64_int, convert_f64_f32, NULL},
    };
    return loops[from][to];
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define INTEGERS(X)     \
    X(TN_I8, int8_t)    \
    X(TN_U8, uint8_t)   \
    X(TN_I16, int16_t)  \
    X(TN_U16, uint16_t) \
    X(TN_I32, int32_t)  \
    X(TN_U32, uint32_t) \
    X(TN_I64, int64_t)

/* Integers become a lane's type, `by`; false: these are none. */
#define LOAD_INTEGERS(lane, to_type, by)                                              \
    static bool load_##lane(tn_type type, const void *from, to_type *to, int64_t n) { \
        typedef to_type lane_type;                                                    \
        switch (type) { INTEGERS(by) default : return false; }                        \
        return true;                                                                  \
    }
#define AS_IT_IS(name, of)                                                 \
    case name: {                                                           \
        const of *x = from;                                                \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) to[i] = (lane_type)x[i]; \
    } break;
#define BY_DOUBLE(name, of)                                                        \
    case name: {                                                                   \
        const of *x = from;                                                        \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) to[i] = (lane_type)(double)x[i]; \
    } break;
LOAD_INTEGERS(int, int64_t, AS_IT_IS)
LOAD_INTEGERS(f32, float, BY_DOUBLE)
LOAD_INTEGERS(f64, double, BY_DOUBLE)

/* Integers wrap around. */
#define STORE_INTEGERS(lane, from_type, whole)                                        \
    static bool store_##lane(tn_type type, const from_type *x, void *to, int64_t n) { \
        switch (type) { INTEGERS(whole) default : return false; }                     \
        return true;                                                                  \
    }
#define WRAPPED(name, of)                                          \
    case name: {                                                   \
        of *y = to;                                                \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) y[i] = (of)x[i]; \
    } break;
#define CUT_OFF(name, of)                                                     \
    case name: {                                                              \
        of *y = to;                                                           \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) y[i] = (of)tni_whole(x[i]); \
    } break;
STORE_INTEGERS(int, int64_t, WRAPPED)
STORE_INTEGERS(f32, float, CUT_OFF)
STORE_INTEGERS(f64, double, CUT_OFF)

/* Elements next to each other. */
static void load_dense(int lane, tn_type type, const void *from, void *to, int64_t n) {
    const uint8_t *truths = from;
    uint8_t *made = to;
    switch (lane) {
    case TNI_LANE_BOOL: TNI_IVDEP for (int64_t i = 0; i < n; i++) made[i] = truths[i] != 0; return;
    case TNI_LANE_INT:
        if (load_int(type, from, to, n)) return;
        break;
    default:
        if (TN_BIT(type) & TN_FLOATS) {
            tni_real_loops_of(lane)->load(type, from, to, n);
            return;
        }
        if (lane == TNI_LANE_F32 ? load_f32(type, from, to, n) : load_f64(type, from, to, n)) return;
    }
    for (int64_t i = 0; i < n; i++) tn_set(tni_lane_type(lane), to, i, tn_get(type, from, i));
}

static void store_dense(int lane, tn_type type, const void *from, void *to, int64_t n) {
    switch (lane) {
    case TNI_LANE_BOOL: memcpy(to, from, (size_t)n); return;
    case TNI_LANE_INT:
        if (store_int(type, from, to, n)) return;
        break;
    default:
        if (TN_BIT(type) & TN_FLOATS) {
            tni_real_loops_of(lane)->store(type, from, to, n);
            return;
        }
        if (lane == TNI_LANE_F32 ? store_f32(type, from, to, n) : store_f64(type, from, to, n)) return;
    }
    for (int64_t i = 0; i < n; i++) tn_set(type, to, i, tn_get(tni_lane_type(lane), from, i));
}

/* Elements `step` apart, to or from a place where they are next to each other: words of any type, wherever they lie. */
#define COPY_APART(bytes)                                                             \
    typedef uint##bytes##_t word##bytes __attribute__((may_alias, aligned(1)));       \
    static void gather##bytes(const void *from, int64_t step, void *to, int64_t n) {  \
        const word##bytes *x = from;                                                  \
        word##bytes *y = to;                                                          \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) y[i] = x[i * step];                 \
    }                                                                                 \
    static void scatter##bytes(const void *from, void *to, int64_t step, int64_t n) { \
        const word##bytes *x = from;                                                  \
        word##bytes *y = to;                                                          \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) y[i * step] = x[i];                 \
    }
COPY_APART(8)
COPY_APART(16)
COPY_APART(32)
COPY_APART(64)

static void gather(size_t size, const void *from, int64_t step, void *to, int64_t n) {
    switch (size) {
    case 1: gather8(from, step, to, n); break;
    case 2: gather16(from, step, to, n); break;
    case 4: gather32(from, step, to, n); break;
    default: gather64(from, step, to, n); break;
    }
}

static void scatter(size_t size, const void *from, void *to, int64_t step, int64_t n) {
    switch (size) {
    case 1: scatter8(from, to, step, n); break;
    case 2: scatter16(from, to, step, n); break;
    case 4: scatter32(from, to, step, n); break;
    default: scatter64(from, to, step, n); break;
    }
}

/* Memory of this type has values as the lane does. */
static bool is_native(int lane, tn_type type) {
    return type == tni_lane_type(lane) && lane != TNI_LANE_BOOL; /* any byte but 0 is true */
}

enum { CHUNK = 256 };

void tni_load_values(int lane, tn_type type, const void *from, int64_t step, void *to, int64_t n) {
    int64_t size = (int64_t)tn_type_size(type), wide = tni_lane_size(lane);
    char chunk[CHUNK * 8];
    if (step == 1) {
        load_dense(lane, type, from, to, n);
        return;
    }
    if (is_native(lane, type)) {
        gather((size_t)size, from, step, to, n);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t some = n - i < CHUNK ? n - i : CHUNK;
        gather((size_t)size, (const char *)from + i * step * size, step, chunk, some);
        load_dense(lane, type, chunk, (char *)to + i * wide, some);
    }
}

void tni_store_values(int lane, tn_type type, const void *from, void *to, int64_t step, int64_t n) {
    int64_t size = (int64_t)tn_type_size(type), wide = tni_lane_size(lane);
    char chunk[CHUNK * 8];
    if (step == 1) {
        store_dense(lane, type, from, to, n);
        return;
    }
    if (is_native(lane, type)) {
        scatter((size_t)size, from, to, step, n);
        return;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t some = n - i < CHUNK ? n - i : CHUNK;
        store_dense(lane, type, (const char *)from + i * wide, chunk, some);
        scatter((size_t)size, chunk, (char *)to + i * step * size, step, some);
    }
}

void tni_round_values(tn_type type, int lane, void *x, int64_t n) {
    char chunk[CHUNK * 8];
    int64_t wide = tni_lane_size(lane);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t some = n - i < CHUNK ? n - i : CHUNK;
        store_dense(lane, type, (char *)x + i * wide, chunk, some);
        load_dense(lane, type, chunk, (char *)x + i * wide, some);
    }
}
