/* The library's own memory. Every allocation goes through here, so that tests can make the Nth one fail. */
#ifndef TNI_MEMORY_H
#define TNI_MEMORY_H

#include <stddef.h>
#include <stdint.h>

void *tni_malloc(size_t bytes); /* NULL and a message when there is none; 0 bytes gives a valid pointer */
void *tni_calloc(size_t count, size_t bytes);
void *tni_realloc(void *memory, size_t bytes);
char *tni_strdup(const char *string);
enum { TNI_ALIGNMENT = 64 }; /* of memory that kernels get */
void *tni_malloc_aligned(size_t bytes);
void tni_free(void *memory);
/* Tests: the n-th allocation from now (1 is the next) on any thread fails; 0: none. Returns how many were asked for
 * since. */
int64_t tni_fail_allocation(int64_t n);

/* Memory that is freed all at once. */
typedef struct tni_arena tni_arena;
tni_arena *tni_arena_new(void);                        /* NULL and a message when there is no memory */
void *tni_arena_alloc(tni_arena *arena, size_t bytes); /* zeroed, 16-byte aligned; NULL and a message */
char *tni_arena_text(tni_arena *arena, const char *begin, size_t length);
void tni_arena_free(tni_arena *arena);

#endif
