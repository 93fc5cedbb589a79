/* The arguments of linear_cross_entropy, of its values for each token, and of their gradient; and what their kernels
 * see of all three. */
#ifndef TNI_LINEAR_CROSS_ENTROPY_H
#define TNI_LINEAR_CROSS_ENTROPY_H

#include "ops/arguments.h"

#define LINEAR_CROSS_ENTROPY_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                             \
    IN(w)                                             \
    IN(target)                                        \
    IN(b)                                             \
    IN(weight)                                        \
    ATTR(ignore_index, integer)                       \
    ATTR(label_smoothing, number)                     \
    ATTR(z_loss, number)                              \
    ATTR(reduction, choice)                           \
    ATTR(softcap, number)                             \
    ATTR(temperature, number)                         \
    ATTR(logits_mib, integer)                         \
    OUT(loss) OUT(lse) OUT(gx) OUT(gw) OUT(gb)
TNI_ARGUMENTS(linear_cross_entropy, LINEAR_CROSS_ENTROPY_ARGUMENTS)

#define LINEAR_CROSS_ENTROPY_TOKENS_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                                    \
    IN(w)                                                    \
    IN(target)                                               \
    IN(b)                                                    \
    IN(weight)                                               \
    ATTR(ignore_index, integer)                              \
    ATTR(label_smoothing, number)                            \
    ATTR(z_loss, number)                                     \
    ATTR(softcap, number)                                    \
    ATTR(temperature, number)                                \
    ATTR(logits_mib, integer)                                \
    OUT(loss) OUT(log_prob) OUT(entropy) OUT(lse)
TNI_ARGUMENTS(linear_cross_entropy_tokens, LINEAR_CROSS_ENTROPY_TOKENS_ARGUMENTS)

#define LINEAR_CROSS_ENTROPY_TOKENS_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                                         \
    IN(w)                                                         \
    IN(target)                                                    \
    IN(b)                                                         \
    IN(weight)                                                    \
    IN(log_prob)                                                  \
    IN(entropy)                                                   \
    IN(lse)                                                       \
    IN(dloss)                                                     \
    IN(dlog_prob)                                                 \
    IN(dentropy)                                                  \
    ATTR(ignore_index, integer)                                   \
    ATTR(label_smoothing, number)                                 \
    ATTR(z_loss, number)                                          \
    ATTR(softcap, number)                                         \
    ATTR(temperature, number)                                     \
    ATTR(logits_mib, integer)                                     \
    OUT(dx) OUT(dw) OUT(db)
TNI_ARGUMENTS(linear_cross_entropy_tokens_grad, LINEAR_CROSS_ENTROPY_TOKENS_GRAD_ARGUMENTS)

/* A call of any of the three; what one of them does not have is NULL. All tensors are dense.
 *
 *     h = x w^T + b                    (rows, v), of which only some columns are in memory at a time
 *     l = cap(h) / temperature         cap(h) = softcap * tanh(h / softcap), or h where that is 0
 *     lse = log(sum(exp(l)))           log p = l - lse, entropy = -sum(p * log p)
 *     loss = -(1 - s) * weight[t] * log p[t] - s / v * sum(weight * log p) + z_loss * lse^2      s: label_smoothing */
typedef struct tni_token_loss {
    const tn_view *x, *w, *target, *b, *weight; /* (rows, k), (v, k), (rows), (v), (v) */
    int64_t ignore_index, logits_mib;
    double label_smoothing, z_loss, softcap, temperature;
    int reduction;                                       /* REDUCE_NONE: values of each token */
    const tn_view *loss, *log_prob, *entropy, *lse;      /* that are made */
    const tn_view *log_prob_was, *entropy_was, *lse_was; /* that forward made: there are gradients of tokens */
    const tn_view *dloss, *dlog_prob, *dentropy;         /* those gradients */
    const tn_view *dx, *dw, *db;                         /* gradients that are made */
    int64_t rows, k, v;
} tni_token_loss;

/* The `data` of a kernel: what its operator's calls say. */
typedef struct tni_token_loss_reader {
    tni_token_loss (*of)(const tn_call *call);
} tni_token_loss_reader;

tni_token_loss tni_token_loss_of(const tn_call *call);

/* The same by chunks, of other operators and of formulas (linear_cross_entropy_chunks.c). */
tn_status tni_token_loss_prepare(const tn_call *call, void **state);
size_t tni_token_loss_workspace(const tn_call *call);
tn_status tni_token_loss_run(const tn_call *call, void *state);
void tni_token_loss_release(void *state);

/* Word by word. */
size_t tni_token_loss_ref_workspace(const tn_call *call);
tn_status tni_token_loss_ref(const tn_call *call, void *state);

/* Fails where a target is neither a class nor ignore_index. On the CPU, where targets can be read. */
tn_status tni_token_loss_check(const tn_call *call, const tni_token_loss *a);

#endif
