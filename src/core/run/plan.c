/* The cache of plans: one for each operator, by everything about a call but its data pointers. */
#include <pthread.h>
#include <string.h>

#include "core/host/hash.h"
#include "plan.h"

enum {
    BUCKETS = 128,
    DEEP = 8, /* plans in a bucket; the oldest gives way */
    KEY_ON_STACK = 192,
};

typedef struct bucket {
    pthread_mutex_t lock;
    tni_plan *first;
} bucket;

struct tni_plans {
    bucket buckets[BUCKETS];
};

/* ---- the key ----------------------------------------------------------------------------------------------------- */

typedef struct key {
    uint64_t *words;
    size_t count;
    uint64_t hash;
} key;

static inline void key_add(key *k, uint64_t word) {
    k->words[k->count++] = word;
    k->hash = tni_hash_add(k->hash, word);
}

static size_t key_most(const tn_function *op, const tn_args *args, bool made) {
    size_t n = 4 + (size_t)op->contract->n_inputs;
    for (int32_t i = 0; i < args->n_in; i++) n += args->in[i] ? 2 + 2 * (size_t)args->in[i]->ndim : 1;
    for (int32_t i = 0; !made && i < args->n_out; i++) n += args->out[i] ? 2 + 2 * (size_t)args->out[i]->ndim : 1;
    for (int32_t i = 0; i < args->n_attrs; i++) {
        const tn_value *v = &args->attrs[i].value;
        n += 2 + (v->kind == TN_ATTR_INTS && v->count > 0 ? (size_t)v->count : 0);
        n += v->kind == TN_ATTR_STR && v->s ? strlen(v->s) / 8 + 1 : 0;
    }
    return n;
}

/* Everything that could make a key wrong or unbounded is left to the slow path and its messages. */
static bool readable(const tn_tensor *t) {
    return t->ndim >= 0 && t->ndim <= TN_MAX_RANK && (t->ndim == 0 || t->shape);
}

static bool can_key(const tn_function *op, const tn_args *args, bool made) {
    if (args->n_in < 0 || args->n_attrs < 0 || args->n_out < 0) return false;
    if ((args->n_in && !args->in) || (args->n_attrs && !args->attrs)) return false;
    if (op->contract->has_lists && !args->lengths) return false;
    for (int32_t i = 0; i < args->n_in; i++) {
        if (args->in[i] && !readable(args->in[i])) return false;
    }
    if (made) return true;
    if (args->n_out && !args->out) return false;
    for (int32_t i = 0; i < args->n_out; i++) {
        if (args->out[i] && !readable(args->out[i])) return false;
    }
    return true;
}

static void add_tensor(key *k, const tn_tensor *t) {
    if (!t) {
        key_add(k, 0);
        return;
    }
    uint64_t dtype = (uint64_t)t->dtype.code << 24 | (uint64_t)t->dtype.bits << 16 | t->dtype.lanes;
    key_add(k, 1 | (uint64_t)(t->strides != NULL) << 1 | (uint64_t)t->ndim << 2 | dtype << 8);
    key_add(k, (uint64_t)(uint32_t)t->device.kind << 32 | (uint32_t)t->device.index);
    for (int32_t d = 0; d < t->ndim; d++) key_add(k, (uint64_t)t->shape[d]);
    for (int32_t d = 0; t->strides && d < t->ndim; d++) key_add(k, (uint64_t)t->strides[d]);
}

/* The attribute's place in the contract; -1 where there is none of this name. */
static int32_t attr_index(const tni_contract *contract, const tn_attr *attr, int32_t i) {
    if (!attr->name) return i < contract->n_attrs ? i : -1;
    for (int32_t a = 0; a < contract->n_attrs; a++) {
        if (strcmp(contract->attrs[a].name, attr->name) == 0) return a;
    }
    return -1;
}

static bool add_attr(key *k, const tni_contract *contract, const tn_attr *attr, int32_t i) {
    int32_t index = attr_index(contract, attr, i);
    const tn_value *v = &attr->value;
    if (index < 0) return false;
    uint64_t head = (uint64_t)index << 40 | (uint64_t)(uint16_t)v->kind << 32;
    switch (v->kind) {
    case TN_ATTR_UNSET: key_add(k, head); return true;
    case TN_ATTR_BOOL: key_add(k, head | v->b); return true;
    case TN_ATTR_TYPE: key_add(k, head | (uint32_t)v->type); return true;
    case TN_ATTR_INT:
    case TN_ATTR_FLOAT: {
        uint64_t bits;
        memcpy(&bits, &v->i, sizeof bits);
        key_add(k, head);
        key_add(k, bits);
        return true;
    }
    case TN_ATTR_INTS:
        if (v->count < 0 || (v->count && !v->ints)) return false;
        key_add(k, head | (uint32_t)v->count);
        for (int32_t j = 0; j < v->count; j++) key_add(k, (uint64_t)v->ints[j]);
        return true;
    case TN_ATTR_STR: {
        if (!v->s) return false;
        size_t length = strlen(v->s);
        key_add(k, head | (uint32_t)length);
        for (size_t j = 0; j < length; j += 8) {
            uint64_t word = 0;
            memcpy(&word, v->s + j, length - j < 8 ? length - j : 8);
            key_add(k, word);
        }
        return true;
    }
    default: return false;
    }
}

/* The place of the first kernel of this name, counted from 1; 0: any kernel; -1: none of this name. */
static int kernel_index(const tn_function *op, const char *name) {
    if (!name) return 0;
    for (int i = 0; op->row->kernels[i].name; i++) {
        if (strcmp(op->row->kernels[i].name, name) == 0) return i + 1;
    }
    return -1;
}

static bool make_key(key *k, const tn_function *op, const tn_args *args, bool made) {
    const tni_contract *contract = op->contract;
    int kernel = kernel_index(op, args->kernel);
    if (kernel < 0) return false;
    key_add(k,
            (uint64_t)kernel << 32 | (uint64_t)(uint16_t)args->n_in << 16 | (uint64_t)(uint8_t)args->n_out << 8 | made);
    if (contract->has_lists) {
        for (int32_t i = 0; i < contract->n_inputs; i++) key_add(k, (uint64_t)args->lengths[i]);
    }
    for (int32_t i = 0; i < args->n_in; i++) add_tensor(k, args->in[i]);
    for (int32_t i = 0; !made && i < args->n_out; i++) add_tensor(k, args->out[i]);
    for (int32_t i = 0; i < args->n_attrs; i++) {
        if (!add_attr(k, contract, &args->attrs[i], i)) return false;
    }
    return true;
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

static struct tni_plans *plans_new(void) {
    struct tni_plans *plans = tni_calloc(1, sizeof *plans);
    for (int i = 0; plans && i < BUCKETS; i++) pthread_mutex_init(&plans->buckets[i].lock, NULL);
    return plans;
}

static void let_go(tni_plan *plan) {
    if (atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) == 1) tni_plan_free(plan);
}

static void plans_free(struct tni_plans *plans) {
    if (!plans) return;
    for (int i = 0; i < BUCKETS; i++) {
        for (tni_plan *p = plans->buckets[i].first, *next; p; p = next) {
            next = p->next;
            let_go(p);
        }
        pthread_mutex_destroy(&plans->buckets[i].lock);
    }
    tni_free(plans);
}

void tni_plans_free(tn_function *op) {
    plans_free(atomic_exchange(&op->plans, NULL));
}

/* A fork may have happened while another thread held a bucket's lock. The child forgets the plans: they are made anew
 * when they are needed, and what the parent's threads were doing to them does not matter. */
static void forget_plans(void) {
    for (int i = 0; i < tn_function_count(); i++) {
        atomic_store(&((tn_function *)tn_function_at(i))->plans, NULL);
    }
    for (tn_function *op = tni_operators_kept(); op; op = op->next) atomic_store(&op->plans, NULL);
    tni_operators_unlock();
}

static void watch_forks(void) {
    pthread_atfork(tni_operators_lock, tni_operators_unlock, forget_plans);
}

static struct tni_plans *plans_of(const tn_function *op) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tni_plans *plans = atomic_load_explicit(&op->plans, memory_order_acquire);
    if (plans) return plans;
    pthread_once(&once, watch_forks);
    struct tni_plans *fresh = plans_new();
    if (!fresh) return NULL;
    if (atomic_compare_exchange_strong(&((tn_function *)op)->plans, &plans, fresh)) return fresh;
    plans_free(fresh);
    return plans;
}

static tni_plan *find(bucket *b, const key *k) {
    pthread_mutex_lock(&b->lock);
    tni_plan *plan = b->first;
    while (plan && (plan->hash != k->hash || plan->n_key != k->count ||
                    memcmp(plan->key, k->words, k->count * sizeof *k->words) != 0)) {
        plan = plan->next;
    }
    if (plan) atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&b->lock);
    return plan;
}

/* The bucket holds a reference of its own to each of its plans. */
static void insert(bucket *b, tni_plan *plan) {
    tni_plan *dropped = NULL;
    pthread_mutex_lock(&b->lock);
    plan->next = b->first;
    b->first = plan;
    int depth = 1;
    for (tni_plan *p = plan; p->next; p = p->next) {
        if (++depth > DEEP) {
            dropped = p->next;
            p->next = NULL;
            break;
        }
    }
    pthread_mutex_unlock(&b->lock);
    if (dropped) let_go(dropped);
}

void tni_plan_release(tni_plan *plan) {
    const tn_function *op = plan->op;
    let_go(plan);
    tni_operator_let_go(op);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static tn_status get_keyed(const tn_function *op, const tn_args *args, bool made, const key *k, tni_plan **plan) {
    struct tni_plans *plans = plans_of(op);
    if (!plans) return TN_NO_MEMORY;
    bucket *b = &plans->buckets[(k->hash >> 32) % BUCKETS];
    *plan = find(b, k);
    if (*plan) return TN_OK;
    TN_TRY(tni_plan_make(op, args, made, plan));
    uint64_t *copy = tni_arena_alloc((*plan)->arena, k->count * sizeof *copy);
    if (!copy) {
        tni_plan_free(*plan);
        return TN_NO_MEMORY;
    }
    memcpy(copy, k->words, k->count * sizeof *copy);
    (*plan)->key = copy;
    (*plan)->n_key = k->count;
    (*plan)->hash = k->hash;
    atomic_store(&(*plan)->refs, 2); /* the bucket's and the caller's */
    insert(b, *plan);
    return TN_OK;
}

tn_status tni_plan_get(const tn_function *op, const tn_args *args, bool made, tni_plan **plan) {
    uint64_t on_stack[KEY_ON_STACK];
    key k = {.words = on_stack};
    bool keyed = can_key(op, args, made);
    size_t most = keyed ? key_most(op, args, made) : 0;
    if (most > KEY_ON_STACK) {
        k.words = tni_malloc(most * sizeof *k.words);
        if (!k.words) return TN_NO_MEMORY;
    }
    tn_status status;
    tni_operator_hold(op); /* until the plan is given back */
    if (keyed && make_key(&k, op, args, made)) {
        status = get_keyed(op, args, made, &k, plan);
    } else {
        status = tni_plan_make(op, args, made, plan); /* most likely a message; never kept */
        if (status == TN_OK) atomic_store(&(*plan)->refs, 1);
    }
    if (k.words != on_stack) tni_free(k.words);
    if (status != TN_OK) tni_operator_let_go(op);
    return status;
}
