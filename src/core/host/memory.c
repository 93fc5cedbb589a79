/* The core's own memory. One door for all of it, so that a test can shut it at the Nth knock. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/call.h>

#include "memory.h"

static _Atomic int64_t fail_at; /* counts down; the allocation that brings it to 0 fails */
static _Atomic int64_t asked;   /* since the last tni_fail_allocation */

int64_t tni_fail_allocation(int64_t n) {
    atomic_store(&fail_at, n);
    return atomic_exchange(&asked, 0);
}

static void *checked(void *memory, size_t bytes) {
    if (!memory) tn_fail(TN_NO_MEMORY, "out of memory: %zu bytes", bytes);
    return memory;
}

/* Counting costs every allocation two atomic operations; the hot path of a call makes none. */
static bool refuses(void) {
    atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_at, memory_order_relaxed) == 0) return false;
    return atomic_fetch_sub(&fail_at, 1) == 1;
}

void *tni_malloc(size_t bytes) {
    return checked(refuses() ? NULL : malloc(bytes ? bytes : 1), bytes);
}

void *tni_calloc(size_t count, size_t bytes) {
    return checked(refuses() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1), bytes);
}

void *tni_realloc(void *memory, size_t bytes) {
    return checked(refuses() ? NULL : realloc(memory, bytes ? bytes : 1), bytes);
}

void *tni_malloc_aligned(size_t bytes) {
    size_t rounded = (bytes + TNI_ALIGNMENT - 1) & ~(size_t)(TNI_ALIGNMENT - 1);
    bool fits = rounded >= bytes && !refuses();
    return checked(fits ? aligned_alloc(TNI_ALIGNMENT, rounded ? rounded : TNI_ALIGNMENT) : NULL, bytes);
}

char *tni_strdup(const char *string) {
    size_t bytes = strlen(string) + 1;
    char *copy = tni_malloc(bytes);
    if (copy) memcpy(copy, string, bytes);
    return copy;
}

void tni_free(void *memory) {
    free(memory);
}

void tn_free(void *memory) {
    free(memory);
}

/* ---- arena ------------------------------------------------------------------------------------------------------- */

enum { CHUNK = 4096 };

typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) char data[];
} chunk;

struct tni_arena {
    chunk *chunks;
};

tni_arena *tni_arena_new(void) {
    return tni_calloc(1, sizeof(tni_arena));
}

void *tni_arena_alloc(tni_arena *arena, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    chunk *c = arena->chunks;
    if (!c || c->size - c->used < bytes) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        c = tni_calloc(1, sizeof(chunk) + size);
        if (!c) return NULL;
        c->size = size;
        c->next = arena->chunks;
        arena->chunks = c;
    }
    void *memory = c->data + c->used;
    c->used += bytes;
    return memory;
}

char *tni_arena_text(tni_arena *arena, const char *begin, size_t length) {
    char *copy = tni_arena_alloc(arena, length + 1);
    if (copy) memcpy(copy, begin, length);
    return copy;
}

void tni_arena_free(tni_arena *arena) {
    if (!arena) return;
    for (chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}
