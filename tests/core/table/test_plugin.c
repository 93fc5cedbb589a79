/* Plugins: a good one works; every kind of wrong file is refused before its code can run. */
#include <fcntl.h>
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
    CHECK(refused(write_bytes("twin.so", bytes, size), "already has an operator of this name"));
    CHECK(tn_function_count() == before);
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
    FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!f || !mkdtemp(folder)) {
        printf("usage: test_plugin GOOD.so EMPTY.so\n");
        return 2;
    }
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
    changed_file();
    free(bytes);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || test_end();
}
