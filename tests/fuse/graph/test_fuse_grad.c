/* Gradients: what they look like, and against central differences; random formulas, forward and backward. */
#include "tests/fuse/generator.h"

#include "fuse/plan/planner.h"

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static const char *const texts[][3] = {
    {"exp(x)", "x: f_grad(y, dy)", "f_grad(y: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = dy * y"},
    {"tanh(x)", "x: f_grad(y, dy)", "f_grad(y: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = dy * (1 - y * y)"},
    {"relu(x)", "x: f_grad(y, dy)", "f_grad(y: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = where(0 < y, dy, 0.0)"},
    {"x * 2", "x: f_grad(dy)", "f_grad(dy: T[*s]) -> dx: T[*s]? : dx = dy * 2"},
    {"2 * dy", "dy: f_grad(dz)", "f_grad(dz: T[*s]) -> ddy: T[*s]? : ddy = dz * 2"},
    /* what is detached is a number to the derivative, and alone it has one of 0 */
    {"x * detach(x)", "x: f_grad(x, dy)", "f_grad(x: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = dy * detach(x)"},
    {"detach(x * 2)", "x: f_grad(x, dy)", "f_grad(x: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = expand(0.0, x)"},
    {"softmax(x)", "x: f_grad(y, dy)", "f_grad(y: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = y * (dy - sum(dy * y, -1))"},
    {"x + b", "x, b: f_grad(x, b, dy)",
     "f_grad(x: T[*s_x], b: T[*s_b], dy: T[*s]) -> dx: T[*s_x]?, db: T[*s_b]? : dx = sum_to(dy, x); db = sum_to(dy, "
     "b)"},
    {"sum(x)", "x: f_grad(x, dy)", "f_grad(x: T[*s], dy: T[]) -> dx: T[*s]? : dx = dy"},
    {"sum(x * x, -1)", "x: f_grad(x, dy)", "f_grad(x: T[*s, n], dy: T[*s]) -> dx: T[*s, n]? : dx = 2.0 * dy * x"},
    {"softplus(x)", "x: f_grad(x, dy)", "f_grad(x: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = dy * sigmoid(x)"},
    {"exp(x - logsumexp(x, -1))", "x: f_grad(y, dy)",
     "f_grad(y: T[*s], dy: T[*s]) -> dx: T[*s]? : t1 = dy * y; dx = t1 + -sum(t1, -1) * y"},
    {"g(x: T[n, c], b: T[c]) -> y: T[n, c] : x * b", "x, b: g_grad(x, b, dy)",
     "g_grad(x: T[n, c], b: T[c], dy: T[n, c]) -> dx: T[n, c]?, db: T[c]? : dx = dy * b; db = sum_to(dy * x, b)"},
    {"g(x: T[n, c], b: T[c], k: float = 2.0) -> y: T[n, c] : x * k + b", "x, b: g_grad(b, dy)",
     "g_grad(b: T[c], dy: T[n, c], k: float = 2.0) -> dx: T[n, c]?, db: T[c]? : dx = dy * k; db = sum_to(dy, b)"},
    /* what goes up in steps has a derivative, which is 0 */
    {"floor(x)", "x: f_grad(x, dy)", "f_grad(x: T[*s], dy: T[*s]) -> dx: T[*s]? : dx = expand(0.0, x)"},
    {"x - floor(x)", "x: f_grad(dy)", "f_grad(dy: T[*s]) -> dx: T[*s]? : dx = dy"},
    {"g(x: T[*s], a: T[*s]) -> y: T[*s] : where(x > 0, a, 2 * a)", "x, a: g_grad(x, dy)",
     "g_grad(x: T[*s], dy: T[*s]) -> dx: T[*s]?, da: T[*s]? : t1 = 0 < x; dx = expand(0.0, x); da = where(t1, dy, 0.0) "
     "+ where(t1, 0.0, dy * 2)"},
    {"g(x: T[*s], m: T[*s]?) -> y: T[*s] : where(m > 0, x, 0) if has(m) else x", "x, m: g_grad(m, dy)",
     "g_grad(m: T[*s]?, dy: T[*s]) -> dx: T[*s]?, dm: T[*s]? : dx = where(has(m), 0.0, dy) + where(has(m), where(0 < "
     "m, "
     "dy, 0.0), 0.0); dm = expand(0.0, m)"},
    /* a branch that a call does not take is no factor of 0: it folds away; of two words only one holds */
    {"g(x: T[*s], how: 'tanh'|'sin'|'none' = 'tanh') -> y: T[*s] : tanh(x) if how == 'tanh' else sin(x) if how == "
     "'sin' "
     "else x",
     "x: g_grad(x, dy)",
     "g_grad(x: T[*s], dy: T[*s], how: 'tanh'|'sin'|'none' = 'tanh') -> dx: T[*s]? : t1 = tanh(x); dx = where((how == "
     "'tanh'), 0.0, where((how == 'sin'), 0.0, dy)) + where((how == 'sin'), dy * cos(x), 0.0) + where((how == 'tanh'), "
     "dy * (1 - t1 * t1), 0.0)"},
};

static void test_texts(void) {
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        tni_fuse *f, *g = NULL;
        char *rule = NULL, *printed = NULL;
        tni_fuse_options options = {.name = "f"};
        CHECK_ROW(tni_fuse_parse(texts[i][0], &options, &f) == TN_OK, "%s: %s", texts[i][0], tn_last_error());
        if (!f) continue;
        CHECK_ROW(tni_fuse_grad(f, &g, &rule) == TN_OK, "%s: %s", texts[i][0], tn_last_error());
        if (g) printed = tni_fuse_print(g);
        CHECK_ROW(rule && strcmp(rule, texts[i][1]) == 0, "%s: %s", texts[i][0], rule ? rule : "no rule");
        CHECK_ROW(printed && strcmp(printed, texts[i][2]) == 0, "%s:\n    %s", texts[i][0],
                  printed ? printed : "nothing");
        tn_free(rule);
        tn_free(printed);
        tni_fuse_free(g);
        tni_fuse_free(f);
    }
    static const char *const none[][2] = {
        {"i32(x)", "no output depends on an input in a way that has a derivative"},
        {"g(x: T[*s]) -> q: i8[*s] : x * 2", "no output depends on an input in a way that has a derivative"},
        {"x! = x * 2", "updates x in place"},
        {"dy = x * 2; y = x * 3", "what arrives at y is called dy"},
        {"f(x: T[*r, c], b: T[~c]) -> y: T[*r, c] : x * b", "b broadcasts"},
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        tni_fuse *f, *g;
        char *rule;
        CHECK_ROW(tni_fuse_parse(none[i][0], NULL, &f) == TN_OK, "%s: %s", none[i][0], tn_last_error());
        tn_status status = tni_fuse_grad(f, &g, &rule);
        CHECK_ROW(status != TN_OK && strstr(tn_last_error(), none[i][1]), "%s: %s", none[i][0], tn_last_error());
        tni_fuse_free(f);
    }
}

/* ---- against differences ----------------------------------------------------------------------------------------- */

static array *named_array(call_of *c, const char *name, array *weights) {
    const tni_contract *contract = c->f->contract;
    for (int i = 0; i < contract->n_inputs; i++) {
        if (strcmp(contract->inputs[i].name, name) == 0) return &c->in[i];
    }
    for (int i = 0; i < contract->n_outputs; i++) {
        if (strcmp(contract->outputs[i].name, name) == 0) return &c->out[i];
        if (name[0] == 'd' && strcmp(contract->outputs[i].name, name + 1) == 0) return &weights[i];
    }
    return NULL;
}

/* The input whose gradient an output of the gradient is: dx, d_x. */
static const char *input_of(const char *output) {
    return output[1] == '_' ? output + 2 : output + 1;
}

/* The outputs, weighted and added up. */
static double loss(const call_of *c, const array *weights) {
    double **values = ref_run(c), sum = 0;
    for (int k = 0; values && k < c->f->contract->n_outputs; k++) {
        for (int64_t i = 0; i < array_count(&c->out[k]); i++) sum += values[k][i] * array_get(&weights[k], i);
    }
    ref_free(c->f, values);
    return sum;
}

static double difference(call_of *c, const array *weights, array *x, int64_t i, double step) {
    double at = array_get(x, i);
    array_set(x, i, at + step);
    double above = loss(c, weights);
    array_set(x, i, at - step);
    double below = loss(c, weights);
    array_set(x, i, at);
    return (above - below) / (2 * step);
}

/* Differences that disagree with each other stand at a kink or a jump: nothing to compare with. */
static void check_differences(const char *text, call_of *c, const array *weights, call_of *grad, int32_t output) {
    const char *name = input_of(grad->f->contract->outputs[output].name);
    array *x = named_array(c, name, NULL);
    const array *dx = &grad->out[output];
    CHECK_ROW(x && array_count(x) == array_count(dx), "%s: d%s has another shape", text, name);
    if (!x || array_count(x) != array_count(dx)) return;
    int64_t n = array_count(x), stride = n > 5 ? n / 5 : 1;
    for (int64_t i = 0; i < n; i += stride) {
        double wide = difference(c, weights, x, i, 1e-4), narrow = difference(c, weights, x, i, 2.5e-5);
        double got = array_get(dx, i), scale = 1 + fabs(narrow);
        if (!(fabs(wide - narrow) < 1e-4 * scale)) continue;
        CHECK_ROW(fabs(got - narrow) < 3e-4 * scale, "%s: d%s[%lld] is %.9g, differences say %.9g", text, name,
                  (long long)i, got, narrow);
    }
}

static void check_gradient(const char *text, call_of *c) {
    array weights[TNI_MAX_ARGS] = {{0}};
    tni_fuse *g = NULL;
    char *rule = NULL;
    tn_status status = tni_fuse_grad(c->f, &g, &rule);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    tn_free(rule);
    if (status != TN_OK) return;
    for (int k = 0; k < c->f->contract->n_outputs; k++) {
        array_make(&weights[k], c->out[k].type, c->out[k].ndim, c->out[k].shape, 0);
        array_fill(&weights[k], -1, 1);
    }
    call_of grad = {.f = g};
    for (int i = 0; i < g->contract->n_inputs; i++) {
        array *from = named_array(c, g->contract->inputs[i].name, weights);
        CHECK_ROW(from, "%s: the gradient takes %s", text, g->contract->inputs[i].name);
        if (!from || !from->memory) continue;
        array_make(&grad.in[i], from->type, from->ndim, from->shape, 0);
        for (int64_t k = 0; k < array_count(from); k++) array_set(&grad.in[i], k, array_get(from, k));
    }
    for (int i = 0; i < c->n_attrs; i++) {
        if (tni_attr_named(g->contract, c->attrs[i].name) >= 0) grad.attrs[grad.n_attrs++] = c->attrs[i];
    }
    status = call_make_outputs(&grad, 0);
    for (int k = 0; k < g->contract->n_outputs; k++) { /* none is wanted for an input that is absent */
        array *of = named_array(c, input_of(g->contract->outputs[k].name), NULL);
        if (of && !of->memory) array_free(&grad.out[k]);
    }
    if (status == TN_OK) status = call_run(&grad);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    for (int k = 0; k < g->contract->n_outputs && status == TN_OK; k++) {
        if (grad.out[k].memory) check_differences(text, c, weights, &grad, k);
    }
    for (int k = 0; k < c->f->contract->n_outputs; k++) array_free(&weights[k]);
    call_free(&grad);
    tni_fuse_free(g);
}

/* Forward in f64 against the reference, then backward. */
static void check_both(const char *text, call_of *c, bool backward) {
    tn_status status = call_make_outputs(c, 0);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    if (status != TN_OK) return;
    double **want = ref_run(c);
    status = call_run(c);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    for (int k = 0; status == TN_OK && want && k < c->f->contract->n_outputs; k++) {
        int64_t bad = -1;
        for (int64_t i = 0; i < array_count(&c->out[k]); i++) {
            double got = array_get(&c->out[k], i);
            if (!(fabs(got - want[k][i]) <= 1e-10 * (1 + fabs(want[k][i]))) &&
                !(got != got && want[k][i] != want[k][i]))
                bad = i;
        }
        CHECK_ROW(bad < 0, "%s: output %d[%lld] is %.17g, not %.17g", text, k, (long long)bad,
                  array_get(&c->out[k], bad), want[k][bad]);
    }
    ref_free(c->f, want);
    if (status == TN_OK && backward) check_gradient(text, c);
}

static const char *const rows[][2] = {
    {"x * x", "3,4"},
    {"x * where(count(x) == 12, 3, 2)", "3,4"},
    {"x + b", "3,4 4"},
    {"x * b", "3,4 3,1"},
    {"sum(x * b, -1)", "3,4 ."},
    {"sum(c) * b", "3,4 2,5"},
    {"mean(x * y) + w * sum(z * z)", "3,4 4 . 5"},
    {"x / (sum(x, -1) + sum(g * g))", "3,4 2,5"},
    {"y = x / sqrt(sum(g * g)); z = max(g) * b", "3,4 5 2,2"},
    {"sum(x * b, -1)", "3,4 2,1,4"},
    {"sum(x, -1) * b", "3,4 ."},
    {"sum(x, -1) * b", "3,4 4"},
    {"b * sum(x, -1) + g", "4 3,4 3,1"},
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b", "3,4 4 4"},
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b", "4 3,1 2,3,4"},
    {"-sum(exp(x - logsumexp(x, -1)) * b, -1)", "3,4 3,4"},
    {"m = mean(x, -1); y = (x - mean(x, -1)) * g; z = sum(y * b, -1)", "3,4 4 2,1,1"},
    {"x / b", "2,3,4 3,1"},
    {"relu(x*s+b)", "5,6 6 5,1"},
    {"relu(x*s+b)", "5,6 1 ."},
    {"x ** b", "3,4 3,4"},
    {"sum(x)", "3,4"},
    {"sum(x) * x", "3,4"},
    {"mean((x - t) ** 2)", "3,4 4"},
    {"mean(x) + var(x) + logsumexp(x) + max(x) - min(x)", "3,4"},
    {"x - mean(x, -1)", "3,4"},
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-2)", "3,4"},
    {"t = x - mean(x, -1); t * rsqrt(mean(t * t, -1) + 1e-2)", "3,4"},
    {"exp(x - logsumexp(x, -1))", "3,4"},
    {"t = exp(x - max(x, axis=-1)); t / sum(t, -1)", "3,4"},
    {"max(x, axis=-1)", "3,4"},
    {"f(x: T[n, c], b: T[c]) -> y: T[n, c] : x * sum(b)", "3,4 4"},
    {"y = x / sum(b); z = x + b", "3,4 4"},
    {"f(x: T[*r, c], g: W[c]?, eps: float = 1e-5) -> y: T[*r, c], r: acc(T)[*r] : r = rsqrt(mean(x * x, -1) + eps); "
     "y = x * r * g if has(g) else x * r",
     "2,3,4 4"},
    {"f(x: T[*r, c], g: W[c]?, eps: float = 1e-5) -> y: T[*r, c], r: acc(T)[*r] : r = rsqrt(mean(x * x, -1) + eps); "
     "y = x * r * g if has(g) else x * r",
     "2,3,4 -"},
    {"f(x: T[n, c, *s], g: T[c], b: T[c]) -> y: T[n, c, *s] : gelu(x * g + b)", "2,3,2,2 3 3"},
    {"f(x: T[n, c, h], b: T[c]) -> o: T[] : mean(x + b)", "2,3,4 3"},
    {"f(x: T[n, c, h], b: T[n], w: T[]) -> o: T[] : sum(x * x + b * w)", "2,3,4 2 ."},
    {"f(x: T[r, c]) -> o: T[] : var(x + mean(x) * mean(x))", "3,4"},
    {"f(x: T[*r, c], g: T[c]?, b: T[c]?) -> y: T[*r, c] : m = x * g if has(g) else x; y = m + b if has(b) else m",
     "2,5 - 5"},
    {"f(x: T[*r, c], g: T[c]?, b: T[c]?) -> y: T[*r, c] : m = x * g if has(g) else x; y = m + b if has(b) else m",
     "2,5 5 -"},
    /* what is absent would have had most dimensions */
    {"f(x: T[n, c], w: T[n, c]?, b: T[n]) -> y: T[n, c] : sum(sin((w if has(w) else 0.5) + b) + x, -1)", "3,4 - 3"},
    {"f(x: T[n, c], w: T[n, c]?, b: T[c]) -> y: T[n, c] : x * mean((w if has(w) else 0.5) * b)", "3,4 - 4"},
    {"f(x: T[n, c], w: T[n, c]?, b: T[n]) -> y: T[n, c] : x * sum(where(has(w), w * b, b * 2), -1)", "3,4 - 3"},
    {"f(x: T[n, c], w: T[n, c]?, b: T[n]) -> y: T[n, c] : x * sum(where(has(w), w * b, b * 2), -1)", "3,4 3,4 3"},
    {"f(x: T[n, c], v: T[n]?, w: T[n, c]?) -> y: T[n, c] : t = (v if has(v) else 2) * (w if has(w) else 3); "
     "y = x + sum(t * t)",
     "3,4 3 -"},
    {"f(x: T[n], y: T[m]) -> z: T[n, m] : x * y + x", "3 4"},
    {"f(x: T[n], y: T[m]) -> z: T[n, m], w: T[n] : z = sin(x * y); w = sum(x * y, -1)", "3 4"},
    {"f(x: T[n, c]) -> y: T[n, c] : sum(x * x, -1)", "3,4"},
    {"f(x: T[n, c], y: T[n]) -> z: T[n, c], w: T[n, 1] : z = x * y + sum(x, -1); w = y * mean(x, -1)", "3,4 3"},
    {"f(x: T[*s], b: T[*q]) -> y: T[*q] : sum_to(x * x, b) * b", "4,3,2 3,1"},
    {"f(x: T[*s], b: T[*q]) -> y: T[*s] : expand(b * b, x) * x + b * sum(b)", "4,3,2 3,1"},
    {"sum_to(x, b) * b", "3 2,3"},
    {"sum_to(x, b) * b", "1,3 2,1"},
    {"sum_to(sum(x) + x, b) * b", "2,3 3"},
    {"clamp(x, a, b)", "3,4 3,4 3,4"},
    {"softmax(x) * log_softmax(w) + softmax(w * x, axis=0)", "3,4 3,4"},
    {"norm(x, -1) * std(x) + norm(w)", "3,4 4"},
    {"gate(a, b) = a * sigmoid(b); y = gate(x, w) + gate(w, x)", "3,4 4"},
    {"prod(x, -1) * prod(w)", "3,4 4"},
    {"prod(x, axis=0) + prod(x - 0.5, axis=[0, 1])", "3,4,2"},
    /* along any dimensions */
    {"sum(x * x, axis=0)", "3,4"},
    {"x * max(x, axis=0) + min(x, axis=1)", "3,4,2"},
    {"(x - mean(x, axis=[0, 2])) * rsqrt(var(x, axis=[0, 2]) + 0.1)", "3,4,2"},
    {"t = exp(x - max(x, axis=1)); t / sum(t, axis=1)", "3,4,2"},
    {"logsumexp(x, axis=0) * sum(x * w, -1)", "3,4 3,4"},
    {"y = mean(x, axis=-2); z = var(x, axis=[-2, 0]) * sum(x)", "2,3,4"},
    {"f(x: T[n, c, *s], g: T[c], b: T[n]) -> y: T[n, c, *s], z: T[c] : m = mean(x * b, axis=[n, s]); "
     "y = (x - m) * g; z = m * sum(g * g, axis=c)",
     "2,3,2,2 3 2"},
    {"f(x: T[n, c], b: T[c]) -> y: T[c] : sum(x * x, axis=n) * b", "3,4 4"},
    {"f(x: T[n, c], b: T[c]) -> y: T[n] : sum(x, c) * sum(b, c)", "3,4 4"},
    /* dimensions that no argument has all of */
    {"f(a: T[n, d], b: T[m, d]) -> y: T[n, m] : sum((a - b) ** 2, d)", "3,4 2,4"},
    {"f(a: T[n], b: T[m]) -> y: T[], z: T[m] : y = sum(sin(a * b)); z = b * sum(a * a)", "3 4"},
    {"f(x: T[n, c, s], style: T[n, c, t]) -> y: T[n, c, s] : (x - mean(x, s)) * rsqrt(var(x, s) + 0.1) * std(style, t) "
     "+ mean(style, t)",
     "2,2,4 2,2,3"},
    {"f(x: T[n, *s], style: T[n, *t]) -> y: T[n, *s], z: T[n] : y = x * max(style, t); z = sum(x * x, s)", "2,2,2 2,3"},
    {"f(q: T[n, d], k: T[m, d], v: T[m, e]) -> o: T[n, e] : o = sum(softmax(sum(q * k, d), axis=m) * v, m)",
     "3,2 4,2 4,3"},
    {"f(x: T[n, n], b: T[n]) -> y: T[n, n], z: T[n] : y = softmax(x, axis=1) * b; z = sum(x * x, axis=1)", "3,3 3"},
    /* parts */
    {"f(x: T[n, c]) -> y: T[n - 1, c], z: T[n, c - 1] : y = x[1:] * x[:-1]; z = x[..., 1:] * sin(x[:, :-1])", "3,4"},
    {"rope(x: T[*r, t, d], p: T[t, d], q: T[t, d]) -> y: T[*r, t, d] : x * p + rotate_half(x) * q", "2,2,4 2,4 2,4"},
    {"f(x: T[*r, c]) -> y: T[*r, c / 2] : silu(x[..., :c / 2]) * x[..., c / 2:]", "2,6"},
    {"f(a: T[r, n], b: T[r, m], w: T[n + m]) -> y: T[r, n + m], z: T[r] : t = concat(a, b, axis=-1) * w; "
     "y = softmax(t); z = max(t, axis=-1)",
     "2,3 2,2 5"},
    {"f(x: T[n, c], b: T[c]) -> y: T[n, c] : shift(x, 1, n, 1.5) * x + shift(b * x, -2, -1)", "3,4 4"},
    {"f(x: T[n, c]) -> y: T[n, c], z: T[c] : y = roll(x, 2, n) * x - roll(x, -1, c); z = sum(flip(x, 0) * x, n)",
     "3,4"},
    {"f(x: T[n, c], w: T[3]) -> y: T[n, c] : shift(x, 2, -1) * w[0] + shift(x, 1, -1) * w[1] + x * w[2]", "2,5 3"},
    {"f(x: T[n, c], b: T[c]) -> y: T[n, c], z: T[n] : t = x - mean(x[:, :3], c); y = t * flip(b, 0); z = sum(t[:, 2:], "
     "-1)",
     "2,4 4"},
    {"f(x: T[n, n]) -> y: T[2, 2], z: T[n] : y = x[:2, :2] * x[1:3, 1:3]; z = x[:, 0] * x[:, -1]", "3,3"},
    {"f(x: T[n, c], k: int = 2) -> y: T[n, k] : sin(x[:, :k]) * sum(x[:, k:], -1)", "3,4"},
    {"exp2(x) + log2(x) * log10(x) + ceil(x) * trunc(x) * x", "3,4"},
    {"atan(x) + sinh(x) * cosh(x) + asinh(x) / erfc(x) + atan2(x, w) + tan(x / 2)", "3,4 4"},
    {"asin(x / 3) * acos(x / 4) + atanh(x / 3) * erfinv(x / 3) + acosh(x + 1)", "3,4"},
    {"lgamma(x) * digamma(x) + polygamma(1, x) * polygamma(2, x)", "3,4"},
    {"logaddexp(x, w) + relu6(5 * x) * hardtanh(x) + hardtanh(x, -3, w)", "3,4 4"},
    {"where(isnan(x) or isinf(x), 1, x * x) * isfinite(x)", "3,4"},
    {"x % b", "3,4 3,4"},
    {"where(x > 0.7, x * b, b)", "3,4 4"},
    {"y = where(rand(seed) < 0.5, 0, x * 2)", "2 3,4"},
    {"f(x: T[n, c], k: int = 3, m: 'a'|'b' = 'b', w: bool = true) -> y: T[n, c] : x ** k if m == 'b' and w else x",
     "3,4"},
    {"f(a: T[n, c], b: T[n, 1]) -> y: T[n, c] : a * b", "3,4 3,1"},
    {"sum(x, -1) ** 2", "3,4"},
    {"x * sum(x, -1) * sum(x)", "3,4"},
    /* rows of what broadcasts */
    {"sum(x * y, -1)", "3,4 3,4"},
    {"sum(x * y, -1)", "3,4 4"},
    {"sum(x * y, -1)", "3,1 2,1,4"},
    {"sum(x * y, -1)", "4 4"},
    {"max(x + y, axis=-1)", "2,3,4 3,1"},
    {"logsumexp(x * y + w, -1)", "2,3,4 3,1 4"},
    {"a = sum(x * y, -1); b = x - y; c = mean(x * y)", "2,3,4 3,1"},
    {"f(x: T[*r, c], b: T[~*r, ~c]) -> y: T[*r] : sum(relu(x + b), -1)", "2,3,4 3,1"},
    {"f(x: T[*r, c], b: T[*r, ~c], w: T[*r]) -> y: T[*r, c] : x * b / w", "2,3,4 2,3,1 2,3"},
    {"f(x: T[*r, c], b: T[*q]) -> y: T[*r, c] : x * b", "2,3,4 3"},
    {"f(x: T[*r, c], b: T[*q]) -> y: T[*q] : sum_to(sum(x * x, -1), b) * b", "2,3,4 3"},
};

static void test_rows(void) {
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        tni_fuse *f;
        tn_status status = tni_fuse_parse(rows[r][0], NULL, &f);
        CHECK_ROW(status == TN_OK, "%s: %s", rows[r][0], tn_last_error());
        if (status != TN_OK) continue;
        call_of c = {.f = f};
        const char *shapes = rows[r][1];
        random_state = r + 1;
        for (int i = 0; i < f->contract->n_inputs; i++) {
            int64_t shape[TN_MAX_RANK];
            int ndim = parse_shape(&shapes, shape);
            if (ndim < 0) continue;
            array_make(&c.in[i], tni_is_seed(f->contract, i) ? TN_I64 : TN_F64, ndim, shape, 0);
            array_fill(&c.in[i], 0.3, 2);
        }
        check_both(rows[r][0], &c, true);
        call_free(&c);
        tni_fuse_free(f);
    }
}

/* ---- passes and stages ------------------------------------------------------------------------------------------- */

/* A gradient as text, its inputs' shapes, and how many passes over memory it takes, and stages of row reductions, each
 * of which needs the one before: sums that need not wait for a statistic do not. */
static const struct {
    const char *formula, *shapes;
    int32_t passes, stages;
} counts[] = {
    {"f(x: T[n, c], g: T[c], b: T[c]) -> y: T[n, c] : (x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b", "4,6 6 4,6",
     2, 3},
    {"f(x: T[n, c]) -> y: T[n, c] : t = x - mean(x, -1); t * rsqrt(mean(t * t, -1) + 0.1)", "4,6 4,6", 1, 3},
    {"f(x: T[n, c, *s], g: T[c]?, b: T[c]?) -> y: T[n, c, *s] : t = (x - mean(x, axis=[n, s])) * rsqrt(var(x, "
     "axis=[n, s]) + 0.1); u = t * g if has(g) else t; y = u + b if has(b) else u",
     "2,3,5 3 3 2,3,5", 5, 1},
    {"f(x: T[n, c, *s], g: T[c]?, b: T[c]?) -> y: T[n, c, *s] : t = (x - mean(x, axis=[n, s])) * rsqrt(var(x, "
     "axis=[n, s]) + 0.1); u = t * g if has(g) else t; y = u + b if has(b) else u",
     "2,3,5 - - 2,3,5", 4, 1},
    {"f(x: T[n, c, *s], g: W[c]) -> y: T[n, c, *s] : k = count(x) / count(g); d = x - sum_to(x, g) / k; "
     "y = d * rsqrt(sum_to(d * d, g) / k + 0.1) * g",
     "2,3,5 3 2,3,5", 4, 1},
    {"f(x: T[n, c, *s], g: T[c], k: int = 2) -> y: T[n, c, *s] where c % k == 0 : (x - mean(x, axis=[c / k, s])) * "
     "rsqrt(var(x, axis=[c / k, s]) + 0.1) * g",
     "2,6,5 6 2,6,5", 4, 1},
};

static int32_t most_stages;

static tn_status count_stages(tni_binding *b) {
    most_stages = 0;
    for (int32_t i = 0; i < b->program->n_passes; i++) {
        if (b->planners[i].n_stages > most_stages) most_stages = b->planners[i].n_stages;
    }
    return TN_OK;
}

static const tni_backend counting = {.name = "counting", .device = TN_CPU, .plan = count_stages};

static void count(const char *text, call_of *c, int32_t passes, int32_t stages) {
    static views v;
    tni_program *program = NULL;
    make_views(c, &v);
    for (int i = 0; i < c->f->contract->n_attrs; i++) {
        if (c->f->contract->attrs[i].implied) v.attrs[i] = (tn_value){.kind = TN_ATTR_BOOL, .b = true};
    }
    CHECK_ROW(tni_fuse_bind_to(c->f, &v.call, &counting, &program) == TN_OK, "%s: %s", text, tn_last_error());
    if (!program) return;
    CHECK_ROW(program->n_passes == passes && most_stages == stages, "%s: %d passes and %d stages, not %d and %d", text,
              (int)program->n_passes, (int)most_stages, (int)passes, (int)stages);
    tni_program_free(program);
}

static void test_counts(void) {
    for (size_t r = 0; r < sizeof counts / sizeof counts[0]; r++) {
        const char *text = counts[r].formula, *shapes = counts[r].shapes;
        tni_fuse *f = NULL, *g = NULL;
        char *rule = NULL;
        tn_status status = tni_fuse_parse(text, NULL, &f);
        if (status == TN_OK) status = tni_fuse_grad(f, &g, &rule);
        CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
        call_of c = {.f = g};
        for (int i = 0; g && i < g->contract->n_inputs; i++) {
            int64_t shape[TN_MAX_RANK];
            const int ndim = parse_shape(&shapes, shape);
            if (ndim >= 0) array_make(&c.in[i], TN_F64, ndim, shape, 0);
        }
        if (g) status = call_make_outputs(&c, 0);
        CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
        if (g && status == TN_OK) count(text, &c, counts[r].passes, counts[r].stages);
        call_free(&c);
        tn_free(rule);
        tni_fuse_free(g);
        tni_fuse_free(f);
    }
}

/* ---- gradients of gradients -------------------------------------------------------------------------------------- */

static void test_twice(void) {
    static const char *const formulas[] = {"x * x * x",
                                           "tanh(x)",
                                           "x * sigmoid(x)",
                                           "exp(x - logsumexp(x, -1))",
                                           "x / sum(x, -1)",
                                           "sum(x * x)",
                                           "mean(exp(x), -1)",
                                           "relu(x) * x",
                                           "x * rsqrt(mean(x * x, -1) + 0.01)",
                                           "sum(x * y * y, -1)",
                                           "x * y * sum(x * w, -1)",
                                           "exp2(x) + log2(x) * log10(x) + tan(x / 2)",
                                           "atan(x) * sinh(x) + cosh(x) / asinh(x)",
                                           "atan2(x, y) * logaddexp(x, y)",
                                           "asin(x / 3) * acos(x / 4) + atanh(x / 3) + acosh(x + 1)",
                                           "erfc(x) * erfinv(x / 3) + lgamma(x) + digamma(x)",
                                           "relu6(x) * hardtanh(x) * x",
                                           "softmax(x)",
                                           "prod(x, -1) * x",
                                           "log_softmax(x) * y",
                                           "norm(x) * std(x, -1)"};
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        tni_fuse *f, *g = NULL;
        char *rule = NULL;
        CHECK(tni_fuse_parse(formulas[i], NULL, &f) == TN_OK);
        CHECK_ROW(tni_fuse_grad(f, &g, &rule) == TN_OK, "%s: %s", formulas[i], tn_last_error());
        tn_free(rule);
        call_of c = {.f = g};
        int most = 0;
        for (int k = 0; g && k < g->contract->n_inputs; k++) {
            most = g->contract->inputs[k].shape.count > most ? g->contract->inputs[k].shape.count : most;
        }
        for (int k = 0; g && k < g->contract->n_inputs; k++) {
            int64_t shape[2] = {3, 4};
            const tni_param *input = &g->contract->inputs[k];
            bool narrow = tni_is_row(g, input, NULL) || input->shape.count < most;
            array_make(&c.in[k], TN_F64, input->shape.count == 0 ? 0 : narrow ? 1 : 2, shape, 0);
            array_fill(&c.in[k], 0.3, 2);
        }
        if (g) check_both(formulas[i], &c, true);
        call_free(&c);
        tni_fuse_free(g);
        tni_fuse_free(f);
    }
}

/* ---- random formulas --------------------------------------------------------------------------------------------- */

enum { FORMULAS = 1000 };

/* A nudge to the inputs shows where a formula jumps, or magnifies what is rounded away. */
static bool is_steady(call_of *c, double **want, int k, int64_t at, double tolerance) {
    bool steady = true;
    for (int sign = -1; sign <= 1; sign += 2) {
        call_of near = {.f = c->f};
        for (int i = 0; i < c->f->contract->n_inputs; i++) {
            array_make(&near.in[i], TN_F64, c->in[i].ndim, c->in[i].shape, 0);
            for (int64_t n = 0; n < array_count(&near.in[i]); n++) {
                array_set(&near.in[i], n, array_get(&c->in[i], n) * (1 + sign * 2e-6) + sign * 1e-6);
            }
        }
        if (call_make_outputs(&near, 0) != TN_OK) return false;
        double **moved = ref_run(&near);
        steady &= moved && fabs(moved[k][at] - want[k][at]) < tolerance / 4;
        ref_free(c->f, moved);
        call_free(&near);
    }
    return steady;
}

/* In f32 and bf16: what is computed is f32 in both. */
static void check_narrow(const generator *g, const tni_fuse *f, const int64_t *shape, tn_type type) {
    const char *text = g->text;
    call_of c = {.f = f};
    for (int i = 0; i < f->contract->n_inputs; i++) {
        int64_t own[2];
        int ndim = gen_shape(g, f->contract->inputs[i].name[0], shape[0], shape[1], own);
        array_make(&c.in[i], type, ndim, own, random_below(4));
        array_fill(&c.in[i], -2, 2);
    }
    tn_status status = call_make_outputs(&c, random_below(4));
    double **want = status == TN_OK ? ref_run(&c) : NULL;
    if (status == TN_OK) status = call_run(&c);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    for (int k = 0; status == TN_OK && want && k < f->contract->n_outputs; k++) {
        for (int64_t i = 0; i < array_count(&c.out[k]); i++) {
            double got = array_get(&c.out[k], i), to = want[k][i];
            double tolerance = (1 + fabs(to)) * (type == TN_F32 ? 2e-5 : 8e-3);
            bool same = fabs(got - to) <= tolerance || (got != got && to != to);
            CHECK_ROW(same || !is_steady(&c, want, k, i, tolerance), "%s in %s: output %d[%lld] is %.9g, not %.9g",
                      text, tn_type_name(type), k, (long long)i, got, to);
        }
    }
    ref_free(f, want);
    call_free(&c);
}

static void check_random(uint64_t seed) {
    static generator g;
    tni_fuse *f;
    gen_formula(&g, seed);
    tn_status status = tni_fuse_parse(g.text, NULL, &f);
    CHECK_ROW(status == TN_OK, "%s: %s", g.text, tn_last_error());
    if (status != TN_OK) return;
    call_of c = {.f = f};
    int64_t shape[2] = {1 + random_below(4), 1 + random_below(6)};
    for (int i = 0; i < f->contract->n_inputs; i++) {
        int64_t own[2];
        int ndim = gen_shape(&g, f->contract->inputs[i].name[0], shape[0], shape[1], own);
        array_make(&c.in[i], TN_F64, ndim, own, 0);
        array_fill(&c.in[i], -2, 2);
    }
    check_both(g.text, &c, true);
    call_free(&c);
    check_narrow(&g, f, shape, seed % 2 ? TN_F32 : TN_BF16);
    tni_fuse_free(f);
}

int main(int argc, char **argv) {
    int first = argc > 1 ? atoi(argv[1]) : 1, count = argc > 2 ? atoi(argv[2]) : argc > 1 ? 1 : FORMULAS;
    if (argc < 2) {
        test_texts();
        test_rows();
        test_counts();
        test_twice();
    }
    for (int seed = first; seed < first + count; seed++) check_random((uint64_t)seed);
    printf("%d random formulas from seed %d on\n", count, first);
    return test_end();
}
