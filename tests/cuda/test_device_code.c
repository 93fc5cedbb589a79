/* Every .cuh compiles by itself: it includes what it needs. By NVRTC for several architectures; by nvcc where there is
 * no NVRTC; where there is neither, nothing is compiled, and that is said.
 *     test_device_code FOLDER NVCC FILE…: the folder that includes begin at, nvcc's path or "", the files */
#include <stdlib.h>

#include "core/host/memory.h"
#include "cuda/driver/nvrtc.h"
#include "tests/test.h"

static void compile(const char *folder, const char *file, int arch) {
    char source[512], include[512];
    tni_compiled_code code = {0};
    snprintf(source, sizeof source, "#include \"%s\"\n", file);
    snprintf(include, sizeof include, "-I%s", folder);
    const char *const options[] = {include, NULL};
    CHECK_ROW(tni_nvrtc_compile("test", "alone.cu", source, arch / 10, arch % 10, options, &code) == TN_OK,
              "%s for sm_%d: %s", file, arch, tn_last_error());
    tni_free(code.data);
}

static void compile_by_nvcc(const char *nvcc, const char *folder, const char *file) {
    char command[1536];
    snprintf(command, sizeof command, "'%s' -x cu -std=c++17 -cubin -arch=sm_90a -I '%s' -o /dev/null '%s'", nvcc,
             folder, file);
    CHECK_ROW(system(command) == 0, "%s", file);
}

int main(int argc, char **argv) {
    static const int archs[] = {75, 80, 90}; /* what #if tells apart */
    const bool has_nvrtc = tni_nvrtc_version("test") > 0, has_nvcc = argc > 2 && *argv[2] == '/';
    CHECK(argc > 3);
    for (int i = 3; i < argc; i++) {
        for (size_t k = 0; has_nvrtc && k < sizeof archs / sizeof *archs; k++) compile(argv[1], argv[i], archs[k]);
        if (!has_nvrtc && has_nvcc) compile_by_nvcc(argv[2], argv[1], argv[i]);
    }
    if (!has_nvrtc && !has_nvcc) printf("there is neither NVRTC nor nvcc: nothing was compiled\n");
    return test_end();
}
