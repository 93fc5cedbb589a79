/* Samples: text to shapes and types, wrong texts, random calls. */
#include "core/table/sample.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/host/memory.h"
#include "tests/test.h"

/* Shapes, types and attributes of a case in one line: "x f32[4, 33]; mask bool[1, 33]; axis". */
static const char *describe(const tni_contract *c, const tni_case *k) {
    static char text[1024];
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < k->n_inputs; i++) {
        const tni_sample_input *input = &k->inputs[i];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %s[", n ? "; " : "", c->inputs[input->input].name,
                              tn_type_name(input->type));
        for (int d = 0; d < input->shape.ndim; d++) {
            n += (size_t)snprintf(text + n, sizeof text - n, d ? ",%lld" : "%lld", (long long)input->shape.d[d]);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "]");
        if (input->below) n += (size_t)snprintf(text + n, sizeof text - n, "<%lld", (long long)input->below);
        if (input->positive) n += (size_t)snprintf(text + n, sizeof text - n, ">0");
        if (input->order) n += (size_t)snprintf(text + n, sizeof text - n, " %s", tni_order_name(input->order));
    }
    for (int i = 0; i < k->n_attrs; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "; %s", k->attrs[i].name);
    }
    return text;
}

#define SOFTMAX \
    "softmax(x: T[*s], mask: bool[~*s]?, axis: axis = -1, scale: float = 1.0, causal: bool = false) -> y: T[*s]"
#define LAYER_NORM "layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) -> y: T[*r, c]"
#define CROSS_ENTROPY                                                                                               \
    "cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, reduction: 'mean'|'sum'|'none' = 'mean') -> " \
    "loss: acc(T)[*r if reduction == 'none' else], gx: T[*r, v]?grad"
#define SUM_GRAD                                                                                                  \
    "sum_grad(dy: T[reduce(*shape, axes, keepdim)], shape: ints, axes: axes = [], keepdim: bool = false) -> dx: " \
    "T[*shape]"
#define CONV                                                                                                         \
    "conv2d(x: T[n, c, h, w], f: T[k, c / groups, p, q], b: T[k]?, stride: int = 1, pad: int = 0, groups: int = 1) " \
    "-> y: T[n, k, (h + 2*pad - p) / stride + 1, (w + 2*pad - q) / stride + 1] where c % groups == 0"
#define CONCAT "concat<T: any>(xs: [T[*s]], axis: axis = 0) -> y: T[concat(*s, axis)]"
#define MATMUL "matmul(a: T[*p, m, k], b: T[*q, k, n]) -> y: T[broadcast(*p, *q), m, n]"
#define INDEX_SELECT "index_select<T: any>(x: T[*s], index: i32|i64[n], axis: axis = 0) -> y: T[resize(*s, axis, n)]"
#define INDEX_ADD                                                                                \
    "index_add(dy: T[resize(*shape, axis, n)], index: i32|i64[n], shape: ints, axis: axis = 0) " \
    "-> dx: T[*shape]"
#define ONE_HOT "one_hot(index: i32|i64[*s], classes: int) -> y: i64[*s, classes] where classes >= 0"
#define PERMUTE "permute<T: any>(x: T[*s], dims: ints) -> y: T[permute(*s, dims)]"
#define SPMV "spmv<I: i32 i64>(values: T[nnz], col: I[nnz], row: I[m + 1], x: T[n]) -> y: T[m]"
#define NORM_STEP "step(p: T[*s]!, g: G[*s], var: f32[*s], lr: f32[]) -> y: T[*s]"
#define TOP_K "top_k(x: T[*r, n], k: int, largest: bool = true) -> values: T[*r, k] where k <= n"

static const struct {
    const char *signature, *args;
    tn_type T;
    const char *is;
} good[] = {
    {SOFTMAX, "s=[4, 33] axis=0 mask=[1, 33]", TN_BF16, "x bf16[4,33]; mask bool[1,33]; axis"},
    {SOFTMAX, "s=[4,33] mask", TN_F32, "x f32[4,33]; mask bool[4,33]"},
    {SOFTMAX, " s=[1]  causal ", TN_F32, "x f32[1]; causal"},
    {SOFTMAX, "s=[0, 5] scale=0.5 causal=true", TN_F64, "x f64[0,5]; scale; causal"},
    {LAYER_NORM, "r=[2, 3] c=64", TN_F16, "x f16[2,3,64]"},
    {LAYER_NORM, "r=[2, 3] c=64 gamma beta W=f32", TN_F16, "x f16[2,3,64]; gamma f32[64]; beta f32[64]"},
    {LAYER_NORM, "r=[] c=1 beta eps=0.01", TN_F64, "x f64[1]; beta f64[1]; eps"},
    {CROSS_ENTROPY, "r=[5] v=10 target<v", TN_F32, "x f32[5,10]; target i64[5]<10"},
    {CROSS_ENTROPY, "r=[5] v=10 target<3 target=i32 reduction='sum'", TN_F32,
     "x f32[5,10]; target i32[5]<3; reduction"},
    {CROSS_ENTROPY, "r=[2, 2] v=7 target<v weight weight>0 want_gx=true", TN_BF16,
     "x bf16[2,2,7]; target i64[2,2]<7; weight f32[7]>0; want_gx"},
    {SUM_GRAD, "shape=[4, 33] axes=[1]", TN_F32, "dy f32[4]; shape; axes"},
    {SUM_GRAD, "shape=[4, 33, 2] axes=[-1, 0] keepdim=true", TN_F32, "dy f32[1,33,1]; shape; axes; keepdim"},
    {SUM_GRAD, "shape=[4, 33]", TN_F32, "dy f32[]; shape"},
    {CONV, "n=2 c=8 h=5 w=6 k=4 p=3 q=3 groups=2 b", TN_F32, "x f32[2,8,5,6]; f f32[4,4,3,3]; b f32[4]; groups"},
    {CONCAT, "xs=[[2, 3],[4, 3]]", TN_I32, "xs i32[2,3]; xs i32[4,3]"},
    {CONCAT, "xs=[[2, 3], [2, 0], [2, 1]] axis=1", TN_F32, "xs f32[2,3]; xs f32[2,0]; xs f32[2,1]; axis"},
    {MATMUL, "p=[2, 1] q=[5] m=3 k=4 n=6", TN_F32, "a f32[2,1,3,4]; b f32[5,4,6]"},
    {PERMUTE, "s=[2, 3, 4] dims=[2, 0, 1]", TN_F32, "x f32[2,3,4]; dims"},
    {INDEX_SELECT, "s=[4, 9] n=5 axis=1 index<s[axis]", TN_F32, "x f32[4,9]; index i64[5]<9; axis"},
    {INDEX_SELECT, "s=[4, 9] n=5 axis=-2 index<s[axis]", TN_F32, "x f32[4,9]; index i64[5]<4; axis"},
    {INDEX_ADD, "shape=[4, 9] n=5 axis=1 index<shape[axis]", TN_F32, "dy f32[4,5]; index i64[5]<9; shape; axis"},
    {ONE_HOT, "s=[4] classes=7 index<classes", TN_NO_TYPE, "index i64[4]<7; classes"},
    {SPMV, "nnz=9 m=4 n=5 col<n", TN_F32, "values f32[9]; col i64[9]<5; row i64[5]; x f32[5]"},
    {SPMV, "nnz=9 m=4 n=5 I=i32", TN_F32, "values f32[9]; col i32[9]; row i32[5]; x f32[5]"},
    {SPMV, "nnz=9 m=4 n=5 col<n row=offsets(nnz)", TN_F32,
     "values f32[9]; col i64[9]<5; row i64[5]<10 offsets; x f32[5]"},
    {SPMV, "nnz=3 m=4 n=5 col<n col=unique row=offsets(3) x=sorted x>0", TN_F32,
     "values f32[3]; col i64[3]<5 unique; row i64[5]<4 offsets; x f32[5]>0 sorted"},
    {SPMV, "nnz=9 m=4 n=5 col=permutation I=i32 row<3 row=sorted", TN_F32,
     "values f32[9]; col i32[9]<9 permutation; row i32[5]<3 sorted; x f32[5]"},
    {NORM_STEP, "s=[7] var>0 G=f32", TN_BF16, "p bf16[7]; g f32[7]; var f32[7]>0; lr f32[]"},
    {TOP_K, "r=[3] n=9 k=4", TN_F32, "x f32[3,9]; k"},
};

static const struct {
    const char *signature, *args, *message; /* a part of it */
} wrong[] = {
    {SOFTMAX, "s=[4, 33] axs=0", "nothing is named 'axs'"},
    {SOFTMAX, "axis=0", "does not say s="},
    {SOFTMAX, "s=[4, 33] axis=5", "axis"},
    {SOFTMAX, "s=[]", "x has rank 0"},
    {SOFTMAX, "s=[4, 33] axis=", "no value"},
    {SOFTMAX, "s=[4, 33", "do not match"},
    {SOFTMAX, "s=[4, x]", "expected sizes"},
    {SOFTMAX, "s=[4, -3]", "expected sizes"},
    {SOFTMAX, "s=7", "expected sizes"},
    {SOFTMAX, "s=[4, 33] mask=[7]", "mask"},
    {SOFTMAX, "s=[4] mask=7", "expected a shape"},
    {SOFTMAX, "=4", "expected a name"},
    {SOFTMAX, "s!4", "expected"},
    {SOFTMAX, "s=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "expected sizes"},
    {LAYER_NORM, "r=[2]", "does not say c="},
    {LAYER_NORM, "r=[2] c=x", "expected a size"},
    {LAYER_NORM, "r=[2] c=4 W=i64", "W may not be i64"},
    {LAYER_NORM, "r=[2] c=4 W=f31", "no such type"},
    {LAYER_NORM, "r=[2] c=4 delta", "nothing is named 'delta'"},
    {LAYER_NORM, "r=[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] c=2", "dimensions"},
    {CROSS_ENTROPY, "r=[5] v=10 target<w", "expected a number, a dimension, an int attribute or s[axis]"},
    {CROSS_ENTROPY, "r=[5] v=0 target<v", "nothing below 0"},
    {CROSS_ENTROPY, "r=[5] v=10 goal<v", "no input"},
    {SPMV, "nnz=9 m=4 n=5 col=unique", "say col<n, too"},
    {SPMV, "nnz=9 m=4 n=5 col<n col=unique", "9 different numbers below 5"},
    {SPMV, "nnz=9 m=4 n=5 col<n col=permutation", "col<n is too much"},
    {SPMV, "nnz=9 m=4 n=5 row=offsets", "expected row=offsets(N)"},
    {SPMV, "nnz=9 m=4 n=5 row=offsets(q)", "expected a number or a dimension"},
    {SPMV, "nnz=9 m=0 n=5 row=offsets(nnz)", "1 offsets cannot go from 0 to 9"},
    {SPMV, "nnz=9 m=4 n=5 col=sorted(n)", "expected col=sorted"},
    {SPMV, "nnz=9 m=4 n=5 x=permutation", "x has no integers"},
    {NORM_STEP, "s=[7] lr=sorted", "lr has no dimension"},
    {CROSS_ENTROPY, "r=[5] v=10 weight>1", "only weight>0"},
    {CROSS_ENTROPY, "r=[5] v=10 target=f32", "target"},
    {CROSS_ENTROPY, "r=[5] v=10 reduction='most'", "reduction"},
    {CONV, "n=2 c=7 h=5 w=6 k=4 p=3 q=3 groups=2", "c % groups == 0"},
    {CONV, "n=2 c=7 h=5 w=6 k=4 p=3 q=3 groups=0", "divides by 0"},
    {CONCAT, "xs=[2, 3]", "list of shapes"},
    {CONCAT, "xs=[[2, 3], [4, 5]]", "xs"},
    {TOP_K, "r=[3] n=3 k=4", "k <= n"},
    {TOP_K, "r=[3] n=3", "k"},
};

static tni_contract *parsed(const char *signature) {
    tni_contract *c = NULL;
    if (tni_contract_parse(signature, &c) != TN_OK) {
        printf("%s\n", tn_last_error());
        exit(1);
    }
    return c;
}

static void test_good(void) {
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tni_contract *c = parsed(good[i].signature);
        tni_case *k = NULL;
        tn_status status = tni_sample_case(c, good[i].args, good[i].T, &k);
        CHECK_ROW(status == TN_OK, "%s: %s", good[i].args, tn_last_error());
        if (k) CHECK_ROW(!strcmp(describe(c, k), good[i].is), "%s gives '%s'", good[i].args, describe(c, k));
        tni_case_free(k);
        tni_contract_free(c);
    }
}

static void test_wrong(void) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tni_contract *c = parsed(wrong[i].signature);
        tni_case *k = NULL;
        tn_status status = tni_sample_case(c, wrong[i].args, TN_F32, &k);
        const char *text = tn_last_error();
        CHECK_ROW(status != TN_OK && !k, "%s is accepted", wrong[i].args);
        CHECK_ROW(!strncmp(text, c->name, strlen(c->name)), "'%s' does not name the operator", text);
        CHECK_ROW(strstr(text, wrong[i].args) != NULL, "'%s' does not quote the sample '%s'", text, wrong[i].args);
        CHECK_ROW(strstr(text, wrong[i].message) != NULL, "'%s' does not say '%s'", text, wrong[i].message);
        tni_contract_free(c);
    }
}

static void test_type(void) {
    tni_contract *c = parsed(SOFTMAX);
    tni_case *k = NULL;
    CHECK(tni_sample_case(c, "s=[3]", TN_I32, &k) == TN_BAD_TYPE);
    CHECK(strstr(tn_last_error(), "T may not be i32") != NULL);
    tni_contract_free(c);
}

/* Random calls are what the contract allows, within the limit, all kinds of them, and the same for the same seed. */
static void test_random(void) {
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tni_contract *c = parsed(good[i].signature);
        uint64_t seed = 42, again = 42;
        int ranks = 0, empty = 0, different = 0;
        char first[1024] = "";
        for (int n = 0; n < 300; n++) {
            tni_case *k = NULL, *same = NULL;
            tn_status status = tni_sample_random(c, good[i].args, good[i].T, &seed, 500, &k);
            CHECK_ROW(status == TN_OK, "%s: %s", good[i].args, tn_last_error());
            if (!k) break;
            CHECK(tni_sample_random(c, good[i].args, good[i].T, &again, 500, &same) == TN_OK);
            int64_t count = 1;
            for (int d = 0; d < k->inputs[0].shape.ndim; d++) count *= k->inputs[0].shape.d[d];
            CHECK_ROW(count <= 500, "%lld elements near %s", (long long)count, good[i].args);
            ranks |= 1 << k->inputs[0].shape.ndim;
            empty += count == 0;
            char text[1024];
            snprintf(text, sizeof text, "%s", describe(c, k));
            if (!*first) snprintf(first, sizeof first, "%s", text);
            different += strcmp(text, first) != 0;
            CHECK_ROW(!strcmp(text, describe(c, same)), "'%s' is not the same again", text);
            tni_case_free(k);
            tni_case_free(same);
        }
        CHECK_ROW(different > 100, "only %d calls near %s differ", different, good[i].args);
        CHECK_ROW(empty > 0 && empty < 250, "%d of 300 near %s are empty", empty, good[i].args);
        bool fixed_rank = c->n_packs == 0 || !strcmp(c->name, "concat");
        CHECK_ROW(fixed_rank || (ranks & (ranks - 1)), "always the same rank near %s", good[i].args);
        tni_contract_free(c);
    }
}

/* A broadcast input loses dimensions and gets ones. */
static void test_random_broadcast(void) {
    tni_contract *c = parsed(SOFTMAX);
    uint64_t seed = 3;
    int shorter = 0, ones = 0, whole = 0;
    for (int n = 0; n < 300; n++) {
        tni_case *k = NULL;
        CHECK(tni_sample_random(c, "s=[4, 33] mask", TN_F32, &seed, 500, &k) == TN_OK);
        if (!k) break;
        const tni_dims *x = &k->inputs[0].shape, *mask = &k->inputs[1].shape;
        shorter += mask->ndim < x->ndim;
        for (int d = 0; d < mask->ndim; d++) ones += mask->d[d] == 1 && x->d[x->ndim - mask->ndim + d] > 1;
        whole += mask->ndim == x->ndim && !memcmp(mask->d, x->d, sizeof(int64_t) * (size_t)x->ndim);
        tni_case_free(k);
    }
    CHECK(shorter > 20 && ones > 20 && whole > 20);
    tni_contract_free(c);
}

/* Every allocation may fail: a status, no leak (the sanitizer looks), no crash. */
static void test_no_memory(void) {
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tni_contract *c = parsed(good[i].signature);
        for (int64_t n = 1; n < 1000; n++) {
            tni_case *k = NULL;
            uint64_t seed = 5;
            tni_fail_allocation(n);
            tn_status status = tni_sample_case(c, good[i].args, good[i].T, &k);
            if (status == TN_OK)
                status = (tni_case_free(k), tni_sample_random(c, good[i].args, good[i].T, &seed, 99, &k));
            int64_t asked = tni_fail_allocation(0);
            if (status == TN_OK) tni_case_free(k);
            if (asked < n) break;
            CHECK_ROW(status == TN_NO_MEMORY, "%s: allocation %lld", good[i].args, (long long)n);
        }
        tni_contract_free(c);
    }
}

int main(void) {
    test_good();
    test_wrong();
    test_type();
    test_random();
    test_random_broadcast();
    test_no_memory();
    return test_end();
}
