/* Pointers that know their tensor. */
#include "index_check.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tni_checks_index(void) {
    const char *set = getenv("TENON_CHECK_INDEX");
    return set && *set && strcmp(set, "0") != 0;
}

/* Indexing and arithmetic are templates, so that they are a better match than those of the plain pointer that it also
 * converts to: what is passed on as such is not checked any more. */
const char tni_checked_text[] =
    "struct tn_report {\n"
    "    int taken, which;\n"
    "    long long index, count;\n"
    "    unsigned block[3], thread[3];\n"
    "    double room[8];\n"
    "};\n"
    "template <class E> struct tn_checked {\n"
    "    E *at, *first;\n"
    "    long long bytes;\n"
    "    tn_report *report;\n"
    "    long long which;\n"
    "    template <class I> __device__ E &operator[](I i) const {\n"
    "        const long long k = at - first + (long long)i, count = bytes / (long long)sizeof(E);\n"
    "        if (k >= 0 && k < count) return first[k];\n"
    "        if (atomicCAS(&report->taken, 0, 1) == 0) {\n"
    "            report->which = (int)which;\n"
    "            report->index = k;\n"
    "            report->count = count;\n"
    "            report->block[0] = blockIdx.x, report->block[1] = blockIdx.y, report->block[2] = blockIdx.z;\n"
    "            report->thread[0] = threadIdx.x, report->thread[1] = threadIdx.y, report->thread[2] = threadIdx.z;\n"
    "        }\n"
    "        return *(E *)report->room;\n"
    "    }\n"
    "    __device__ E &operator*() const { return (*this)[0]; }\n"
    "    __device__ E *operator->() const { return &(*this)[0]; }\n"
    "    template <class I> __device__ tn_checked operator+(I n) const {\n"
    "        tn_checked made = *this;\n"
    "        made.at += n;\n"
    "        return made;\n"
    "    }\n"
    "    template <class I> __device__ tn_checked operator-(I n) const { return *this + -(long long)n; }\n"
    "    template <class I> __device__ tn_checked &operator+=(I n) { at += n; return *this; }\n"
    "    template <class I> __device__ tn_checked &operator-=(I n) { at -= n; return *this; }\n"
    "    __device__ tn_checked &operator++() { ++at; return *this; }\n"
    "    __device__ tn_checked operator++(int) { tn_checked old = *this; ++at; return old; }\n"
    "    __device__ operator E *() const { return at; }\n"
    "};\n";

/* Vectors through such pointers, for texts with tenon/device.cuh: its own are of plain pointers. */
const char tni_checked_vectors[] =
    "namespace tn {\n"
    "template <int N, class E> __device__ vec<E, N> load(const tn_checked<const E> &p, i64 left = N) {\n"
    "    vec<E, N> r;\n"
    "    for (int i = 0; i < N; i++) r.v[i] = i < left ? p[i] : E{};\n"
    "    return r;\n"
    "}\n"
    "template <int N, class E> __device__ vec<E, N> load(const tn_checked<E> &p, i64 left = N) {\n"
    "    return load<N>(tn_checked<const E>{p.at, p.first, p.bytes, p.report, p.which}, left);\n"
    "}\n"
    "template <int N, class E> __device__ void store(const tn_checked<E> &p, const vec<E, N> &a, i64 left = N) {\n"
    "    for (int i = 0; i < N; i++) if (i < left) p[i] = a.v[i];\n"
    "}\n"
    "}\n";

/* `const float *__restrict__ x` becomes `tn_checked<const float> x`; line ends stay. */
static void put_param(tni_text *text, const char *cuda, const tni_cparam *p) {
    tni_text_add(text, "tn_checked<%s%s> %s", p->is_const ? "const " : "", p->type, p->name);
    for (int32_t i = 0; i < p->length; i++) {
        if (cuda[p->at + i] == '\n') tni_text_add(text, "\n");
    }
}

/* ---- pointers that a kernel makes of its parameters -------------------------------------------------------------- */

static const char *skip_space(const char *s) {
    return s + strspn(s, " \t\r\n");
}

static size_t word_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_' || (s[n] == ':' && s[n + 1] == ':') || (n && s[n - 1] == ':'))
        n++;
    return isdigit((unsigned char)*s) ? 0 : n;
}

/* `const float *row = ` at s, behind which one declaration ends: where its name begins; NULL: it is none. */
static const char *pointer_at(const char *s, size_t *length) {
    int words = 0, stars = 0;
    const char *name = NULL;
    for (size_t n; (n = word_length(s)) || *s == '*'; s = skip_space(s + n)) {
        if (*s == '*') {
            stars++;
            n = 1;
            continue;
        }
        name = s;
        *length = n;
        words++;
    }
    if (!name || stars != 1 || words < 2 || s[0] != '=' || s[1] == '=') return NULL;
    for (int depth = 0; *s && (*s != ';' || depth); s++) {
        depth += (*s == '(' || *s == '[' || *s == '{') - (*s == ')' || *s == ']' || *s == '}');
        if (depth == 0 && *s == ',') return NULL;
    }
    return name;
}

/* Copies the text from `from` to `to` with such declarations as `auto row = `, so that they know the tensor too. */
static void put_body(tni_text *text, const char *cuda, const char *clean, int32_t from, int32_t to) {
    bool begins = false;
    for (int32_t i = from; i < to; i++) {
        size_t length;
        const char *name = begins && !isspace((unsigned char)clean[i]) ? pointer_at(clean + i, &length) : NULL;
        if (name) {
            tni_text_add(text, "auto ");
            for (; i < name - clean; i++) {
                if (cuda[i] == '\n') tni_text_add(text, "\n");
            }
        }
        begins = strchr(";{}", clean[i]) != NULL || (begins && isspace((unsigned char)clean[i]));
        tni_text_add(text, "%c", cuda[i]);
    }
}

void tni_put_checked(tni_text *text, const char *cuda, const tni_cfunctions *all, tni_arena *arena) {
    const char *clean = tni_blank_text(cuda, arena);
    int32_t from = 0;
    for (int32_t i = 0; clean && i < all->n; i++) {
        const tni_cfunction *f = &all->functions[i];
        for (int32_t k = 0; k < f->n_params; k++) {
            const tni_cparam *p = &f->params[k];
            if (p->pointers != 1) continue;
            tni_text_add(text, "%.*s", (int)(p->at - from), cuda + from);
            put_param(text, cuda, p);
            from = p->at + p->length;
        }
        tni_text_add(text, "%.*s", (int)(f->body - from), cuda + from);
        put_body(text, cuda, clean, f->body, f->end);
        from = f->end;
    }
    tni_text_put(text, cuda + from);
    text->failed |= !clean;
}

static tn_status say(const tn_call *call, const tn_launch *l, const tni_param_name *names, const tni_report *r) {
    if (!r->taken) return TN_OK;
    const char *name = names[r->which];
    return tn_fail(TN_BAD_VALUE,
                   "%s: kernel %s: %s[%lld] is out of range: %s has %lld elements (block (%u, %u, %u), thread (%u, %u, "
                   "%u)). The usual cause is a missing `if (i < n)`, or a stride or a size that belongs to another "
                   "tensor",
                   call->name, l->name, name, (long long)r->index, name, (long long)r->count, r->block[0], r->block[1],
                   r->block[2], r->thread[0], r->thread[1], r->thread[2]);
}

static tn_status launch(const tn_call *call, const tn_launch *l, int32_t n, const tni_give *give,
                        const tni_param_name *names, void *report) {
    static const tni_report nothing;
    const tn_device host = {TN_CPU, 0};
    void *stream = call->host->stream, *arguments[TNI_MOST_PARAMS];
    tni_checked checked[TNI_MOST_PARAMS];
    tni_report found;
    for (int32_t i = 0; i < n; i++) {
        const tni_give *g = &give[i];
        const tn_view *v = g->how == TNI_GIVE_INPUT    ? tn_in(call, g->index)
                           : g->how == TNI_GIVE_OUTPUT ? tn_out(call, g->index)
                                                       : NULL;
        const bool scratch = g->how == TNI_GIVE_SCRATCH;
        void *data = scratch ? call->workspace : v ? v->data : NULL;
        const int64_t bytes = v ? tn_count(v) * (int64_t)tn_type_size(v->type) : 0;
        checked[i] = (tni_checked){data, data, scratch ? INT64_MAX : bytes, report, i};
        arguments[i] = g->how == TNI_GIVE_VALUE ? (void *)(uintptr_t)&g->bits : (void *)&checked[i];
    }
    TN_TRY(tn_copy(call->device, report, host, &nothing, sizeof nothing, stream));
    TN_TRY(tn_cuda_launch(call, l, arguments));
    TN_TRY(tn_copy(host, &found, call->device, report, sizeof found, stream));
    TN_TRY(tn_stream_wait(call->device, stream));
    return say(call, l, names, &found);
}

tn_status tni_launch_checked(const tn_call *call, const tn_launch *l, int32_t n, const tni_give *give,
                             const tni_param_name *names) {
    tn_block report;
    TN_TRY(tn_device_alloc(call->device, sizeof(tni_report), call->host->stream, &report));
    const tn_status status = launch(call, l, n, give, names, report.data);
    tn_device_free(call->device, report, call->host->stream);
    return status;
}
