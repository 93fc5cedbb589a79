/* Packed device code: files come back as they were; damaged ones are refused, or come back wrong, but never write out
 * of bounds. Arguments: files that have their packed form beside them as FILE.xz. */
#include <stdlib.h>

#include "cuda/driver/unpack.h"
#include "tests/test.h"

typedef struct file {
    uint8_t *data;
    size_t size;
} file;

static file read_file(const char *path, const char *ending) {
    char name[1024];
    file made = {0};
    snprintf(name, sizeof name, "%s%s", path, ending);
    FILE *stream = fopen(name, "rb");
    if (!stream) return made;
    fseek(stream, 0, SEEK_END);
    made.size = (size_t)ftell(stream);
    rewind(stream);
    made.data = malloc(made.size);
    if (made.data) made.size = fread(made.data, 1, made.size, stream);
    fclose(stream);
    return made;
}

static void test_file(const char *path) {
    file plain = read_file(path, ""), packed = read_file(path, ".xz");
    const uint8_t *end = packed.data + packed.size;
    uint8_t *to = malloc(plain.size + 1);
    CHECK_ROW(plain.data && packed.data && packed.size < plain.size, "%s", path);
    CHECK_ROW(tni_is_packed(packed.data, end) && !tni_is_packed(plain.data, plain.data + plain.size), "%s", path);
    CHECK_ROW(tni_unpacked_size(packed.data, end) == plain.size, "%s", path);
    CHECK_ROW(tni_unpack(packed.data, end, to, plain.size), "%s", path);
    CHECK_ROW(memcmp(to, plain.data, plain.size) == 0, "%s", path);
    CHECK_ROW(!tni_unpack(packed.data, end, to, plain.size - 1), "%s", path);
    free(to);
    free(plain.data);
    free(packed.data);
}

/* A byte that is not what it was, at many places: exactly as much memory as it asks for is there. */
static void test_damage(const char *path) {
    file packed = read_file(path, ".xz");
    uint32_t random = 1;
    int refused = 0;
    for (int i = 0; i < 100; i++) {
        random = random * 1664525 + 1013904223;
        uint8_t *at = packed.data + random % packed.size, was = *at;
        *at ^= (uint8_t)(1 + (random >> 24) % 255);
        size_t size = tni_unpacked_size(packed.data, packed.data + packed.size);
        uint8_t *to = size < 1 << 24 ? malloc(size + 1) : NULL;
        refused += !size || (to && !tni_unpack(packed.data, packed.data + packed.size, to, size));
        free(to);
        *at = was;
    }
    CHECK_ROW(refused > 0, "%s", path);
    for (size_t n = 0; n < packed.size; n += 1 + packed.size / 100) {
        CHECK_ROW(tni_unpacked_size(packed.data, packed.data + n) == 0, "%s cut to %zu", path, n);
    }
    free(packed.data);
}

/* What does not get smaller is stored. Header, block header, two chunks, index, end; sums are not looked at. */
static void test_stored(void) {
    const uint8_t data[] = {
        0xfd, '7', 'z', 'X', 'Z', 0,   0,   0,   0, 0,   0, 0, /* header */
        2,    0,   33,  1,   0,   0,   0,   0,   0, 0,   0, 0, /* block: LZMA2 */
        1,    0,   2,   'a', 'b', 'c', 2,   0,   0, 'd', 0, 0, /* chunks of 3 and of 1 */
        0,    1,   23,  4,   0,   0,   0,   0,   0, 0,   0, 0, /* index: one block of 4 bytes */
        1,    0,   0,   0,   0,   0,   'Y', 'Z',               /* end: the index has 8 bytes, and its sum */
    };
    uint8_t to[4];
    CHECK(tni_unpacked_size(data, data + sizeof data) == 4);
    CHECK(tni_unpack(data, data + sizeof data, to, 4) && memcmp(to, "abcd", 4) == 0);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        test_file(argv[i]);
        test_damage(argv[i]);
    }
    test_stored();
    return test_end();
}
