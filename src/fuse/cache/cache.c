/* The cache on disk (cache.h). A file is a header and what is cached. */
#include "cache.h"
#include "core/host/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 256 << 20, MOST_FILES = 4096 }; /* all files together; as many as are looked at */

typedef struct header {
    char magic[8];
    uint64_t bytes;
    uint64_t hash[2]; /* of the key and of what follows: a file that was renamed belongs to nobody */
} header;
static const char magic[8] = "tenon-2";

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xa0761d6478bd642fu;
    return x ^ x >> 32;
}

/* Two sums of different make over words of 8 bytes. */
static void add_bytes(uint64_t hash[2], const char *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, bytes - i < 8 ? bytes - i : 8);
        hash[0] = mix(hash[0] ^ word) + 0x9e3779b97f4a7c15u;
        hash[1] = mix(hash[1] + word * 0xe7037ed1a0b428dbu) ^ (hash[1] << 23 | hash[1] >> 41);
    }
    hash[0] = mix(hash[0] ^ bytes);
    hash[1] = mix(hash[1] + bytes);
}

tni_cache_key tni_cache_key_of(const char *format, const char *text, ...) {
    tni_cache_key key = {{0x243f6a8885a308d3u, 0x13198a2e03707344u}};
    char more[512];
    va_list args;
    va_start(args, text);
    int n = vsnprintf(more, sizeof more, format, args);
    va_end(args);
    add_bytes(key.hash, more, n < 0 ? 0 : (size_t)n < sizeof more ? (size_t)n : sizeof more - 1);
    add_bytes(key.hash, text, strlen(text));
    return key;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

bool tni_cache_folder(char *path, size_t size) {
    const char *own = getenv("TENON_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (own && *own) {
        n = snprintf(path, size, "%s", own);
    } else if (cache && *cache == '/') {
        n = snprintf(path, size, "%s/tenon", cache);
    } else if (home && *home == '/') {
        n = snprintf(path, size, "%s/.cache/tenon", home);
    }
    return n > 0 && (size_t)n < size;
}

/* What is in it will be run: nobody else may be able to put something there. Who is in a group may change any day, so
 * a group is somebody else, also where it has one member today. */
static const char *refused(int folder) {
    struct stat about;
    if (fstat(folder, &about) != 0) return "cannot be looked at";
    if (about.st_uid != geteuid() && about.st_uid != 0) return "belongs to another user";
    if (about.st_mode & S_IWOTH) return "can be written to by everybody";
    return about.st_mode & S_IWGRP ? "can be written to by its group" : NULL;
}

static int keep_if_ours(int folder) {
    if (!refused(folder)) return folder;
    close(folder);
    return -1;
}

/* Makes the folders on the way, for this user alone. */
static int open_folder(void) {
    char path[3072];
    if (!tni_cache_folder(path, sizeof path)) return -1;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) return keep_if_ours(folder);
    for (char *s = path + 1; *s; s++) {
        if (*s != '/') continue;
        *s = 0;
        mkdir(path, 0700);
        *s = '/';
    }
    mkdir(path, 0700);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool read_all(int file, void *to, size_t bytes) {
    char *at = to;
    while (bytes > 0) {
        ssize_t n = read(file, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes > 0) {
        ssize_t n = write(file, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static header header_of(const tni_cache_key *key, const char *data, size_t bytes) {
    header h = {.bytes = bytes, .hash = {key->hash[0], key->hash[1]}};
    memcpy(h.magic, magic, sizeof magic);
    add_bytes(h.hash, data, bytes);
    return h;
}

/* What a file holds, if it is whole and was made for the key. */
static void read_file(int file, const tni_cache_key *key, tni_cached *found) {
    header h;
    struct stat about;
    if (!read_all(file, &h, sizeof h) || fstat(file, &about) != 0) return;
    if (about.st_size < (off_t)sizeof h || h.bytes != (uint64_t)about.st_size - sizeof h) return;
    char *data = tni_malloc(h.bytes + 1);
    if (!data) return;
    bool whole = read_all(file, data, h.bytes);
    header right = header_of(key, data, whole ? h.bytes : 0);
    if (whole && memcmp(&right, &h, sizeof h) == 0) {
        *found = (tni_cached){data, h.bytes};
    } else {
        tni_free(data);
    }
}

/* Used now: the last one to go. To the hour is enough. */
static void touch(int file) {
    enum { HOUR = 3600 };
    struct stat about;
    if (fstat(file, &about) == 0 && time(NULL) - about.st_mtime > HOUR) futimens(file, NULL);
}

static void look(const tni_cache_entry *entry, tni_cached *found) {
    int file = openat(entry->folder, entry->name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    read_file(file, &entry->key, found);
    if (found->data) {
        touch(file);
    } else {
        unlinkat(entry->folder, entry->name, 0);
    }
    close(file);
}

static tni_cache_entry entry_of(const tni_cache_key *key) {
    tni_cache_entry entry = {.folder = open_folder(), .lock = -1, .key = *key};
    snprintf(entry.name, sizeof entry.name, "%016llx%016llx", (unsigned long long)key->hash[0],
             (unsigned long long)key->hash[1]);
    return entry;
}

static void begin(const tni_cache_key *key, tni_cache_entry *entry, tni_cached *found) {
    *found = (tni_cached){0};
    *entry = entry_of(key);
    if (entry->folder >= 0) look(entry, found);
}

void tni_cache_drop(const tni_cache_key *key) {
    tni_cache_entry entry = entry_of(key);
    if (entry.folder >= 0) unlinkat(entry.folder, entry.name, 0);
    tni_cache_close(&entry);
}

void tni_cache_get(const tni_cache_key *key, tni_cached *found) {
    tni_cache_entry entry;
    begin(key, &entry, found);
    tni_cache_close(&entry);
}

void tni_cache_open(const tni_cache_key *key, tni_cache_entry *entry, tni_cached *found) {
    begin(key, entry, found);
    if (entry->folder < 0 || found->data) return;
    char lock[64];
    snprintf(lock, sizeof lock, "%s.lock", entry->name);
    entry->lock = openat(entry->folder, lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (entry->lock < 0) return;
    while (flock(entry->lock, LOCK_EX) != 0 && errno == EINTR) continue;
    look(entry, found); /* another process may have made it meanwhile */
}

void tni_cache_close(tni_cache_entry *entry) {
    if (entry->lock >= 0) {
        char lock[64];
        snprintf(lock, sizeof lock, "%s.lock", entry->name);
        unlinkat(entry->folder, lock, 0);
        flock(entry->lock, LOCK_UN); /* a process forked meanwhile has it open too */
        close(entry->lock);
    }
    if (entry->folder >= 0) close(entry->folder);
    entry->folder = entry->lock = -1;
}

/* ---- not too much of it ------------------------------------------------------------------------------------------ */

typedef struct old_file {
    char name[48];
    int64_t used, bytes;
} old_file;

static int by_age(const void *a, const void *b) {
    const old_file *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

static int32_t list_files(int folder, old_file *files, int64_t *bytes) {
    int copy = dup(folder);
    DIR *all = copy >= 0 ? fdopendir(copy) : NULL;
    int32_t n = 0;
    if (!all) {
        if (copy >= 0) close(copy);
        return 0;
    }
    rewinddir(all);
    for (const struct dirent *one; n < MOST_FILES && (one = readdir(all));) {
        struct stat about;
        if (strlen(one->d_name) != 32 || fstatat(folder, one->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
        memcpy(files[n].name, one->d_name, 33);
        files[n].used = (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
        files[n].bytes = about.st_size;
        *bytes += about.st_size;
        n++;
    }
    closedir(all);
    return n;
}

static int64_t most_bytes(void) {
    const char *text = getenv("TENON_CACHE_BYTES");
    char *end = NULL;
    long long given = text ? strtoll(text, &end, 10) : 0;
    return given > 0 && *end == '\0' ? given : MOST_BYTES;
}

/* Those that were used least recently go until the rest is small enough. */
static void tidy(int folder) {
    int64_t bytes = 0, most = most_bytes();
    old_file *files = tni_malloc(MOST_FILES * sizeof *files);
    if (!files) return;
    int32_t n = list_files(folder, files, &bytes);
    if (bytes > most || n == MOST_FILES) {
        qsort(files, (size_t)n, sizeof *files, by_age);
        for (int32_t i = 0; i < n && (bytes > most / 4 * 3 || n - i > MOST_FILES / 2); i++) {
            unlinkat(folder, files[i].name, 0);
            bytes -= files[i].bytes;
        }
    }
    tni_free(files);
}

tni_cache_state tni_cache_look(void) {
    char path[3072];
    tni_cache_state s = {.most = most_bytes()};
    int folder = tni_cache_folder(path, sizeof path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    s.exists = folder >= 0;
    if (folder >= 0) s.refused = refused(folder);
    old_file *files = s.exists && !s.refused ? tni_malloc(MOST_FILES * sizeof *files) : NULL;
    if (files) s.files = list_files(folder, files, &s.bytes);
    tni_free(files);
    if (folder >= 0) close(folder);
    return s;
}

void tni_cache_put(tni_cache_entry *entry, const char *data, size_t bytes) {
    char name[96];
    if (entry->lock < 0) return;
    snprintf(name, sizeof name, "%s.%ld", entry->name, (long)getpid());
    int file = openat(entry->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return;
    header h = header_of(&entry->key, data, bytes);
    bool done = write_all(file, &h, sizeof h) && write_all(file, data, bytes) && fsync(file) == 0;
    done = close(file) == 0 && done;
    if (!done || renameat(entry->folder, name, entry->folder, entry->name) != 0) {
        unlinkat(entry->folder, name, 0);
        return;
    }
    tidy(entry->folder);
}
