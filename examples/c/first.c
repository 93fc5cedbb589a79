/* A first program: softmax over the rows of a matrix, the second row with a mask.
 *
 *     make build
 *     cc examples/c/first.c $(build/tenon flags) -o build/first && build/first */
#include <stdio.h>
#include <tenon.h>

int main(void) {
    float x[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 4}};
    bool keep[2][4] = {{true, true, true, true}, {true, true, false, false}};
    float y[2][4];
    int64_t shape[] = {2, 4};
    tn_tensor tx = tn_dense(x, TN_F32, 2, shape), tkeep = tn_dense(keep, TN_BOOL, 2, shape);
    tn_tensor ty = tn_dense(y, TN_F32, 2, shape);

    if (tn_softmax(&tx, &tkeep, NULL, &ty) != TN_OK) { /* NULL: every attribute at its default */
        fprintf(stderr, "%s\n", tn_last_error());
        return 1;
    }
    for (int i = 0; i < 2; i++) printf("%.4f %.4f %.4f %.4f\n", y[i][0], y[i][1], y[i][2], y[i][3]);

    tn_softmax_attrs attrs = TN_SOFTMAX_ATTRS; /* the defaults, to change some */
    attrs.axis = 2;
    if (tn_softmax(&tx, NULL, &attrs, &ty) != TN_OK) printf("and a mistake is explained: %s\n", tn_last_error());
    tn_shutdown(); /* what the library keeps for later calls: not needed, but valgrind then has nothing to say */
    return 0;
}
