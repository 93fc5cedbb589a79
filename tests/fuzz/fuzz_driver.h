/* What the libFuzzer targets share. An input is a text, then (behind a zero byte) numbers that make calls of what it
 * says. A target defines fuzz_text. */
#ifndef TENON_FUZZ_DRIVER_H
#define TENON_FUZZ_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Numbers from the rest of the input, then zeros. */
typedef struct source {
    const uint8_t *data;
    size_t size;
} source;

static void fuzz_text(const char *text, source *from);

static inline uint8_t take(source *from) {
    if (from->size == 0) return 0;
    from->size--;
    return *from->data++;
}

static inline void must(bool condition) {
    if (!condition) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    size_t length = strlen(text);
    source from = {data + length, size - length};
    take(&from); /* the zero byte */
    fuzz_text(text, &from);
    free(text);
    return 0;
}

#endif
