/* Loops over blocks of floating values, one set for each instruction set and precision. Each does one primitive; the
 * values of a block stay in the first-level cache between them. */
#include "block_loops.h"
#include "cpu/short_rows.h"
#include "cpu/vec/vec.h"
#include "functions.h"

/* ---- one argument ------------------------------------------------------------------------------------------------ */

TNI_INLINE void apply(vreal (*f)(vreal), const void *x, void *y, int64_t n) {
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal made[4];
        for (int k = 0; k < 4; k++) made[k] = f(v_load(V_NATIVE, x, i + k * VL));
        for (int k = 0; k < 4; k++) v_store(V_NATIVE, y, i + k * VL, made[k]);
    }
    for (; i + VL <= n; i += VL) v_store(V_NATIVE, y, i, f(v_load(V_NATIVE, x, i)));
    if (i < n) v_store_n(V_NATIVE, y, i, n - i, f(v_load_n(V_NATIVE, x, i, n - i, 0)));
}

/* Four vectors at a time: for what takes less time than the loop around it would. */
TNI_INLINE void apply_two(vreal (*f)(vreal, vreal), const real *p, const bool one_p, const real *q, const bool one_q,
                          real *y, int64_t n) {
    const vreal u = v_set(p[0]), v = v_set(q[0]);
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal made[4];
        for (int k = 0; k < 4; k++) {
            int64_t at = i + k * VL;
            made[k] = f(one_p ? u : v_load(V_NATIVE, p, at), one_q ? v : v_load(V_NATIVE, q, at));
        }
        for (int k = 0; k < 4; k++) v_store(V_NATIVE, y, i + k * VL, made[k]);
    }
    for (int64_t left = n - i; left > 0; i += VL, left -= VL) {
        const int64_t count = left < VL ? left : VL;
        const vreal a = one_p ? u : v_load_n(V_NATIVE, p, i, count, 1),
                    b = one_q ? v : v_load_n(V_NATIVE, q, i, count, 1);
        v_store_n(V_NATIVE, y, i, count, f(a, b));
    }
}

/* x[i], or x[0] for every i */
TNI_INLINE real at(const real *x, int64_t i, const bool single) {
    return single ? x[0] : x[i];
}

TNI_INLINE void choose(const uint8_t *c, const real *a, const bool one_a, const real *b, const bool one_b, real *y,
                       int64_t n) {
    const real u = one_a ? a[0] : 0, v = one_b ? b[0] : 0;
    TNI_IVDEP for (int64_t i = 0; i < n; i++) {
        const real yes = one_a ? u : a[i], no = one_b ? v : b[i];
        y[i] = c[i] ? yes : no;
    }
}

static void choose_each(const void *const *arg, unsigned scalars, void *out, int64_t n) {
    const uint8_t *c = arg[0];
    const real *a = arg[1], *b = arg[2];
    real *y = out;
    if (scalars & 1) { /* one side, all of it */
        const real *x = c[0] ? a : b;
        const bool single = scalars & (c[0] ? 2 : 4);
        for (int64_t i = 0; i < n; i++) y[i] = at(x, i, single);
    } else if (scalars == 0) {
        choose(c, a, false, b, false, y, n);
    } else if (scalars == 2) {
        choose(c, a, true, b, false, y, n);
    } else if (scalars == 4) {
        choose(c, a, false, b, true, y, n);
    } else {
        choose(c, a, true, b, true, y, n);
    }
}

/* ---- all primitives ---------------------------------------------------------------------------------------------- */

#if defined(TNI_REAL_f32)
#define F(name) name##f
#else
#define F(name) name
#endif

/* With the sign of b, as in Python. */
TNI_INLINE real modulo(real a, real b) {
    real r = F(fmod)(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* One element after the other, in double. */
static void by_reference(int op, const void *const *arg, unsigned scalars, real *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double v[3] = {0};
        for (int k = 0; k < tni_prims[op].arity; k++) v[k] = (double)((const real *)arg[k])[scalars >> k & 1 ? 0 : i];
        y[i] = (real)tni_prims[op].eval(v[0], v[1], v[2]);
    }
}

#define LOOP_VECTOR(f) apply(f_##f, arg[0], out, n);

#define LOOP_VECTOR_2(f)                                        \
    if (n == 0) return;                                         \
    if (scalars == 1) {                                         \
        apply_two(f_##f, arg[0], true, arg[1], false, out, n);  \
    } else if (scalars == 2) {                                  \
        apply_two(f_##f, arg[0], false, arg[1], true, out, n);  \
    } else {                                                    \
        apply_two(f_##f, arg[0], false, arg[1], false, out, n); \
    }

#define LOOP_SCALAR(expression) TNI_UNARY_LOOP(real, expression)
#define LOOP_SCALAR_2(expression) TNI_BINARY_LOOP(real, real, expression)
#define LOOP_TEST(op) TNI_BINARY_LOOP(real, uint8_t, a op b)
#define LOOP_CHOICE choose_each(arg, scalars, out, n);
#define LOOP_REFERENCE by_reference(op_of_this, arg, scalars, out, n);
#define LOOP_NONE
#define PRIMITIVE(id, value, real, ...)                                                     \
    static void loop_##id(const void *const *arg, unsigned scalars, void *out, int64_t n) { \
        const int op_of_this = TNI_P_##id;                                                  \
        (void)op_of_this, (void)arg, (void)scalars, (void)out, (void)n;                     \
        LOOP_##real                                                                         \
    }
#include "fuse/graph/primitive_list.h"

#if defined(TNI_REAL_f32)
#define LOOP_COARSE(f) apply(f_##f, arg[0], out, n);
#define TNI_HAS_COARSE(f) 1
#else
#define LOOP_COARSE(f)
#define TNI_HAS_COARSE(f) 0
#endif
#define PRIMITIVE(id, value, real, whole, truth, quick, ...)                                  \
    static void coarse_##id(const void *const *arg, unsigned scalars, void *out, int64_t n) { \
        (void)arg, (void)scalars, (void)out, (void)n;                                         \
        LOOP_##quick                                                                          \
    }
#include "fuse/graph/primitive_list.h"

/* ---- reductions -------------------------------------------------------------------------------------------------- */

enum { SUM_BLOCK = 32 * VL }; /* elements that are added in `real`; the sums of those are added in double */

/* a + x, or a + x y */
TNI_INLINE vreal add_one(vreal a, const real *x, const real *y, int64_t i) {
    return y ? v_fma(v_load(V_NATIVE, x, i), v_load(V_NATIVE, y, i), a) : a + v_load(V_NATIVE, x, i);
}

TNI_INLINE real sum_block(const real *x, const real *y, int64_t n) {
    vreal sum[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) sum[k] = add_one(sum[k], x, y, i + k * VL);
    }
    for (; i + VL <= n; i += VL) sum[0] = add_one(sum[0], x, y, i);
    if (i < n) {
        vreal last = v_load_n(V_NATIVE, x, i, n - i, 0);
        sum[1] = y ? v_fma(last, v_load_n(V_NATIVE, y, i, n - i, 0), sum[1]) : sum[1] + last;
    }
    return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

TNI_INLINE double sum_all(const real *x, const real *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += SUM_BLOCK)
        sum += (double)sum_block(x + i, y ? y + i : NULL, n - i < SUM_BLOCK ? n - i : SUM_BLOCK);
    return sum;
}

static double sum_of(const void *x, int64_t n) {
    return sum_all(x, NULL, n);
}

static double dot_of(const void *x, const void *y, int64_t n) {
    return sum_all(x, y, n);
}

/* The largest of sign * x; NaN where there is one. */
TNI_INLINE real most_of(const real *x, int64_t n, const real sign) {
    const real none = -(real)INFINITY;
    vreal most[4] = {v_set(none), v_set(none), v_set(none), v_set(none)};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) most[k] = v_max(most[k], v_load(V_NATIVE, x, i + k * VL) * sign);
    }
    for (; i < n; i += VL) {
        int64_t left = n - i < VL ? n - i : VL;
        most[0] = v_max(most[0], v_load_n(V_NATIVE, x, i, left, sign * none) * sign);
    }
    return sign * v_hmax(v_max(v_max(most[0], most[1]), v_max(most[2], most[3])));
}

enum { PRODUCTS = 32 }; /* of a row, made side by side: a multiplication waits for the one before it */

/* In double: what is too large or too small for `real` on the way is not for the result. */
TNI_INLINE double few_product(const real *x, int64_t n) {
    double made[4] = {1, 1, 1, 1};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int k = 0; k < 4; k++) made[k] *= (double)x[i + k];
    }
    for (; i < n; i++) made[i & 3] *= (double)x[i];
    return (made[0] * made[1]) * (made[2] * made[3]);
}

static double prod_of(const void *p, int64_t n) {
    const real *x = p;
    if (n < 2 * PRODUCTS) return few_product(x, n);
    double made[PRODUCTS];
    for (int k = 0; k < PRODUCTS; k++) made[k] = (double)x[k];
    int64_t i = PRODUCTS;
    for (; i + PRODUCTS <= n; i += PRODUCTS) {
        TNI_IVDEP for (int k = 0; k < PRODUCTS; k++) made[k] *= (double)x[i + k];
    }
    for (int width = PRODUCTS / 2; width >= 4; width /= 2) {
        for (int k = 0; k < width; k++) made[k] *= made[k + width];
    }
    return (made[0] * made[1]) * (made[2] * made[3]) * few_product(x + i, n - i);
}

static double max_of(const void *x, int64_t n) {
    return (double)most_of(x, n, 1);
}

static double min_of(const void *x, int64_t n) {
    return (double)most_of(x, n, -1);
}

/* ---- the same for a block of rows that lie behind each other ----------------------------------------------------- */

/* Longer ones are compiled as loops of their own, which go as sum_all and most_of do. */
TNI_INLINE bool is_short(int64_t n) {
    return n <= SHORT && n < TNI_LONG_ROW;
}

/* sum + x y of the row's last vector. Where it is not whole, it is a sum of its own, as in sum_block. Chosen by a mask:
 * behind a branch the product and the sum would not become one operation. */
TNI_INLINE vreal add_last(vreal sum, vreal x, vreal y, vint whole) {
    const vreal none = v_set(0);
    return v_fma(x, y, v_select(whole, sum, none)) + v_select(whole, none, sum);
}

TNI_INLINE void sum_each(const real *x, const real *y, int64_t rows, int64_t n, real *sums) {
    const short_rows s = short_rows_of(rows, n, n, 0);
    const vint whole = v_seti(n % VL == 0 ? -1 : 0);
    for (int64_t r = 0; r < rows && is_short(n); r++) {
        vreal sum = {0};
        for (int k = 0; k < s.whole; k++) sum = add_one(sum, x, y, r * n + k * VL);
        const vreal last = short_last(V_NATIVE, &s, x, r);
        sums[r] = v_sum(y ? add_last(sum, last, short_last(V_NATIVE, &s, y, r), whole) : sum + last);
    }
    for (int64_t r = 0; r < rows && !is_short(n); r++) sums[r] = (real)sum_all(x + r * n, y ? y + r * n : NULL, n);
}

static void sum_rows(const void *x, const void *y, int64_t rows, int64_t n, void *sums) {
    if (y)
        sum_each(x, y, rows, n, sums);
    else
        sum_each(x, NULL, rows, n, sums);
}

TNI_INLINE void most_each(const real *x, int64_t rows, int64_t n, const real sign, real *most) {
    const short_rows s = short_rows_of(rows, n, n, -sign * (real)INFINITY);
    for (int64_t r = 0; r < rows && is_short(n); r++) {
        vreal all = v_set(-(real)INFINITY);
        for (int k = 0; k < s.whole; k++) all = v_max(all, v_load(V_NATIVE, x, r * n + k * VL) * sign);
        most[r] = sign * v_hmax(v_max(all, short_last(V_NATIVE, &s, x, r) * sign));
    }
    for (int64_t r = 0; r < rows && !is_short(n); r++) most[r] = most_of(x + r * n, n, sign);
}

static void max_rows(const void *x, int64_t rows, int64_t n, void *most) {
    most_each(x, rows, n, 1, most);
}

static void min_rows(const void *x, int64_t rows, int64_t n, void *least) {
    most_each(x, rows, n, -1, least);
}

static void prod_rows(const void *p, int64_t rows, int64_t n, void *products) {
    const real *x = p;
    real *made = products;
    for (int64_t r = 0; r < rows; r++)
        made[r] = (real)(n < PRODUCTS ? few_product(x + r * n, n) : prod_of(x + r * n, n));
}

/* Rows of so many vectors, of which the last one may reach into rows behind, whose own come later: as many of the rows
 * as there is room for. Returns how many that are. */
TNI_INLINE int64_t expand_vectors(const real *x, real *y, int64_t rows, int64_t n, const int vectors) {
    const int64_t room = rows * n - vectors * VL, done = room < 0 ? 0 : room / n + 1;
    for (int64_t r = 0; r < done; r++) {
        const vreal a = v_set(x[r]);
        for (int k = 0; k < vectors; k++) v_store(V_NATIVE, y, r * n + k * VL, a);
    }
    return done;
}

static int64_t expand_short(const real *x, real *y, int64_t rows, int64_t n) {
    if (n <= 0 || n > SHORT) return 0;
    if (n <= VL) return expand_vectors(x, y, rows, n, 1);
    if (n <= 2 * VL) return expand_vectors(x, y, rows, n, 2);
    return n <= 3 * VL ? expand_vectors(x, y, rows, n, 3) : expand_vectors(x, y, rows, n, 4);
}

static void expand_rows(const void *from, void *to, int64_t rows, int64_t n) {
    const real *x = from;
    real *y = to;
    for (int64_t r = expand_short(x, y, rows, n); r < rows; r++) {
        const vreal a = v_set(x[r]);
        int64_t left = (rows - r) * n, i = 0;
        for (; i < n && left - i >= VL; i += VL) v_store(V_NATIVE, y, r * n + i, a);
        for (; i < n; i++) y[r * n + i] = x[r];
    }
}

enum { COLUMN_GROUP = 64 }; /* rows whose columns are added up in `real`, by four sums each */

/* sums[c] += column c of the rows. */
static void add_columns(double *sums, const void *p, int64_t rows, int64_t n) {
    const real *x = p;
    for (int64_t first = 0, count; first < rows; first += count) {
        count = rows - first < COLUMN_GROUP ? rows - first : COLUMN_GROUP;
        for (int64_t c = 0; c < n; c += VL) {
            const int64_t width = n - c < VL ? n - c : VL, whole = ((rows - first) * n - c - VL) / n + 1;
            const int64_t full = (rows - first) * n - c < VL ? 0 : whole < count ? whole : count; /* vectors */
            vreal sum[4] = {{0}, {0}, {0}, {0}};
            const real *from = x + first * n + c;
            int64_t r = 0;
            for (; r + 4 <= full; r += 4) {
                for (int k = 0; k < 4; k++) sum[k] += v_load(V_NATIVE, from, (r + k) * n);
            }
            for (; r < count; r++) sum[0] += v_load_n(V_NATIVE, from, r * n, width, 0);
            const vreal all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            for (int64_t k = 0; k < width; k++) sums[c + k] += (double)all[k];
        }
    }
}

static void add_to(double *sums, const void *p, int64_t n) {
    const real *x = p;
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_add_to(sums + i, v_load(V_NATIVE, x, i));
    for (; i < n; i++) sums[i] += (double)x[i];
}

/* products[c] *= column c of the rows: some columns at a time, whose products stay in registers. */
static void prod_columns(double *products, const void *p, int64_t rows, int64_t n) {
    const real *x = p;
    int64_t c = 0;
    for (; c + PRODUCTS <= n; c += PRODUCTS) {
        double made[PRODUCTS];
        memcpy(made, products + c, sizeof made);
        for (int64_t r = 0; r < rows; r++) {
            TNI_IVDEP for (int k = 0; k < PRODUCTS; k++) made[k] *= (double)x[r * n + c + k];
        }
        memcpy(products + c, made, sizeof made);
    }
    for (int64_t r = 0; r < rows; r++) {
        TNI_IVDEP for (int64_t k = c; k < n; k++) products[k] *= (double)x[r * n + k];
    }
}

static void prod_to(double *products, const void *x, int64_t n) {
    prod_columns(products, x, 1, n);
}

static void max_to(double *most, const void *p, int64_t n) {
    const real *x = p;
    TNI_IVDEP for (int64_t i = 0; i < n; i++) {
        const double a = most[i], b = (double)x[i];
        most[i] = (b > a || b != b) && a == a ? b : a;
    }
}

static void min_to(double *least, const void *p, int64_t n) {
    const real *x = p;
    TNI_IVDEP for (int64_t i = 0; i < n; i++) {
        const double a = least[i], b = (double)x[i];
        least[i] = (b < a || b != b) && a == a ? b : a;
    }
}

static void add_row(void *pending, const void *x, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        v_store(V_NATIVE, pending, i, v_load(V_NATIVE, pending, i) + v_load(V_NATIVE, x, i));
    }
    for (; i < n; i++) ((real *)pending)[i] += ((const real *)x)[i];
}

TNI_INLINE void join_row(vreal (*both)(vreal, vreal), void *pending, const void *x, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(V_NATIVE, pending, i, both(v_load(V_NATIVE, pending, i), v_load(V_NATIVE, x, i)));
    if (i == n) return;
    const vreal made = both(v_load_n(V_NATIVE, pending, i, n - i, 0), v_load_n(V_NATIVE, x, i, n - i, 0));
    v_store_n(V_NATIVE, pending, i, n - i, made);
}

static void max_row(void *pending, const void *x, int64_t n) {
    join_row(v_max, pending, x, n);
}

static void min_row(void *pending, const void *x, int64_t n) {
    join_row(v_min, pending, x, n);
}

static void settle(double *sums, void *pending, int64_t n) {
    add_to(sums, pending, n);
    memset(pending, 0, (size_t)n * sizeof(real));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

TNI_INLINE void load_as(const tn_type t, const void *from, void *to, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(V_NATIVE, to, i, v_load(t, from, i));
    if (V_MASKS && i < n) v_store_n(V_NATIVE, to, i, n - i, v_load_n(t, from, i, n - i, 0));
    for (; !V_MASKS && i < n; i++) r_store(V_NATIVE, to, i, r_load(t, from, i));
}

TNI_INLINE void store_as(const tn_type t, const void *from, void *to, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(t, to, i, v_load(V_NATIVE, from, i));
    if (V_MASKS && i < n) v_store_n(t, to, i, n - i, v_load_n(V_NATIVE, from, i, n - i, 0));
    for (; !V_MASKS && i < n; i++) r_store(t, to, i, r_load(V_NATIVE, from, i));
}

static void load(tn_type type, const void *from, void *to, int64_t n) {
    switch (type) {
    case TN_F16: load_as(TN_F16, from, to, n); break;
    case TN_BF16: load_as(TN_BF16, from, to, n); break;
    case TN_F32: load_as(TN_F32, from, to, n); break;
    default: load_as(TN_F64, from, to, n); break;
    }
}

static void store(tn_type type, const void *from, void *to, int64_t n) {
    switch (type) {
    case TN_F16: store_as(TN_F16, from, to, n); break;
    case TN_BF16: store_as(TN_BF16, from, to, n); break;
    case TN_F32: store_as(TN_F32, from, to, n); break;
    default: store_as(TN_F64, from, to, n); break;
    }
}

/* Short rows are read with what lies behind them, as far as that is in rows of the same memory, and written over the
 * values of the next, which come later. */
TNI_INLINE void load_rows_as(const tn_type t, const void *from, int64_t apart, void *to, int64_t rows, int64_t n) {
    const int64_t end = (rows - 1) * apart + n;
    int64_t r = 0;
    for (; r < rows && n < VL && apart > 0 && r * apart + VL <= end && (rows - r) * n >= VL; r++)
        v_store(V_NATIVE, to, r * n, v_load(t, from, r * apart));
    for (; r < rows; r++) load_as(t, r_at(t, from, r * apart), (real *)to + r * n, n);
}

static void load_rows(tn_type type, const void *from, int64_t apart, void *to, int64_t rows, int64_t n) {
    switch (type) {
    case TN_F16: load_rows_as(TN_F16, from, apart, to, rows, n); break;
    case TN_BF16: load_rows_as(TN_BF16, from, apart, to, rows, n); break;
    case TN_F32: load_rows_as(TN_F32, from, apart, to, rows, n); break;
    default: load_rows_as(TN_F64, from, apart, to, rows, n); break;
    }
}

/* What lies between the rows stays as it is. */
TNI_INLINE void store_rows_as(const tn_type t, const real *from, void *to, int64_t apart, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) store_as(t, from + r * n, r_at(t, to, r * apart), n);
}

static void store_rows(tn_type type, const void *from, void *to, int64_t apart, int64_t rows, int64_t n) {
    switch (type) {
    case TN_F16: store_rows_as(TN_F16, from, to, apart, rows, n); break;
    case TN_BF16: store_rows_as(TN_BF16, from, to, apart, rows, n); break;
    case TN_F32: store_rows_as(TN_F32, from, to, apart, rows, n); break;
    default: store_rows_as(TN_F64, from, to, apart, rows, n); break;
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

const tni_real_loops TNI_CPU(fuse_loops) = {
#define PRIMITIVE(id, value, real, ...) .op[TNI_P_##id] = TNI_HAS_##real ? loop_##id : NULL,
#include "fuse/graph/primitive_list.h"
#define PRIMITIVE(id, value, real, whole, truth, quick, ...) .coarse[TNI_P_##id] = TNI_HAS_##quick ? coarse_##id : NULL,
#include "fuse/graph/primitive_list.h"
    .sum = sum_of,
    .dot = dot_of,
    .prod = prod_of,
    .max = max_of,
    .min = min_of,
    .sum_rows = sum_rows,
    .prod_rows = prod_rows,
    .max_rows = max_rows,
    .min_rows = min_rows,
    .expand_rows = expand_rows,
    .add_columns = add_columns,
#if defined(V_HAS_SIN)
    .own_sin = true,
#endif
    .add_to = add_to,
    .prod_columns = prod_columns,
    .prod_to = prod_to,
    .max_to = max_to,
    .min_to = min_to,
    .add_row = add_row,
    .max_row = max_row,
    .min_row = min_row,
    .settle = settle,
    .load = load,
    .store = store,
    .load_rows = load_rows,
    .store_rows = store_rows,
};
