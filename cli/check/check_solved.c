/* Problems that were solved before. Kernels, instruction sets and rows ask for the same ones over and over, and of a
 * check it is the reference that takes longest: four runs of it for every result that is compared.
 *
 * They are known by 64 bits of all that results and bounds come from. Two that share them by chance would be told apart
 * by their results: a failure once in 10^12 runs, and never a bug that goes unseen. */
#include "check.h"

#include <string.h>

enum { MOST_BYTES = 256 << 20 };

typedef struct solved {
    struct solved *next;
    uint64_t key;
    int32_t n_results;
    result results[];
} solved;

static solved *all;
static size_t held; /* bytes */

static uint64_t mix_bytes(uint64_t key, const void *bytes, size_t n) {
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, bytes = (const char *)bytes + sizeof word) {
        memcpy(&word, bytes, sizeof word);
        key = mix_seed(key, word);
    }
    word = n;
    memcpy(&word, bytes, n);
    return n ? mix_seed(key, word) : key;
}

static uint64_t mix_attr(uint64_t key, const tn_attr *attr) {
    const tn_value *v = &attr->value;
    key = mix_seed(mix_seed(key, hash_text(attr->name)), (uint64_t)v->kind);
    switch (v->kind) {
    case TN_ATTR_INT: return mix_seed(key, (uint64_t)v->i);
    case TN_ATTR_FLOAT: return mix_bytes(key, &v->f, sizeof v->f);
    case TN_ATTR_BOOL: return mix_seed(key, v->b);
    case TN_ATTR_STR: return mix_seed(key, hash_text(v->s));
    case TN_ATTR_TYPE: return mix_seed(key, v->type);
    case TN_ATTR_INTS: return mix_bytes(mix_seed(key, (uint64_t)v->count), v->ints, (size_t)v->count * sizeof *v->ints);
    default: return key;
    }
}

uint64_t solved_key(const problem *p, bool bounds) {
    uint64_t key = mix_seed(mix_seed(p->seed, (uintptr_t)p->op), bounds);
    key = mix_bytes(key, &p->tolerance, sizeof p->tolerance);
    for (int32_t i = 0; i < p->sample->n_attrs; i++) key = mix_attr(key, &p->sample->attrs[i]);
    for (int32_t i = 0; i < p->sample->n_inputs; i++) {
        const tni_sample_input *input = &p->sample->inputs[i];
        key = mix_seed(mix_seed(key, (uint64_t)input->input),
                       (uint64_t)input->type << 32 | (uint32_t)input->shape.ndim);
        key = mix_bytes(key, input->shape.d, (size_t)input->shape.ndim * sizeof *input->shape.d);
        key = mix_bytes(key, p->in[i], (size_t)dims_count(&input->shape) * sizeof *p->in[i]);
    }
    return key;
}

static double *copy_of(const double *numbers, int64_t count) {
    double *copy = tni_malloc((size_t)count * sizeof *copy);
    if (copy) memcpy(copy, numbers, (size_t)count * sizeof *copy);
    return copy;
}

/* False: no memory; what was copied until then is there to be freed. */
static bool copy_results(result *to, int32_t *n_to, const result *from, int32_t n_from) {
    for (*n_to = 0; *n_to < n_from;) {
        const result *r = &from[*n_to];
        result *made = &to[(*n_to)++];
        *made = *r;
        made->value = made->bound = NULL;
        if (r->value && !(made->value = copy_of(r->value, r->count))) return false;
        if (r->bound && !(made->bound = copy_of(r->bound, r->count))) return false;
    }
    return true;
}

static void free_one(solved *s) {
    for (int32_t i = 0; i < s->n_results; i++) {
        tni_free(s->results[i].value);
        tni_free(s->results[i].bound);
    }
    tni_free(s);
}

bool solved_find(uint64_t key, problem *p) {
    for (const solved *s = all; s; s = s->next) {
        if (s->key == key) return copy_results(p->results, &p->n_results, s->results, s->n_results);
    }
    return false;
}

void solved_keep(uint64_t key, const problem *p) {
    size_t own = sizeof(solved) + (size_t)p->n_results * sizeof(result), bytes = own;
    for (int32_t i = 0; i < p->n_results; i++) bytes += (size_t)p->results[i].count * 2 * sizeof(double);
    solved *s = held + bytes <= MOST_BYTES ? tni_calloc(1, own) : NULL;
    if (!s) return;
    s->key = key;
    if (!copy_results(s->results, &s->n_results, p->results, p->n_results)) {
        free_one(s);
        return;
    }
    held += bytes;
    s->next = all;
    all = s;
}

void solved_forget(void) {
    while (all) {
        solved *s = all;
        all = s->next;
        free_one(s);
    }
    held = 0;
}
