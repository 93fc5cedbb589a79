/* Takes windows out of a graph. A part of an argument is a view of it: another pointer, size and strides. So each
 * output is cut where the formula changes along it, and each piece becomes an output of its own, a view too; in it
 * every window sees elements of one argument, or nothing but zeros. What reduces is cut the same way, and the pieces
 * are added up. What comes out is a graph without windows, over more and smaller arguments, for all that follows.
 *
 * Dimensions: the old ones are those of tni_make_domain. New ones are made for pieces: those of the same whole and the
 * same length are one, so that pieces of equal shape are computed side by side. */
#include <string.h>

#include "planner.h"

enum { MOST_PIECES = 64, MOST_NEW = 32 };

/* Where something along an old dimension changes, and how many classes of elements differ from one another: with two
 * of them every other element is another piece, as where x[::2] is written. */
typedef struct cuts {
    int32_t n;
    int64_t classes; /* 0 means 1 */
    int64_t at[MOST_PIECES];
} cuts;

/* Along an old dimension: element `at` + step * i, where i runs along a new one; -1: the single element `at`. */
typedef struct place {
    int64_t dim, step, at;
} place;

typedef struct region {
    place of[TN_MAX_RANK];
} region;

typedef struct memo {
    struct memo *next;
    region where;
    int32_t made;
} memo;

typedef struct apart {
    tni_binding *b;
    const tni_graph *from;
    const tni_domain *old;
    tni_graph to;
    tni_domain *made;
    uint32_t *mask;                               /* of new nodes, in new dimensions as they were made */
    memo **known;                                 /* of old nodes */
    cuts **cut;                                   /* (nodes, dims) NULL: none */
    int32_t root[TN_MAX_RANK], rank[TN_MAX_RANK]; /* of old dimensions: the whole they are parts of; their order */
    int32_t n_new, n_in, n_out;
    struct {
        int32_t root, rank;
        int64_t size;
    } fresh[MOST_NEW];
    int32_t outputs[TNI_MAX_VIEWS];
} apart;

static tn_status too_many(const apart *a, const char *what, int most) {
    return tn_fail(TN_UNSUPPORTED, "%s: its parts make more than %d %s", a->b->f->contract->name, most, what);
}

/* ---- where things change ----------------------------------------------------------------------------------------- */

static bool add_cut(cuts *c, int64_t at, int64_t size) {
    int32_t i = 0;
    if (at <= 0 || at >= size) return true;
    while (i < c->n && c->at[i] < at) i++;
    if (i < c->n && c->at[i] == at) return true;
    if (c->n == MOST_PIECES - 1) return false;
    memmove(&c->at[i + 1], &c->at[i], (size_t)(c->n - i) * sizeof *c->at);
    c->at[i] = at;
    c->n++;
    return true;
}

static const cuts *cuts_of(const apart *a, int32_t node, int dim) {
    return node >= 0 && dim >= 0 ? a->cut[node * a->old->n_dims + dim] : NULL;
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t classes_of(const cuts *c) {
    return c && c->classes > 1 ? c->classes : 1;
}

static bool add_classes(cuts *c, int64_t classes) {
    const int64_t own = classes_of(c);
    c->classes = own / gcd(own, classes) * classes;
    return c->classes <= MOST_PIECES;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b > 0);
}

/* How the elements of a result are those of an argument: element begin + step * i, or (begin + i) / step, or those
 * from the end. */
typedef struct sight {
    int64_t begin, step, length;
    bool spreads, turned;
} sight;

static sight view_of(const apart *a, const tni_gnode *node) {
    const int64_t length = a->old->windows[node->kind].length;
    if (node->op != TNI_P_TAKE) return (sight){.step = 1, .length = length, .turned = node->op == TNI_P_FLIP};
    return (sight){.begin = a->old->windows[node->kind].begin,
                   .step = a->old->windows[node->kind].step,
                   .length = length,
                   .spreads = a->old->windows[node->kind].spreads};
}

/* The same from the argument's side. */
static sight view_back(sight v) {
    v.begin = -v.begin;
    v.spreads = !v.spreads;
    return v;
}

/* The first element of the result that shows one from `at` on. */
static int64_t see_cut(const sight *v, int64_t at) {
    if (v->turned) return v->length - at;
    return v->spreads ? at * v->step - v->begin : ceil_div(at - v->begin, v->step);
}

/* Those of an argument, as the result sees them. */
static bool see_cuts(cuts *c, const cuts *of, const sight *v, int64_t size) {
    const int64_t classes = classes_of(of);
    bool fits = add_classes(c, v->spreads ? classes * v->step : classes / gcd(classes, v->step));
    for (int32_t i = 0; of && i < of->n && fits; i++) fits = add_cut(c, see_cut(v, of->at[i]), size);
    return fits;
}

static bool find_cuts(const apart *a, int32_t i, int d, cuts *c) {
    const tni_gnode *node = &a->from->nodes[i];
    const int64_t size = a->old->size[d];
    bool fits = true;
    *c = (cuts){0};
    if (tni_is_part(node->op) && a->old->windows[node->kind].to == d) {
        const sight v = view_of(a, node);
        fits = see_cuts(c, cuts_of(a, node->arg[0], a->old->windows[node->kind].from), &v, size);
        if (node->op == TNI_P_JOIN) {
            fits &= see_cuts(c, cuts_of(a, node->arg[1], d), &v, size);
            fits &= add_cut(c, a->old->windows[node->kind].begin, size);
        }
        if (node->op == TNI_P_TAKE) {
            fits &= add_cut(c, see_cut(&v, 0), size) && add_cut(c, see_cut(&v, v.length), size);
        }
        return fits;
    }
    const int taken = node->op == TNI_P_EXPAND || node->op == TNI_P_SUM_TO ? 1 : 3;
    const sight same = {.step = 1};
    for (int k = 0; k < taken && node->arg[k] >= 0; k++) {
        const bool has = a->b->mask[node->arg[k]] >> d & 1;
        if (has) fits &= see_cuts(c, cuts_of(a, node->arg[k], d), &same, size);
    }
    return fits;
}

/* More cuts of a node along an old dimension. */
static tn_status keep_cuts(apart *a, int32_t node, int d, const cuts *more, bool *grown) {
    cuts **kept = &a->cut[node * a->old->n_dims + d];
    if (!more->n && classes_of(more) == 1) return TN_OK;
    if (!*kept) {
        *kept = tni_arena_alloc(a->b->arena, sizeof **kept);
        if (!*kept) return TN_NO_MEMORY;
        **kept = (cuts){0};
    }
    const int32_t before = (*kept)->n;
    const int64_t classes = classes_of(*kept);
    bool fits = add_classes(*kept, classes_of(more));
    for (int32_t i = 0; i < more->n && fits; i++) fits = add_cut(*kept, more->at[i], a->old->size[d]);
    *grown |= (*kept)->n > before || classes_of(*kept) > classes;
    return fits ? TN_OK : too_many(a, "pieces along a dimension", MOST_PIECES);
}

static tn_status find_all_cuts(apart *a, bool *grown) {
    for (int32_t i = 0; i < a->from->n; i++) {
        for (int d = 0; d < a->old->n_dims; d++) {
            cuts found;
            if (!(a->b->mask[i] >> d & 1)) continue;
            if (!find_cuts(a, i, d, &found)) return too_many(a, "pieces along a dimension", MOST_PIECES);
            TN_TRY(keep_cuts(a, i, d, &found, grown));
        }
    }
    return TN_OK;
}

/* ---- values that are compared ------------------------------------------------------------------------------------ */

/* The gradient of a maximum asks which elements equal it. A sum may have other bits in another piece, so a value that
 * is made of sums has to be made in the same pieces for the maximum and for the comparison: then all that is computed
 * with it is cut where it is, along the dimensions of the sums. */
static tn_status compared_dims(const apart *a, uint32_t *dims) {
    uint32_t *sums = tni_arena_alloc(a->b->arena, ((size_t)a->from->n + 1) * sizeof *sums), found = 0;
    bool equal = false;
    if (!sums) return TN_NO_MEMORY;
    for (int32_t i = 0; i < a->from->n; i++) {
        const tni_gnode *node = &a->from->nodes[i];
        const uint32_t mask = a->b->mask[i];
        const bool adds = node->op == TNI_P_SUM || node->op == TNI_P_SUM_TO || node->op == TNI_P_PROD;
        sums[i] = adds && a->b->mask[node->arg[0]] & ~mask ? mask : 0;
        for (int k = 0; k < 3 && node->arg[k] >= 0; k++) sums[i] |= sums[node->arg[k]];
        equal |= node->op == TNI_P_EQ;
        if (node->op == TNI_P_RMAX || node->op == TNI_P_RMIN) found |= sums[i];
    }
    *dims = 0;
    for (int d = 0; d < a->old->n_dims && equal; d++) {
        for (int k = 0; k < a->old->n_dims; k++) {
            if (found >> k & 1 && a->root[k] == a->root[d]) *dims |= 1u << d; /* also of parts, and of the whole */
        }
    }
    return TN_OK;
}

/* What a node's cuts along d are in its argument k, along *of. False: the argument has none there. */
static bool cuts_for_argument(const apart *a, int32_t i, int k, int d, int *of, cuts *c) {
    const tni_gnode *node = &a->from->nodes[i];
    const cuts *own = cuts_of(a, i, d);
    sight v = {.step = 1};
    *of = d;
    *c = (cuts){0};
    if (tni_is_part(node->op) && a->old->windows[node->kind].to == d && !(node->op == TNI_P_JOIN && k == 1)) {
        *of = a->old->windows[node->kind].from;
        v = view_back(view_of(a, node));
    }
    const bool has = *of >= 0 && a->b->mask[node->arg[k]] >> *of & 1;
    /* Where all of a result is alike, nothing says how the elements beside its own are cut. */
    if (own && own->n == 0 && classes_of(own) == 1) return false;
    return own && has && see_cuts(c, own, &v, a->old->size[*of]);
}

static tn_status give_cuts_back(apart *a, uint32_t dims, bool *grown) {
    for (int32_t i = a->from->n - 1; i >= 0; i--) {
        const tni_gnode *node = &a->from->nodes[i];
        const int taken = node->op == TNI_P_EXPAND || node->op == TNI_P_SUM_TO ? 1 : 3;
        for (int k = 0; k < taken && node->arg[k] >= 0; k++) {
            for (int d = 0; d < a->old->n_dims; d++) {
                cuts c;
                int of;
                if (!(a->b->mask[i] & dims & 1u << d) || !cuts_for_argument(a, i, k, d, &of, &c)) continue;
                TN_TRY(keep_cuts(a, node->arg[k], of, &c, grown));
            }
        }
    }
    return TN_OK;
}

static tn_status cut_all(apart *a) {
    const size_t count = (size_t)a->from->n * (size_t)a->old->n_dims + 1;
    uint32_t dims;
    bool grown = false;
    a->cut = tni_arena_alloc(a->b->arena, count * sizeof *a->cut);
    if (!a->cut) return TN_NO_MEMORY;
    memset(a->cut, 0, count * sizeof *a->cut);
    TN_TRY(compared_dims(a, &dims));
    TN_TRY(find_all_cuts(a, &grown));
    while (grown && dims) {
        grown = false;
        TN_TRY(give_cuts_back(a, dims, &grown));
        TN_TRY(find_all_cuts(a, &grown));
    }
    return TN_OK;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

/* A new dimension for a piece of old dimension d, none of `used`; -1: a single element has none, -2: too many. */
static int32_t new_dim(apart *a, int d, int64_t size, uint32_t used) {
    if (size == 1) return -1;
    for (int32_t k = 0; k < a->n_new; k++) {
        if (!(used >> k & 1) && a->fresh[k].root == a->root[d] && a->fresh[k].size == size) return k;
    }
    if (a->n_new == MOST_NEW) return -2;
    a->fresh[a->n_new].root = a->root[d];
    a->fresh[a->n_new].rank = a->rank[d];
    a->fresh[a->n_new].size = size;
    return a->n_new++;
}

static uint32_t used_in(const region *r) {
    uint32_t used = 0;
    for (int d = 0; d < TN_MAX_RANK; d++) used |= r->of[d].dim >= 0 ? 1u << r->of[d].dim : 0;
    return used;
}

/* The new dimensions of a value in a region. */
static uint32_t mask_in(const region *r, uint32_t mask) {
    uint32_t made = 0;
    for (int d = 0; d < TN_MAX_RANK; d++) made |= mask >> d & 1 && r->of[d].dim >= 0 ? 1u << r->of[d].dim : 0;
    return made;
}

static region restricted(const region *r, uint32_t mask) {
    region made = *r;
    for (int d = 0; d < TN_MAX_RANK; d++) {
        if (!(mask >> d & 1)) made.of[d] = (place){.dim = -1};
    }
    return made;
}

static int64_t count_at(const apart *a, const place *p) {
    return p->dim < 0 ? 1 : a->fresh[p->dim].size;
}

/* Does all of a place lie from `begin` on, before `end`? */
static bool is_within(const apart *a, const place *p, int64_t begin, int64_t end) {
    const int64_t n = count_at(a, p), last = p->at + p->step * (n - 1);
    return n > 0 && p->at >= begin && p->at < end && last >= begin && last < end;
}

/* The pieces of old dimension d in a node, one after the other: piece k of a region. False: there are no more. */
static bool piece(const apart *a, int32_t node, int d, int32_t k, int64_t *begin, int64_t *end) {
    const cuts *c = cuts_of(a, node, d);
    const int32_t n = c ? c->n : 0;
    if (k > n) return false;
    *begin = k ? c->at[k - 1] : 0;
    *end = k < n ? c->at[k] : a->old->size[d];
    return true;
}

typedef enum found { THERE, NOTHING, NO_MORE } found;

/* Piece number `which` of all dimensions in `mask`, into the region. NOTHING: no element is of its classes. */
static tn_status enter_piece(apart *a, int32_t node, uint32_t mask, int64_t which, region *r, found *made) {
    int64_t number[TN_MAX_RANK] = {0};
    for (int d = 0; d < a->old->n_dims; d++) {
        const cuts *c = mask >> d & 1 ? cuts_of(a, node, d) : NULL;
        const int64_t n = (c ? c->n + 1 : 1) * classes_of(c);
        number[d] = which % n;
        which /= n;
    }
    *made = which ? NO_MORE : THERE;
    for (int d = 0; d < a->old->n_dims && *made == THERE; d++) {
        int64_t begin = 0, end = 0;
        if (!(mask >> d & 1)) continue;
        const int64_t classes = classes_of(cuts_of(a, node, d));
        piece(a, node, d, (int32_t)(number[d] / classes), &begin, &end);
        begin += (number[d] % classes - begin % classes + classes) % classes;
        const int64_t size = begin < end ? ceil_div(end - begin, classes) : 0;
        if (!size && a->old->size[d]) {
            *made = NOTHING;
            break;
        }
        const int32_t dim = new_dim(a, d, size, used_in(r));
        if (dim == -2) return too_many(a, "dimensions", MOST_NEW);
        r->of[d] = (place){.dim = dim, .step = dim >= 0 ? classes : 0, .at = begin};
    }
    return TN_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int32_t evaluate(apart *a, int32_t node, const region *r);

static int32_t add_node(apart *a, const tni_gnode *node, uint32_t mask) {
    const int32_t made = tni_node_as_is(&a->to, node);
    if (made >= 0) a->mask[made] = mask;
    return made;
}

static bool is_zero(const apart *a, int32_t node) {
    return a->to.nodes[node].op == TNI_P_CONST && a->to.nodes[node].value == 0;
}

static int32_t zero_like(apart *a, const tni_gnode *node) {
    const tni_gnode zero = {.op = TNI_P_CONST, .type = node->type, .arg = TNI_NO_ARGS, .ref = -1};
    return add_node(a, &zero, 0);
}

static int32_t fail(apart *a, tn_status status) {
    if (a->to.status == TN_OK) a->to.status = status;
    return -1;
}

static int32_t make_input(apart *a, const tni_gnode *node, const region *r, uint32_t mask) {
    tni_gnode view = *node;
    if (a->n_in == TNI_MAX_VIEWS) return fail(a, too_many(a, "views of arguments", TNI_MAX_VIEWS));
    view.ref = a->n_in++;
    a->made->in[view.ref] = a->old->in[node->ref];
    a->made->in[view.ref].mask = mask_in(r, mask);
    memset(a->made->in[view.ref].strides, 0, sizeof a->made->in[view.ref].strides);
    for (int d = 0; d < a->old->n_dims; d++) {
        const int64_t stride = a->old->in[node->ref].strides[d];
        if (!(mask >> d & 1)) continue;
        a->made->in[view.ref].offset += r->of[d].at * stride;
        if (r->of[d].dim >= 0) a->made->in[view.ref].strides[r->of[d].dim] = r->of[d].step * stride;
    }
    return add_node(a, &view, mask_in(r, mask));
}

/* In all dimensions of a region. */
static int32_t repeated(apart *a, int32_t node, uint32_t mask) {
    if (node < 0 || a->mask[node] == mask) return node;
    const tni_gnode whole = {
        .op = TNI_P_EXPAND, .type = a->to.nodes[node].type, .kind = mask, .arg = TNI_TWO_ARGS(node, node), .ref = -1};
    return add_node(a, &whole, mask | a->mask[node]);
}

static int32_t make_window(apart *a, const tni_gnode *node, const region *r) {
    const int from = a->old->windows[node->kind].from, to = a->old->windows[node->kind].to;
    const place seen = to >= 0 ? r->of[to] : (place){.dim = -1};
    const sight v = view_of(a, node);
    region inner = *r;
    if (node->op == TNI_P_JOIN) {
        return evaluate(a, node->arg[is_within(a, &seen, 0, a->old->windows[node->kind].begin) ? 0 : 1], r);
    }
    place moved = {.dim = seen.dim, .step = seen.step * v.step, .at = v.begin + seen.at * v.step};
    if (v.spreads) { /* its elements are of one class, all of them or none */
        const int64_t at = v.begin + seen.at;
        if (at % v.step) return zero_like(a, node);
        moved = (place){.dim = seen.dim, .step = seen.step / v.step, .at = at / v.step};
    }
    if (v.turned) moved = (place){.dim = seen.dim, .step = -seen.step, .at = v.length - 1 - seen.at};
    if (!is_within(a, &moved, 0, v.length)) return zero_like(a, node);
    if (to >= 0) inner.of[to] = (place){.dim = -1};
    if (from >= 0) inner.of[from] = moved;
    return evaluate(a, node->arg[0], &inner);
}

/* One piece after the other, and what they come to together. */
static int32_t make_reduction(apart *a, const tni_gnode *node, const region *r, uint32_t gone) {
    const int32_t arg = node->arg[0];
    const int op = node->op == TNI_P_SUM_TO ? TNI_P_SUM : node->op;
    const int both = op == TNI_P_RMAX   ? TNI_P_MAX
                     : op == TNI_P_RMIN ? TNI_P_MIN
                     : op == TNI_P_PROD ? TNI_P_MUL
                                        : TNI_P_ADD;
    int32_t all = -1;
    for (int64_t k = 0;; k++) {
        region inner = *r;
        found which;
        tn_status status = enter_piece(a, arg, gone, k, &inner, &which);
        if (status != TN_OK) return fail(a, status);
        if (which == NO_MORE) return all;
        if (which == NOTHING) continue;
        int32_t part = evaluate(a, arg, &inner);
        if (part < 0) return -1;
        const uint32_t along = mask_in(&inner, gone);
        if (op == TNI_P_SUM && is_zero(a, part)) {
            part = zero_like(a, node);
        } else if (along) {
            part = repeated(a, part, a->mask[part] | along);
            tni_gnode made = *node;
            made.op = (uint8_t)op;
            made.kind = along; /* becomes items when the dimensions have their order */
            made.arg[0] = part;
            made.arg[1] = -1;
            part = part < 0 ? -1 : add_node(a, &made, a->mask[part] & ~along);
        }
        if (part < 0) return -1;
        if (all < 0 || (op == TNI_P_SUM && is_zero(a, all))) {
            all = part;
        } else if (!(op == TNI_P_SUM && is_zero(a, part))) {
            const tni_gnode joined = {
                .op = (uint8_t)both, .type = node->type, .arg = TNI_TWO_ARGS(all, part), .ref = -1};
            all = add_node(a, &joined, a->mask[all] | a->mask[part]);
        }
    }
}

static int32_t make_operation(apart *a, const tni_gnode *node, const region *r) {
    tni_gnode made = *node;
    uint32_t mask = 0;
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) {
        made.arg[k] = evaluate(a, node->arg[k], r);
        if (made.arg[k] < 0) return -1;
        mask |= a->mask[made.arg[k]];
    }
    for (int k = 0; k < 2 && node->op == TNI_P_ADD; k++) { /* a gradient from elsewhere */
        const int32_t other = made.arg[1 - k];
        if (is_zero(a, made.arg[k]) && a->to.nodes[other].type == node->type) return other;
    }
    return add_node(a, &made, mask);
}

static int32_t whole_number(apart *a, const tni_gnode *node, int64_t value) {
    const tni_gnode made = {
        .op = TNI_P_CONST, .type = node->type, .arg = TNI_NO_ARGS, .ref = -1, .value = (double)value};
    return add_node(a, &made, 0);
}

/* a op b, of positions */
static int32_t combine(apart *a, const tni_gnode *node, tni_prim op, int32_t one, int32_t other) {
    const tni_gnode made = {.op = (uint8_t)op, .type = node->type, .arg = TNI_TWO_ARGS(one, other), .ref = -1};
    return one < 0 || other < 0 ? -1 : add_node(a, &made, a->mask[one] | a->mask[other]);
}

/* The position of an element: where the region begins, and so many further on along each of its dimensions. */
static int32_t make_index(apart *a, const tni_gnode *node, const region *r, uint32_t mask) {
    int64_t strides[TN_MAX_RANK] = {0}, begin = 0;
    tni_mask_strides(a->old, tni_reduced_mask(a->old, node->kind, mask), strides);
    int32_t all = -1;
    for (int d = 0; d < a->old->n_dims; d++) {
        const place *p = &r->of[d];
        if (!(mask >> d & 1)) continue;
        begin += strides[d] * p->at;
        if (p->dim < 0 || strides[d] == 0) continue;
        const uint32_t along = 1u << p->dim; /* becomes an item when the dimensions have their order */
        const tni_gnode index = {
            .op = TNI_P_INDEX, .type = node->type, .kind = along, .arg = TNI_NO_ARGS, .ref = (int32_t)along};
        const int64_t step = strides[d] * p->step;
        int32_t part = add_node(a, &index, along);
        if (step != 1) part = combine(a, node, TNI_P_MUL, part, whole_number(a, node, step));
        all = all < 0 ? part : combine(a, node, TNI_P_ADD, all, part);
        if (all < 0) return -1;
    }
    const int32_t first = all < 0 || begin != 0 ? whole_number(a, node, begin) : -1;
    return all < 0 ? first : first < 0 ? all : combine(a, node, TNI_P_ADD, all, first);
}

static int32_t make(apart *a, int32_t i, const region *r) {
    const tni_gnode *node = &a->from->nodes[i];
    const uint32_t mask = a->b->mask[i];
    if (node->op == TNI_P_INPUT) return make_input(a, node, r, mask);
    if (node->op == TNI_P_INDEX) return make_index(a, node, r, mask);
    if (tni_prims[node->op].arity == 0) return add_node(a, node, 0);
    if (tni_is_part(node->op)) return make_window(a, node, r);
    if (node->op == TNI_P_EXPAND) return repeated(a, evaluate(a, node->arg[0], r), mask_in(r, mask));
    if (tni_is_reduction(node->op) || node->op == TNI_P_SUM_TO) {
        const uint32_t gone = a->b->mask[node->arg[0]] & ~mask;
        return gone ? make_reduction(a, node, r, gone) : evaluate(a, node->arg[0], r);
    }
    return make_operation(a, node, r);
}

/* A node in a region, once. */
static int32_t evaluate(apart *a, int32_t node, const region *r) {
    const region where = restricted(r, a->b->mask[node]);
    if (a->to.status != TN_OK) return -1;
    for (const memo *m = a->known[node]; m; m = m->next) {
        if (memcmp(&m->where, &where, sizeof where) == 0) return m->made;
    }
    const int32_t made = make(a, node, &where);
    memo *kept = made < 0 ? NULL : tni_arena_alloc(a->b->arena, sizeof *kept);
    if (!kept) return made < 0 ? -1 : fail(a, TN_NO_MEMORY);
    *kept = (memo){a->known[node], where, made};
    a->known[node] = kept;
    return made;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static tn_status check_output(const apart *a, int32_t i, int32_t node) {
    const tni_contract *c = a->b->f->contract;
    const uint32_t extra = a->b->mask[node] & ~a->old->out[i].mask;
    if (!extra) return TN_OK;
    return tn_fail(TN_BAD_SHAPE, "%s: the formula gives %s a dimension of %lld elements that its shape does not have",
                   c->name, c->outputs[i].name, (long long)a->old->size[__builtin_ctz(extra)]);
}

static tn_status add_output(apart *a, int32_t i, int32_t node, const region *r) {
    enum { MOST = 2 * TNI_MAX_ARGS };
    const uint32_t mask = a->old->out[i].mask;
    if (a->n_out == MOST) return too_many(a, "views of results", MOST);
    const int32_t k = a->n_out++;
    a->outputs[k] = evaluate(a, node, r);
    if (a->outputs[k] < 0) return a->to.status;
    a->made->out[k] = a->old->out[i];
    a->made->out[k].mask = mask_in(r, mask);
    memset(a->made->out[k].strides, 0, sizeof a->made->out[k].strides);
    for (int d = 0; d < a->old->n_dims; d++) {
        if (!(mask >> d & 1)) continue;
        a->made->out[k].offset += r->of[d].at * a->old->out[i].strides[d];
        if (r->of[d].dim >= 0) a->made->out[k].strides[r->of[d].dim] = r->of[d].step * a->old->out[i].strides[d];
    }
    return TN_OK;
}

static tn_status make_outputs(apart *a) {
    for (int32_t i = 0; i < a->b->specialized.n_outputs; i++) {
        const int32_t node = a->b->specialized.outputs[i];
        if (node < 0) continue;
        TN_TRY(check_output(a, i, node));
        for (int64_t k = 0;; k++) {
            region r = restricted(&(region){0}, 0);
            found which;
            TN_TRY(enter_piece(a, node, a->old->out[i].mask, k, &r, &which));
            if (which == NO_MORE) break;
            if (which == THERE) TN_TRY(add_output(a, i, node, &r));
        }
    }
    return TN_OK;
}

/* ---- the new dimensions ------------------------------------------------------------------------------------------ */

/* Old dimensions in the order of the formula, where parts stand beside the whole. */
static void rank_dims(apart *a) {
    const tni_axes *axes = &a->b->f->axes;
    int32_t order[TN_MAX_RANK], n = tni_items_in_order(axes, (1u << axes->n_items) - 1, order), rank = 0;
    for (int32_t k = 0; k < n; k++) {
        int32_t root = order[k];
        while (axes->items[root].source >= 0) root = axes->items[root].source;
        for (int d = 0; d < a->old->n_dims; d++) {
            if (!(a->old->items[order[k]] >> d & 1)) continue;
            a->root[d] = axes->items[order[k]].pack ? TN_MAX_RANK + d : root;
            a->rank[d] = rank++;
        }
    }
}

static uint32_t permuted(uint32_t mask, const int32_t *place_of) {
    uint32_t made = 0;
    for (int k = 0; k < MOST_NEW; k++) made |= mask >> k & 1 ? 1u << place_of[k] : 0;
    return made;
}

static void permute_strides(const apart *a, const int32_t *place_of, int64_t *strides) {
    int64_t given[TN_MAX_RANK];
    memcpy(given, strides, sizeof given);
    for (int32_t k = 0; k < a->n_new; k++) strides[place_of[k]] = given[k];
}

/* In their order, all that was made gets the dimensions' places. */
static tn_status order_dims(apart *a) {
    int32_t place_of[MOST_NEW] = {0};
    tni_domain *made = a->made;
    if (a->n_new > TN_MAX_RANK) return too_many(a, "dimensions", TN_MAX_RANK);
    for (int32_t k = 0; k < a->n_new; k++) {
        for (int32_t i = 0; i < a->n_new; i++) {
            const bool before = a->fresh[i].rank != a->fresh[k].rank ? a->fresh[i].rank < a->fresh[k].rank : i < k;
            place_of[k] += before;
        }
    }
    made->n_dims = a->n_new;
    for (int d = 0; d < TN_MAX_RANK; d++) made->size[d] = 1;
    for (int32_t k = 0; k < a->n_new; k++) made->size[place_of[k]] = a->fresh[k].size;
    for (int32_t k = 0; k < a->n_new; k++) made->items[k] = 1u << k;
    made->tail = a->n_new ? 1u << (a->n_new - 1) : 0;
    for (int32_t i = 0; i < a->n_in; i++) {
        made->in[i].mask = permuted(made->in[i].mask, place_of);
        permute_strides(a, place_of, made->in[i].strides);
    }
    for (int32_t i = 0; i < a->n_out; i++) {
        made->out[i].mask = permuted(made->out[i].mask, place_of);
        permute_strides(a, place_of, made->out[i].strides);
    }
    for (int32_t i = 0; i < a->to.n; i++) {
        tni_gnode *node = &a->to.nodes[i];
        a->mask[i] = permuted(a->mask[i], place_of);
        const bool index = node->op == TNI_P_INDEX;
        if (index) node->ref = (int32_t)permuted((uint32_t)node->ref, place_of);
        if (index || tni_is_reduction(node->op)) node->kind = (uint32_t)tni_over_items(permuted(node->kind, place_of));
    }
    return TN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tn_status take_apart(apart *a) {
    tni_binding *b = a->b;
    a->known = tni_arena_alloc(b->arena, ((size_t)a->from->n + 1) * sizeof *a->known);
    a->mask = tni_arena_alloc(b->arena, (size_t)TNI_FUSE_NODES * sizeof *a->mask);
    if (!a->known || !a->mask) return TN_NO_MEMORY;
    memset(a->known, 0, ((size_t)a->from->n + 1) * sizeof *a->known);
    rank_dims(a);
    TN_TRY(cut_all(a));
    TN_TRY(make_outputs(a));
    if (a->to.status != TN_OK) return a->to.status;
    return order_dims(a);
}

tn_status tni_take_parts_apart(tni_binding *b) {
    apart *a = tni_calloc(1, sizeof *a);
    tni_domain *made = tni_calloc(1, sizeof *made);
    tn_status status = a && made ? TN_OK : TN_NO_MEMORY;
    if (status == TN_OK) {
        *a = (apart){.b = b, .from = &b->specialized.graph, .old = &b->domain, .made = made};
        tni_graph_init(&a->to, b->specialized.graph.fast);
        memcpy(a->to.masks, b->specialized.graph.masks, sizeof a->to.masks);
        a->to.wide = b->specialized.graph.wide;
        status = take_apart(a);
        if (status == TN_OK) {
            tni_graph_clear(&b->specialized.graph);
            b->specialized.graph = a->to;
            b->specialized.n_outputs = a->n_out;
            memcpy(b->specialized.outputs, a->outputs, sizeof b->specialized.outputs);
            b->domain = *made;
            b->mask = a->mask;
        } else {
            tni_graph_clear(&a->to);
        }
    }
    tni_free(made);
    tni_free(a);
    return status;
}
