/* What was compiled before, on disk. Files are written beside their place and moved there, carry a hash of their key
 * and of what they hold, and are checked when they are read; a lock for each key lets the second of two processes wait
 * for the first. Where the cache cannot be used, or others could write to it, nothing is cached and nothing fails. */
#ifndef TNI_FUSE_CACHE_H
#define TNI_FUSE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TNI_CACHE_SCHEMA = 1 };

typedef struct tni_cache_key {
    uint64_t hash[2];
} tni_cache_key;

/* Of a text and of everything else that makes a difference, printf-style. */
tni_cache_key tni_cache_key_of(const char *format, const char *text, ...);

typedef struct tni_cached {
    char *data; /* NULL: there was nothing; the caller frees it with tni_free */
    size_t bytes;
} tni_cached;

/* A key whose lock is held from open to close. */
typedef struct tni_cache_entry {
    int folder, lock; /* file descriptors; -1: none */
    tni_cache_key key;
    char name[48];
} tni_cache_entry;

void tni_cache_get(const tni_cache_key *key, tni_cached *found); /* what is there now, without waiting for anybody */
void tni_cache_drop(const tni_cache_key *key);
void tni_cache_open(const tni_cache_key *key, tni_cache_entry *entry, tni_cached *found);
void tni_cache_put(tni_cache_entry *entry, const char *data, size_t bytes); /* if it can */
void tni_cache_close(tni_cache_entry *entry);
/* The folder: TENON_CACHE_DIR, $XDG_CACHE_HOME/tenon or ~/.cache/tenon; false: there is none. */
bool tni_cache_folder(char *path, size_t size);

/* What is in the cache now. Makes nothing. */
typedef struct tni_cache_state {
    bool exists;
    const char *refused; /* why it is not used, "belongs to another user"; NULL: it is ours alone */
    int32_t files;
    int64_t bytes, most; /* most: the limit */
} tni_cache_state;
tni_cache_state tni_cache_look(void);

#endif
