/* Plugins: a good one works; every kind of wrong file is refused before its code can run. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tenon/call.h>

#include "tests/test.h"

static char folder[] = "/tmp/tenon-plugin-XXXXXX";
static char path[256];
static unsigned char *bytes;
static long size;

/* Writes the plugin's bytes, changed, to a file of this name. */
static const char *write_bytes(const char *name, const unsigned char *data, long n) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || (n && fwrite(data, 1, (size_t)n, f) != (size_t)n) || fclose(f) != 0) printf("cannot write %s\n", path);
    return path;
}

static bool refused(const char *file, const char *fragment) {
    tn_status status = tn_load(file);
    bool right = status != TN_OK && strstr(tn_last_error(), fragment);
    if (!right) printf("  %s, not '%s': %s\n", tn_status_name(status), fragment, tn_last_error());
    return right;
}

/* The struct's head as it stands in the file. */
static long find_head(void) {
    const uint32_t head[4] = {TN_ABI, sizeof(tn_op), sizeof(tn_kernel), 1};
    for (long i = 0; i + (long)sizeof head <= size; i += 4) {
        if (memcmp(bytes + i, head, sizeof head) == 0) return i;
    }
    return -1;
}

static void wrong_files(void) {
    unsigned char *copy = malloc((size_t)size);
    CHECK(refused("", "empty"));
    CHECK(refused(NULL, "empty"));
    CHECK(refused("/nowhere/at/all.so", "No such file"));
    CHECK(refused("/tmp", "not a file"));
    CHECK(refused(write_bytes("empty.so", NULL, 0), "not a file with contents"));
    CHECK(refused(write_bytes("text.so", (const unsigned char *)"hello, world", 12), "no ELF header"));
    memcpy(copy, bytes, (size_t)size);
    copy[4] = 1;
    CHECK(refused(write_bytes("class.so", copy, size), "not a 64-bit"));
    memcpy(copy, bytes, (size_t)size);
    copy[18] = 8; /* MIPS */
    copy[19] = 0;
    CHECK(refused(write_bytes("machine.so", copy, size), "built for another machine"));
    memcpy(copy, bytes, (size_t)size);
    copy[16] = 2;
    CHECK(refused(write_bytes("exec.so", copy, size), "not a shared object"));
    const struct {
        int word;
        const char *fragment;
    } heads[] = {{0, "built for ABI"}, {1, "bytes"}, {2, "bytes"}};
    long head = find_head();
    CHECK(head >= 0);
    for (int i = 0; i < 3 && head >= 0; i++) {
        memcpy(copy, bytes, (size_t)size);
        copy[head + 4 * heads[i].word] ^= 0x40;
        CHECK(refused(write_bytes("head.so", copy, size), heads[i].fragment));
    }
    memcpy(copy, bytes, (size_t)size);
    if (head >= 0) memset(copy + head + 12, 0, 4);
    CHECK(refused(write_bytes("none.so", copy, size), "holds no operators"));
    /* Cut off anywhere, or with any byte of its headers changed: a message, never a crash. */
    for (long n = 1; n < size; n += 1 + n / 40) CHECK(tn_load(write_bytes("cut.so", bytes, n)) != TN_OK);
    free(copy);
}

static void good_file(const char *plugin) {
    CHECK(tn_load(plugin) == TN_OK);
    CHECK(tn_load(plugin) == TN_OK); /* again: nothing happens */
    const tn_function *twice = tn_find("twice");
    CHECK(twice != NULL);
    if (!twice) return;
    float x[3] = {1, 2, 3}, y[3];
    int64_t shape[] = {3};
    tn_tensor tx = tn_dense(x, TN_F32, 1, shape), ty = tn_dense(y, TN_F32, 1, shape);
    const tn_tensor *in[] = {&tx};
    tn_tensor *out[] = {&ty};
    tn_args args = {.in = in, .n_in = 1, .out = out, .n_out = 1};
    CHECK(tn_run(twice, &args, NULL) == TN_OK && y[2] == 6);
    /* A second copy brings the same name: refused, and the table is as it was. */
    int before = tn_function_count();
    char owner[PATH_MAX + 128], whole[PATH_MAX];
    CHECK(realpath(plugin, whole) != NULL);
    snprintf(owner, sizeof owner, "its operator 'twice' is refused: %s already has an operator of this name", whole);
    CHECK(refused(write_bytes("twin.so", bytes, size), owner));
    CHECK(tn_function_count() == before);
}

/* ---- files that are opened and should not be --------------------------------------------------------------------- */

static const char *copy_of(const char *file, const char *name) {
    char command[4096 + 512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(command, sizeof command, "cp '%s' '%s'", file, path);
    CHECK(system(command) == 0);
    return path;
}

static int lines_of(const char *file) {
    int n = 0;
    FILE *f = fopen(file, "re");
    for (int c; f && (c = fgetc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    return n;
}

/* Whatever the constructor does, this process lives and is told. */
static void hostile_files(const char *hostile, const char *unresolved) {
    const struct {
        const char *what, *fragment;
    } rows[] = {
        {"crashes", "opening it crashed a trial process (Segmentation fault); it said: the constructor is here"},
        {"aborts", "opening it crashed a trial process (Aborted)"},
        {"exits", "its constructor ended a trial process with exit("}, /* 3; ThreadSanitizer has a number of its own */
        {"leads nowhere", "opening it crashed a trial process (Segmentation fault)"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv("HOSTILE", rows[i].what, 1);
        CHECK(refused(copy_of(hostile, "hostile.so"), rows[i].fragment));
    }
    unsetenv("HOSTILE");
    CHECK(tn_find("hostile") == NULL);
    CHECK(refused(unresolved, "function_that_nobody_has"));
}

/* A trial costs once: the next process knows the file. */
static void trials_are_remembered(const char *hostile) {
    char log[300];
    snprintf(log, sizeof log, "%s/log", folder);
    setenv("HOSTILE_LOG", log, 1);
    const char *file = copy_of(hostile, "counted.so");
    CHECK(tn_load(file) == TN_OK && lines_of(log) == 2); /* the trial's, and ours */
    tn_shutdown();
    CHECK(tn_load(file) == TN_OK && lines_of(log) == 3);
    tn_shutdown();
    unsetenv("HOSTILE_LOG");
}

static void hashes_are_compared(const char *plugin) {
    static const char wrong[] = "0000000000000000000000000000000000000000000000000000000000000000";
    char command[4096 + 64], hash[65] = "";
    CHECK(tn_load_pinned(plugin, wrong) == TN_BAD_PLUGIN && strstr(tn_last_error(), "the file has changed"));
    CHECK(tn_load_pinned(plugin, "12ab") == TN_BAD_VALUE && strstr(tn_last_error(), "64 hexadecimal digits"));
    CHECK(tn_find("twice") == NULL);
    snprintf(command, sizeof command, "sha256sum '%s'", plugin);
    FILE *sum = popen(command, "r");
    CHECK(sum && fread(hash, 1, 64, sum) == 64);
    if (sum) pclose(sum);
    CHECK_ROW(tn_load_pinned(plugin, hash) == TN_OK, "%s", tn_last_error());
    for (int i = 0; i < 64; i++) hash[i] = (char)(hash[i] >= 'a' ? hash[i] - 32 : hash[i]);
    CHECK(tn_load_pinned(plugin, hash) == TN_OK && tn_find("twice") != NULL);
    tn_shutdown();
}

static void *find_twice(void *found) {
    *(bool *)found = tn_find("twice") != NULL;
    return NULL;
}

/* TENON_PLUGINS: whoever asks first waits for all of them; a bad one is in nobody's way. */
static void plugins_are_named(const char *plugin) {
    char list[3 * 4096];
    bool found[4] = {false};
    pthread_t threads[4];
    snprintf(list, sizeof list, "/nowhere/at/all.so::%s", plugin);
    setenv("TENON_PLUGINS", list, 1);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, find_twice, &found[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(found[0] && found[1] && found[2] && found[3] && tn_find("softmax") != NULL);
    CHECK(refused(copy_of(plugin, "twin.so"), "is refused: ")); /* they come before what the program loads */
    tn_shutdown();
    CHECK(refused(copy_of(plugin, "twin.so"), "is refused: "));
    unsetenv("TENON_PLUGINS");
    tn_shutdown();
    CHECK(tn_find("twice") == NULL);
}

/* A file that is compiled again stays what it was for this process, and whoever loads it again is told so. */
static void changed_file(void) {
    static const char told[] = "start a new process";
    char first[256], second[256];
    snprintf(first, sizeof first, "%s", write_bytes("changed.so", bytes, size));
    CHECK(tn_load(first) == TN_OK && tn_load(first) == TN_OK);
    const struct timespec later[2] = {{.tv_sec = 2000000000}, {.tv_sec = 2000000000}};
    CHECK(utimensat(AT_FDCWD, first, later, 0) == 0 && refused(first, told)); /* written over */
    snprintf(second, sizeof second, "%s", write_bytes("new.so", bytes, size));
    CHECK(rename(second, first) == 0 && refused(first, told)); /* another file in its place */
    CHECK(tn_find("twice") != NULL);
    tn_shutdown();
    CHECK(tn_load(first) == TN_OK); /* as a new process would */
    tn_shutdown();
}

int main(int argc, char **argv) {
    FILE *f = argc == 5 ? fopen(argv[1], "rb") : NULL;
    if (!f || !mkdtemp(folder)) {
        printf("usage: test_plugin GOOD.so EMPTY.so HOSTILE.so UNRESOLVED.so\n");
        return 2;
    }
    setenv("TENON_CACHE_DIR", folder, 1); /* what was tried before does not count */
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    bytes = malloc((size_t)size);
    CHECK(bytes && fread(bytes, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    wrong_files();
    CHECK(refused(argv[2], "exports no 'tenon_plugin'"));
    good_file(argv[1]);
    tn_shutdown(); /* plugins are closed, and can be loaded again */
    CHECK(tn_find("twice") == NULL && tn_find("softmax") != NULL);
    good_file(argv[1]);
    tn_shutdown();
    hostile_files(argv[3], argv[4]);
    trials_are_remembered(argv[3]);
    hashes_are_compared(argv[1]);
    plugins_are_named(argv[1]);
    changed_file();
    free(bytes);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || test_end();
}
