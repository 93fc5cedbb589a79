/* Hand-written kernels take their arguments by position. The list of an operator's arguments (ops/arguments.h) has the
 * names, the order and the kinds of its contract, and every operator with kernels for the GPU, which are in a file of
 * their own, has such a list. */
#include <tenon/fuse.h>

#include "core/table/table.h"
#include "ops/attention/attention.h"
#include "ops/gemm/gemm.h"
#include "ops/group_norm/group_norm.h"
#include "ops/grouped/grouped_linear.h"
#include "ops/histogram/histogram.h"
#include "ops/index/embedding.h"
#include "ops/index/gather.h"
#include "ops/index/one_hot.h"
#include "ops/index/segment_sum.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/loss/cross_entropy.h"
#include "ops/move/concat.h"
#include "ops/move/move.h"
#include "ops/norm/batch_norm.h"
#include "ops/norm/layer_norm.h"
#include "ops/reduce/extremes.h"
#include "ops/reduce/sum.h"
#include "ops/rope/rope.h"
#include "ops/scaled/scaled_linear.h"
#include "ops/scan/cummax.h"
#include "ops/scan/scan.h"
#include "ops/softmax/softmax.h"
#include "ops/sorting/sorting.h"
#include "ops/triangle/triangle.h"
#include "tests/test.h"

typedef struct arguments {
    const char *op;
    const char *const *inputs, *const *outputs, *const *attrs, *const *kinds; /* NULL ends each */
} arguments;

#define NAME(name) #name,
#define ATTR_NAME(name, kind) #name,
#define ATTR_KIND(name, kind) #kind,
#define NAMES (const char *const[])
#define ROW(op, LIST)                                                                    \
    {                                                                                    \
#op, NAMES{LIST(NAME, TNI_ARG_NONE, TNI_ARG_NONE) NULL },                        \
                   NAMES{LIST(TNI_ARG_NONE, NAME, TNI_ARG_NONE) NULL },                  \
                         NAMES{LIST(TNI_ARG_NONE, TNI_ARG_NONE, ATTR_NAME) NULL },       \
                               NAMES{LIST(TNI_ARG_NONE, TNI_ARG_NONE, ATTR_KIND) NULL }, \
    }

static const arguments lists[] = {
    ROW(softmax, SOFTMAX_ARGUMENTS),
    ROW(softmax_grad, SOFTMAX_GRAD_ARGUMENTS),
    ROW(layer_norm, LAYER_NORM_ARGUMENTS),
    ROW(layer_norm_grad, LAYER_NORM_GRAD_ARGUMENTS),
    ROW(cross_entropy, CROSS_ENTROPY_ARGUMENTS),
    ROW(cross_entropy_inplace, CROSS_ENTROPY_INPLACE_ARGUMENTS),
    ROW(cross_entropy_grad, CROSS_ENTROPY_GRAD_ARGUMENTS),
    ROW(sum, SUM_ARGUMENTS),
    ROW(sum_grad, SUM_GRAD_ARGUMENTS),
    ROW(max, SUM_ARGUMENTS),
    ROW(min, SUM_ARGUMENTS),
    ROW(argmax, ARGMAX_ARGUMENTS),
    ROW(argmin, ARGMAX_ARGUMENTS),
    ROW(batch_norm, BATCH_NORM_ARGUMENTS),
    ROW(batch_norm_grad, BATCH_NORM_GRAD_ARGUMENTS),
    ROW(group_norm, GROUP_NORM_ARGUMENTS),
    ROW(instance_norm, INSTANCE_NORM_ARGUMENTS),
    ROW(linear, LINEAR_ARGUMENTS),
    ROW(linear_grad, LINEAR_GRAD_ARGUMENTS),
    ROW(gated_linear, GATED_LINEAR_ARGUMENTS),
    ROW(grouped_linear, GROUPED_LINEAR_ARGUMENTS),
    ROW(grouped_linear_x_grad, GROUPED_LINEAR_X_GRAD_ARGUMENTS),
    ROW(grouped_linear_w_grad, GROUPED_LINEAR_W_GRAD_ARGUMENTS),
    ROW(linear_int8, SCALED_LINEAR_ARGUMENTS),
    ROW(linear_fp8, SCALED_LINEAR_ARGUMENTS),
    ROW(matmul, MATMUL_ARGUMENTS),
    ROW(matmul_a_grad, MATMUL_A_GRAD_ARGUMENTS),
    ROW(matmul_b_grad, MATMUL_B_GRAD_ARGUMENTS),
    ROW(matmul_add, MATMUL_ADD_ARGUMENTS),
    ROW(linear_cross_entropy, LINEAR_CROSS_ENTROPY_ARGUMENTS),
    ROW(linear_cross_entropy_tokens, LINEAR_CROSS_ENTROPY_TOKENS_ARGUMENTS),
    ROW(linear_cross_entropy_tokens_grad, LINEAR_CROSS_ENTROPY_TOKENS_GRAD_ARGUMENTS),
    ROW(attention, ATTENTION_ARGUMENTS),
    ROW(attention_grad, ATTENTION_GRAD_ARGUMENTS),
    ROW(matvec, MATVEC_ARGUMENTS),
    ROW(vecmat, VECMAT_ARGUMENTS),
    ROW(rope, ROPE_ARGUMENTS),
    ROW(rope_grad, ROPE_GRAD_ARGUMENTS),
    ROW(sort, SORT_ARGUMENTS),
    ROW(sort_grad, SORT_GRAD_ARGUMENTS),
    ROW(top_k, TOP_K_ARGUMENTS),
    ROW(top_k_grad, TOP_K_GRAD_ARGUMENTS),
    ROW(cumsum, CUMSUM_ARGUMENTS),
    ROW(cumsum_grad, CUMSUM_GRAD_ARGUMENTS),
    ROW(cumprod, CUMSUM_ARGUMENTS),
    ROW(cumprod_grad, CUMPROD_GRAD_ARGUMENTS),
    ROW(cumprod_grad_grad, CUMPROD_GRAD_GRAD_ARGUMENTS),
    ROW(cummax, CUMMAX_ARGUMENTS),
    ROW(cummin, CUMMAX_ARGUMENTS),
    ROW(histogram, HISTOGRAM_ARGUMENTS),
    ROW(permute, PERMUTE_ARGUMENTS),
    ROW(permute_grad, PERMUTE_GRAD_ARGUMENTS),
    ROW(concat, CONCAT_ARGUMENTS),
    ROW(pad, PAD_ARGUMENTS),
    ROW(pad_grad, PAD_GRAD_ARGUMENTS),
    ROW(roll, ROLL_ARGUMENTS),
    ROW(roll_grad, ROLL_GRAD_ARGUMENTS),
    ROW(repeat, REPEAT_ARGUMENTS),
    ROW(repeat_grad, REPEAT_GRAD_ARGUMENTS),
    ROW(triu, TRIU_ARGUMENTS),
    ROW(tril, TRIU_ARGUMENTS),
    ROW(embedding, EMBEDDING_ARGUMENTS),
    ROW(embedding_grad, EMBEDDING_GRAD_ARGUMENTS),
    ROW(index_select, INDEX_SELECT_ARGUMENTS),
    ROW(index_select_grad, INDEX_SELECT_GRAD_ARGUMENTS),
    ROW(gather, GATHER_ARGUMENTS),
    ROW(gather_grad, GATHER_GRAD_ARGUMENTS),
    ROW(scatter_add, SCATTER_ADD_ARGUMENTS),
    ROW(segment_sum, SEGMENT_SUM_ARGUMENTS),
    ROW(segment_sum_grad, SEGMENT_SUM_GRAD_ARGUMENTS),
    ROW(segment_sum_offsets, SEGMENT_SUM_OFFSETS_ARGUMENTS),
    ROW(segment_sum_offsets_grad, SEGMENT_SUM_OFFSETS_GRAD_ARGUMENTS),
    ROW(one_hot, ONE_HOT_ARGUMENTS),
};
enum { LISTS = sizeof lists / sizeof *lists };

/* Of the gradients that are derived from these formulas, and have kernels all the same. */
static const arguments gradients[] = {
    ROW(group_norm, GROUP_NORM_GRAD_ARGUMENTS),
    ROW(instance_norm, INSTANCE_NORM_GRAD_ARGUMENTS),
};
enum { GRADIENTS = sizeof gradients / sizeof *gradients };

static const char *const kinds[] = {
    [TNI_A_INT] = "integer",   [TNI_A_FLOAT] = "number",      [TNI_A_BOOL] = "boolean", [TNI_A_STR] = "text",
    [TNI_A_DTYPE] = "type",    [TNI_A_AXIS] = "integer",      [TNI_A_AXES] = "list",    [TNI_A_INTS] = "list",
    [TNI_A_CHOICE] = "choice", [TNI_A_ACTIVATION] = "choice",
};

static void check_tensors(const char *op, const char *const *names, const tni_param *params, int32_t count) {
    int32_t i = 0;
    for (; names[i]; i++) {
        const char *have = i < count ? params[i].name : "nothing";
        CHECK_ROW(strcmp(names[i], have) == 0, "%s: '%s' is at place %d, where the contract has '%s'", op, names[i], i,
                  have);
    }
    CHECK_ROW(i == count, "%s: %d tensors in the list, %d in the contract", op, i, count);
}

static void check_attrs(const arguments *a, const tni_contract *c) {
    int32_t i = 0;
    for (; a->attrs[i]; i++) {
        const tni_attr *attr = i < c->n_attrs ? &c->attrs[i] : NULL;
        CHECK_ROW(attr && !attr->implied && strcmp(attr->name, a->attrs[i]) == 0 &&
                      strcmp(kinds[attr->kind], a->kinds[i]) == 0,
                  "%s: attribute %d is '%s', %s, in the list; the contract has '%s', %s", a->op, i, a->attrs[i],
                  a->kinds[i], attr ? attr->name : "nothing", attr ? kinds[attr->kind] : "");
    }
    CHECK_ROW(i == c->n_attrs || c->attrs[i].implied, "%s: the list ends before attribute '%s'", a->op,
              c->attrs[i].name);
}

static const arguments *list_of(const char *op) {
    for (int i = 0; i < LISTS; i++) {
        if (strcmp(lists[i].op, op) == 0) return &lists[i];
    }
    return NULL;
}

static bool has_gpu_kernels(const tn_op *row) {
    for (const tn_kernel *k = row->kernels; k->name; k++) {
        if (k->device == TN_CUDA && !row->formula) return true;
    }
    return false;
}

static void lists_are_the_contracts(void) {
    int found = 0;
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        const arguments *a = list_of(op->contract->name);
        CHECK_ROW(a || !has_gpu_kernels(op->row), "%s has no list of its arguments", op->contract->name);
        if (!a) continue;
        found++;
        check_tensors(a->op, a->inputs, op->contract->inputs, op->contract->n_inputs);
        check_tensors(a->op, a->outputs, op->contract->outputs, op->contract->n_outputs);
        check_attrs(a, op->contract);
    }
    CHECK(found == LISTS);
}

static void lists_are_the_gradients(void) {
    for (int i = 0; i < GRADIENTS; i++) {
        const arguments *a = &gradients[i];
        const tn_function *made;
        CHECK(tn_fuse_gradient(tn_find(a->op), &made) == TN_OK);
        check_tensors(a->op, a->inputs, made->contract->inputs, made->contract->n_inputs);
        check_tensors(a->op, a->outputs, made->contract->outputs, made->contract->n_outputs);
        check_attrs(a, made->contract);
        tn_fuse_release(made);
    }
}

/* The choices that kernels compare with. */
static void check_choice(const char *op, const char *name, int choice, const char *text) {
    const tni_contract *c = tn_find(op)->contract;
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (strcmp(c->attrs[i].name, name) != 0) continue;
        CHECK_ROW(choice < c->attrs[i].n_choices && strcmp(c->attrs[i].choices[choice], text) == 0,
                  "%s: choice %d of %s is not '%s'", op, choice, name, text);
        return;
    }
    CHECK_ROW(false, "%s has no attribute '%s'", op, name);
}

static void choices_are_the_contracts(void) {
    const char *const ops[] = {"cross_entropy", "cross_entropy_grad"};
    for (int i = 0; i < 2; i++) {
        check_choice(ops[i], "reduction", REDUCE_MEAN, "mean");
        check_choice(ops[i], "reduction", REDUCE_SUM, "sum");
        check_choice(ops[i], "reduction", REDUCE_NONE, "none");
    }
}

int main(void) {
    lists_are_the_contracts();
    lists_are_the_gradients();
    choices_are_the_contracts();
    return test_end();
}
