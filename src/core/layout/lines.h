/* Lines of few bytes, copied by a load and a store or two each: to call memcpy for each would take longer. */
#ifndef TNI_LINES_H
#define TNI_LINES_H

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) void tni_copy_sized(char *to, int64_t down, const char *from,
                                                                 int64_t apart, int64_t rows, const size_t first,
                                                                 int64_t second, const size_t rest) {
    for (int64_t r = 0; r < rows; r++, to += down, from += apart) {
        char a[64], b[64]; /* both are loaded before either is stored: two loads and two stores */
        memcpy(a, from, first);
        memcpy(b, from + second, rest);
        memcpy(to, a, first);
        memcpy(to + second, b, rest);
    }
}

/* `bytes` bytes of each line: as two parts that overlap, where they are none of these sizes. The lines of `to` are
 * `down` bytes apart, those of `from` `apart`, which may be 0. */
static inline void tni_copy_lines(char *to, int64_t down, const char *from, int64_t apart, int64_t rows,
                                  int64_t bytes) {
    if (bytes == 1)
        tni_copy_sized(to, down, from, apart, rows, 1, 0, 0);
    else if (bytes == 2)
        tni_copy_sized(to, down, from, apart, rows, 2, 0, 0);
    else if (bytes < 4)
        tni_copy_sized(to, down, from, apart, rows, 2, bytes - 1, 1);
    else if (bytes == 4)
        tni_copy_sized(to, down, from, apart, rows, 4, 0, 0);
    else if (bytes < 8)
        tni_copy_sized(to, down, from, apart, rows, 4, bytes - 4, 4);
    else if (bytes == 8)
        tni_copy_sized(to, down, from, apart, rows, 8, 0, 0);
    else if (bytes <= 16)
        tni_copy_sized(to, down, from, apart, rows, 8, bytes - 8, 8);
    else if (bytes <= 32)
        tni_copy_sized(to, down, from, apart, rows, 16, bytes - 16, 16);
    else if (bytes <= 64)
        tni_copy_sized(to, down, from, apart, rows, 32, bytes - 32, 32);
    else
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * down, from + r * apart, (size_t)bytes);
}

#endif
