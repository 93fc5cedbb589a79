/* A test is a function; a check that fails prints where and goes on. `return test_end();` closes main with the
 * line 'N passed, N failed'. */
#ifndef TENON_TEST_H
#define TENON_TEST_H

#include <stdio.h>
#include <string.h>

static int test_passed, test_failed;

/* Tests fork on purpose, with threads running; ThreadSanitizer would end the child. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (condition) {                                                    \
            test_passed++;                                                  \
        } else {                                                            \
            test_failed++;                                                  \
            printf("%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
        }                                                                   \
    } while (0)

/* Like CHECK, with a row of a table (or whatever helps) in the message. */
#define CHECK_ROW(condition, ...)                                           \
    do {                                                                    \
        if (condition) {                                                    \
            test_passed++;                                                  \
        } else {                                                            \
            test_failed++;                                                  \
            printf("%s:%d: %s is false: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                            \
            printf("\n");                                                   \
        }                                                                   \
    } while (0)

static inline int test_end(void) {
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed != 0;
}

#endif
