/* Every family of built-in operators: X(name) stands for `const tn_op tni_ops_name[]`, an array of rows that {0} ends.
 * A new family is one file and one line here; a new operator of a family is a row in the family's file. */
#define TNI_FAMILIES(X)     \
    X(softmax)              \
    X(layer_norm)           \
    X(cross_entropy)        \
    X(sum)                  \
    X(sorting)              \
    X(scan)                 \
    X(cummax)               \
    X(histogram)            \
    X(batch_norm)           \
    X(rope)                 \
    X(permute)              \
    X(concat)               \
    X(pad)                  \
    X(roll)                 \
    X(repeat)               \
    X(triangle)             \
    X(embedding)            \
    X(index_select)         \
    X(gather)               \
    X(segment_sum)          \
    X(one_hot)              \
    X(linear)               \
    X(matmul)               \
    X(gated_linear)         \
    X(grouped_linear)       \
    X(scaled_linear)        \
    X(linear_cross_entropy) \
    X(attention)            \
    X(arithmetic)           \
    X(activations)          \
    X(gates)                \
    X(residual)             \
    X(normalisation)        \
    X(reductions)           \
    X(losses)               \
    X(optimisers)           \
    X(quantisation)
