/* The cache on disk: what is put is found, whatever is damaged, full, read-only or missing is no error. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#include "core/host/memory.h"
#include "fuse/cache/cache.h"

static char folder[] = "/tmp/tenon-cache-XXXXXX";

static bool has(const char *text, const char *wanted) {
    tni_cache_key key = tni_cache_key_of("test %d", text, 1);
    tni_cache_entry entry;
    tni_cached found;
    tni_cache_open(&key, &entry, &found);
    bool same = wanted ? found.bytes == strlen(wanted) && memcmp(found.data, wanted, found.bytes) == 0 : !found.data;
    tni_free(found.data);
    tni_cache_close(&entry);
    return same;
}

static void put(const char *text, const char *data, size_t bytes) {
    tni_cache_key key = tni_cache_key_of("test %d", text, 1);
    tni_cache_entry entry;
    tni_cached found;
    tni_cache_open(&key, &entry, &found);
    if (!found.data) tni_cache_put(&entry, data, bytes);
    tni_free(found.data);
    tni_cache_close(&entry);
}

static void path_of(const char *text, char *path, size_t size) {
    tni_cache_key key = tni_cache_key_of("test %d", text, 1);
    snprintf(path, size, "%s/%016llx%016llx", folder, (unsigned long long)key.hash[0], (unsigned long long)key.hash[1]);
}

static void test_keys(void) {
    tni_cache_key a = tni_cache_key_of("x %d", "text", 1), b = tni_cache_key_of("x %d", "text", 2),
                  c = tni_cache_key_of("x %d", "tex", 1), d = tni_cache_key_of("x %d", "text", 1);
    CHECK(memcmp(&a, &d, sizeof a) == 0 && memcmp(&a, &b, sizeof a) != 0 && memcmp(&a, &c, sizeof a) != 0);
}

static void test_damage(void) {
    char path[256];
    path_of("damaged", path, sizeof path);
    put("damaged", "0123456789", 10);
    CHECK(has("damaged", "0123456789"));
    for (int way = 0; way < 3; way++) {
        put("damaged", "0123456789", 10);
        int file = open(path, O_RDWR);
        CHECK(file >= 0);
        if (way == 0) CHECK(pwrite(file, "x", 1, 35) == 1); /* a byte of what it holds */
        if (way == 1) CHECK(ftruncate(file, 20) == 0);
        if (way == 2) CHECK(pwrite(file, "zzzz", 4, 0) == 4);
        close(file);
        CHECK_ROW(has("damaged", NULL), "way %d", way);
    }
}

/* What was made for one key is not taken for another, whatever the file is called. */
static void test_renamed(void) {
    char from[256], to[256];
    path_of("mine", from, sizeof from);
    path_of("yours", to, sizeof to);
    put("mine", "0123456789", 10);
    CHECK(rename(from, to) == 0);
    CHECK(has("yours", NULL));
    CHECK(access(to, F_OK) != 0); /* and is gone */
}

/* A file that cannot be written to its end is not there. */
static void test_full(void) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit least = {4096, 4096};
        static char large[65536];
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &least);
        put("large", large, sizeof large);
        _exit(has("large", NULL) ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(has("large", NULL));
}

/* Two processes: the second waits, and finds what the first has made. */
static void test_two(void) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        tni_cache_key key = tni_cache_key_of("test %d", "two", 1);
        tni_cache_entry entry;
        tni_cached found;
        tni_cache_open(&key, &entry, &found);
        if (write(ready[1], "r", 1) != 1) _exit(1);
        usleep(200000);
        tni_cache_put(&entry, "made", 4);
        tni_cache_close(&entry);
        _exit(0);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(has("two", "made"));
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

static void test_size(void) {
    char text[32];
    static char data[10000];
    setenv("TENON_CACHE_BYTES", "50000", 1);
    for (int i = 0; i < 12; i++) {
        snprintf(text, sizeof text, "size %d", i);
        put(text, data, sizeof data);
        usleep(2000);
    }
    tni_cache_key key = tni_cache_key_of("test %d", "size 0", 1);
    tni_cache_entry entry;
    tni_cached found;
    tni_cache_open(&key, &entry, &found);
    CHECK(!found.data); /* the oldest is gone */
    tni_cache_close(&entry);
    key = tni_cache_key_of("test %d", "size 11", 1);
    tni_cache_open(&key, &entry, &found);
    CHECK(found.bytes == sizeof data);
    tni_free(found.data);
    tni_cache_close(&entry);
    char path[600]; /* what is used again is young again */
    struct stat about;
    struct timespec old[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    path_of("size 11", path, sizeof path);
    CHECK(utimensat(AT_FDCWD, path, old, 0) == 0 && stat(path, &about) == 0 && about.st_mtime == 1000000);
    tni_cache_get(&key, &found);
    CHECK(found.bytes == sizeof data && stat(path, &about) == 0 && time(NULL) - about.st_mtime < 60);
    tni_free(found.data);
    tni_cache_drop(&key);
    CHECK(has("size 11", NULL));
    tni_cache_drop(&key);                 /* nothing is there */
    setenv("TENON_CACHE_BYTES", "5k", 1); /* no number: as if it were not there */
    put("five", "made", 4);
    put("six", "made", 4);
    CHECK(has("five", "made"));
    unsetenv("TENON_CACHE_BYTES");
}

/* A folder that somebody else can write to is none. */
static void test_open_to_others(void) {
    static const struct {
        mode_t mode;
        const char *why;
    } open_to[] = {{0777, "everybody"}, {0702, "everybody"}, {0775, "its group"}, {02770, "its group"}};
    put("mine", "1", 1);
    for (size_t i = 0; i < sizeof open_to / sizeof open_to[0]; i++) {
        CHECK(chmod(folder, open_to[i].mode) == 0);
        tni_cache_state state = tni_cache_look();
        CHECK_ROW(has("mine", NULL), "%o", (unsigned)open_to[i].mode);
        put("theirs", "1", 1);
        CHECK_ROW(state.exists && state.refused && strstr(state.refused, open_to[i].why) && state.files == 0, "%o: %s",
                  (unsigned)open_to[i].mode, state.refused ? state.refused : "taken");
        CHECK(chmod(folder, 0755) == 0 && has("mine", "1") && has("theirs", NULL));
    }
    CHECK(chmod(folder, 0700) == 0 && !tni_cache_look().refused);
}

static void test_nowhere(void) {
    char path[256];
    unsetenv("TENON_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK(!tni_cache_folder(path, sizeof path));
    put("nowhere", "x", 1);
    CHECK(has("nowhere", NULL));
    setenv("TENON_CACHE_DIR", "/proc/there/is/none", 1);
    put("nowhere", "x", 1);
    CHECK(has("nowhere", NULL));
    setenv("XDG_CACHE_HOME", "/somewhere", 1);
    unsetenv("TENON_CACHE_DIR");
    CHECK(tni_cache_folder(path, sizeof path) && strcmp(path, "/somewhere/tenon") == 0);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    setenv("TENON_CACHE_DIR", folder, 1);
    test_keys();
    CHECK(has("nothing", NULL));
    put("one", "1", 1);
    CHECK(has("one", "1"));
    test_damage();
    test_renamed();
    test_full();
    test_two();
    test_open_to_others();
    test_size();
    test_nowhere();
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) printf("%s stays\n", folder);
    return test_end();
}
