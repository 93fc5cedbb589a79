/* How far two names are apart: for "did you mean". */
#include <string.h>

#include "text.h"

static int least(int a, int b) {
    return a < b ? a : b;
}

int tni_edit_distance(const char *a, const char *b, int most) {
    enum { LONGEST = 64 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= LONGEST || m >= LONGEST) return most;
    int row[LONGEST]; /* row[j]: from the letters of a so far to the first j of b */
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(change, least(row[j], row[j - 1]) + 1);
        }
    }
    return least(row[m], most);
}
