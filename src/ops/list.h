/* Every built-in operator, one row each: X(name) stands for `const tn_op tni_op_name`. This list and the operator's own
 * file are all that an operator touches. */
#define TNI_OPS(X)        \
    X(softmax)            \
    X(softmax_grad)       \
    X(layer_norm)         \
    X(layer_norm_grad)    \
    X(cross_entropy)      \
    X(cross_entropy_grad) \
    X(sum)                \
    X(sum_grad)           \
    X(batch_norm)         \
    X(batch_norm_grad)    \
    X(fake_quantize)
