/* Operators whose contracts use what the built-in ones do not: lists, numbers, types as attributes, outputs on request,
 * rules with several statements. Their kernels are as plain as can be; inputs and outputs are dense. */
#include <string.h>

#include <tenon/op.h>

static double get(const tn_view *v, int64_t i) {
    return tn_get(v->type, v->data, i);
}

static void set(const tn_view *v, int64_t i, double value) {
    tn_set(v->type, v->data, i, value);
}

#define OP(id, ...)                                                                                    \
    static const tn_kernel id##_kernels[] = {{.name = "ref", .device = TN_CPU, .run = id##_ref}, {0}}; \
    static const tn_op id##_op = {.kernels = id##_kernels, __VA_ARGS__}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static tn_status scaled_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, get(x, i) * get(tn_in(call, 1), 0));
    return TN_OK;
}
static const tn_sample scaled_samples[] = {{"s=[3, 4]"}, {"s=[]"}, {0}};
OP(scaled, .signature = "scaled(x: T[*s], alpha: acc(T)[]) -> y: T[*s]", .doc = "alpha x.",
   .grad = "x: scaled(dy, alpha)", .samples = scaled_samples);

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Along axis 0 only, where elements just follow each other. */
static tn_status joined_ref(const tn_call *call, void *state) {
    int64_t at = 0;
    (void)state;
    if (call->attrs[0].i != 0) return tn_fail(TN_UNSUPPORTED, "joined: only axis 0");
    for (int k = 0; k < call->in[0].count; k++) {
        const tn_view *x = &call->in[0].views[k];
        for (int64_t i = 0; i < tn_count(x); i++) set(tn_out(call, 0), at++, get(x, i));
    }
    return TN_OK;
}
OP(joined, .signature = "joined<T: any>(xs: [T[*s]], axis: axis = 0) -> y: T[concat(*s, axis)]",
   .doc = "Side by side.");

static tn_status step_list_ref(const tn_call *call, void *state) {
    (void)state;
    for (int k = 0; k < call->in[0].count; k++) {
        const tn_view *p = &call->in[0].views[k], *g = &call->in[1].views[k];
        for (int64_t i = 0; i < tn_count(p); i++) set(p, i, get(p, i) - call->attrs[0].f * get(g, i));
    }
    set(tn_out(call, 0), 0, (double)call->in[0].count);
    return TN_OK;
}
OP(step_list, .signature = "step_list(ps: [T[*s]]!, gs: [T[*s]], lr: float = 0.5) -> count: i64[]",
   .doc = "p -= lr g.");

/* ---- a type as an attribute, integers in a list, conditions ------------------------------------------------------ */

static tn_status pooled_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t size = call->attrs[0].i, stride = call->attrs[1].ints[0];
    int64_t n = y->shape[0], out = y->shape[1], in = x->shape[1];
    (void)state;
    for (int64_t i = 0; i < n * out; i++) {
        double sum = 0;
        for (int64_t k = 0; k < size; k++) sum += get(x, i / out * in + i % out * stride + k);
        set(y, i, sum);
    }
    return TN_OK;
}
OP(pooled,
   .signature = "pooled(x: T[n, h], size: int, stride: ints[1] = [1], out: dtype = f64) -> y: out[n, (h - size) / "
                "stride[0] + 1] where size <= h, size > 0",
   .doc = "Sums of windows.");

/* ---- required behind optional, optional attribute, an output on request ------------------------------------------ */

static tn_status grouped_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *b = tn_in(call, 1), *y = tn_out(call, 0), *sums = tn_out(call, 1);
    int64_t c = x->shape[1], groups = call->attrs[0].i;
    double add = call->attrs[1].kind == TN_ATTR_UNSET ? 0 : call->attrs[1].f;
    bool negative = strcmp(call->attrs[2].s, "minus") == 0;
    (void)state;
    for (int64_t i = 0; sums && i < tn_count(sums); i++) set(sums, i, 0);
    for (int64_t i = 0; i < tn_count(x); i++) {
        double v = (negative ? -1 : 1) * get(x, i) + (b ? get(b, i % c) : 0) + add;
        int64_t at = i / c * groups + i % c / (c / groups);
        set(y, i, v);
        if (sums) set(sums, at, get(sums, at) + v);
    }
    return TN_OK;
}
OP(grouped,
   .signature = "grouped(x: T[n, c], b: T[c]?, groups: int, add: float?, sign: str = 'plus') -> y: T[n, c], "
                "sums: f64[n, groups]? where c % groups == 0",
   .doc = "Adds, and sums by group.");

/* ---- broadcasting, other orders ---------------------------------------------------------------------------------- */

static tn_status outer_ref(const tn_call *call, void *state) {
    const tn_view *a = tn_in(call, 0), *b = tn_in(call, 1), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(y); i++) {
        int64_t rest = i, ia = 0, ib = 0, na = 1, nb = 1;
        for (int d = 1; d <= y->ndim; d++) {
            int64_t k = rest % y->shape[y->ndim - d];
            rest /= y->shape[y->ndim - d];
            if (d <= a->ndim && a->shape[a->ndim - d] != 1) ia += k * na;
            if (d <= b->ndim && b->shape[b->ndim - d] != 1) ib += k * nb;
            if (d <= a->ndim) na *= a->shape[a->ndim - d];
            if (d <= b->ndim) nb *= b->shape[b->ndim - d];
        }
        set(y, i, get(a, ia) + get(b, ib));
    }
    return TN_OK;
}
OP(outer, .signature = "outer(a: T[*p], b: T[*q]) -> y: T[broadcast(*p, *q)]", .doc = "a + b.");

static tn_status ordered_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(y); i++) {
        int64_t rest = i, at = 0;
        for (int d = y->ndim - 1; d >= 0; d--) {
            int64_t from = call->attrs[0].ints[d], stride = 1;
            for (int e = (int)from + 1; e < x->ndim; e++) stride *= x->shape[e];
            at += rest % y->shape[d] * stride;
            rest /= y->shape[d];
        }
        set(y, i, get(x, at));
    }
    return TN_OK;
}
OP(ordered, .signature = "ordered<T: any>(x: T[*s], dims: ints) -> y: T[permute(*s, dims)]", .doc = "Another order.");

/* ---- expressions that are solved --------------------------------------------------------------------------------- */

static tn_status halves_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0);
    int64_t h = tn_out(call, 0)->shape[tn_out(call, 0)->ndim - 1];
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) {
        int64_t row = i / (2 * h), col = i % (2 * h);
        set(tn_out(call, col >= h), row * h + col % h, get(x, i));
    }
    return TN_OK;
}
static const tn_sample halves_samples[] = {{"r=[3] h=2"}, {"r=[] h=1"}, {0}};
OP(halves, .signature = "halves(x: T[*r, 2*h]) -> a: T[*r, h], b: T[*r, h]", .doc = "The halves of each row.",
   .grad = "x: halves_grad(da, db)", .samples = halves_samples);

/* db may be absent: nobody used b. */
static tn_status halves_grad_ref(const tn_call *call, void *state) {
    const tn_view *da = tn_in(call, 0), *db = tn_in(call, 1), *dx = tn_out(call, 0);
    int64_t h = da->shape[da->ndim - 1];
    (void)state;
    for (int64_t i = 0; i < tn_count(dx); i++) {
        int64_t row = i / (2 * h), col = i % (2 * h);
        set(dx, i, col < h ? get(da, row * h + col) : db ? get(db, row * h + col - h) : 0);
    }
    return TN_OK;
}
OP(halves_grad, .signature = "halves_grad(da: T[*r, h], db: T[*r, h]?) -> dx: T[*r, 2*h]",
   .doc = "The gradient of halves.");

/* ---- rules with locals, dimensions and second derivatives -------------------------------------------------------- */

static tn_status product_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_in(call, 1), *z = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(z, i, call->attrs[0].f * get(x, i) * get(y, i));
    return TN_OK;
}
static const tn_sample product_samples[] = {{"s=[2, 3]"}, {"s=[4] k=2.5"}, {0}};
OP(product, .signature = "product(x: T[*s], y: T[*s], k: float = 1.0) -> z: T[*s]", .doc = "k x y.",
   .grad = "x: product(y, dz); y: product(x, dz)", .samples = product_samples);

static tn_status cube_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, i, get(x, i) * get(x, i) * get(x, i));
    return TN_OK;
}
static const tn_sample cube_samples[] = {{"s=[2, 3]"}, {0}};
OP(cube, .signature = "cube(x: T[*s]) -> y: T[*s]", .doc = "x^3.", .grad = "t = product(x, x, 3.0); x: product(t, dy)",
   .samples = cube_samples);

static tn_status row_sum_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    int64_t n = x->shape[x->ndim - 1];
    (void)state;
    for (int64_t i = 0; i < tn_count(y); i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += get(x, i * n + k);
        set(y, i, sum);
    }
    return TN_OK;
}
static const tn_sample row_sum_samples[] = {{"r=[2] n=3"}, {"r=[] n=4"}, {0}};
OP(row_sum, .signature = "row_sum(x: T[*r, n]) -> y: T[*r]", .doc = "The sum of each row.",
   .grad = "x: row_spread(dy, n)", .samples = row_sum_samples);

static tn_status row_spread_ref(const tn_call *call, void *state) {
    const tn_view *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(y); i++) set(y, i, get(tn_in(call, 0), i / call->attrs[0].i));
    return TN_OK;
}
OP(row_spread, .signature = "row_spread(x: T[*r], n: int) -> y: T[*r, n]", .doc = "Each number n times.",
   .grad = "x: row_sum(dy)");

/* ---- broadcasts of single dimensions, nothing but broadcasts ----------------------------------------------------- */

static tn_status nothing_ref(const tn_call *call, void *state) {
    (void)state;
    for (int64_t i = 0; i < tn_count(tn_out(call, 0)); i++) set(tn_out(call, 0), i, 0);
    return TN_OK;
}
OP(nothing,
   .signature = "nothing(x: T[b, ~h, m], y: W[~b, h]?, z: T[~*s]?, w: T[~*s]?, k: i32[m + 1]?, lambda: int = 1) "
                "-> o: acc(W)[b, h, m * lambda], s: T[*s]?",
   .doc = "Zeros.");

static const tn_op *const table[] = {
    &scaled_op, &joined_op,      &step_list_op, &pooled_op, &grouped_op, &outer_op,      &ordered_op,
    &halves_op, &halves_grad_op, &product_op,   &cube_op,   &row_sum_op, &row_spread_op, &nothing_op,
};
TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);
