/* Checks of the NVIDIA driver, of which GPUs it shows, and of what is built in for them. Make no context. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/nvml.h"
#include "doctor.h"

static const char WANTED[] = "tenon doctor";

/* ---- what the machine has ---------------------------------------------------------------------------------------- */

int least_driver(int cuda_major) {
    return cuda_major >= 13 ? 580 : cuda_major == 12 ? 525 : 450;
}

int driver_cuda_major(void) {
    return tni_cuda_look()->version / 1000;
}

bool has_gpu(void) {
    return tni_cuda(WANTED) != NULL;
}

int tni_doctor_cuda(void) {
    return has_gpu() ? tni_cuda_look()->version : 0;
}

/* GPUs on the bus, whether or not anybody drives them. */
static int count_gpus(void) {
    char folder[PATH_MAX], name[PATH_MAX], vendor[32], class[32];
    int n = 0;
    DIR *all = machine_path(folder, sizeof folder, "/sys/bus/pci/devices") ? opendir(folder) : NULL;
    for (const struct dirent *one; all && (one = readdir(all));) {
        snprintf(name, sizeof name, "/sys/bus/pci/devices/%s/vendor", one->d_name);
        if (one->d_name[0] == '.' || !read_line(name, vendor, sizeof vendor) || strcmp(vendor, "0x10de") != 0) continue;
        snprintf(name, sizeof name, "/sys/bus/pci/devices/%s/class", one->d_name);
        n += read_line(name, class, sizeof class) && strncmp(class, "0x03", 4) == 0; /* displays, 3-D */
    }
    if (all) closedir(all);
    return n;
}

/* Where "580.65.06" begins in the text; NULL: nowhere. */
static const char *find_version(const char *text) {
    for (const char *p = text; *p; p++) {
        const size_t n = strspn(p, "0123456789");
        if (n >= 3 && p[n] == '.' && isdigit((unsigned char)p[n + 1])) return p;
        p += n ? n - 1 : 0;
    }
    return NULL;
}

/* Of the kernel's module; "": it is not loaded. */
static const char *module_version(void) {
    static char text[64];
    char line[256];
    bool found = read_line("/sys/module/nvidia/version", line, sizeof line) ||
                 read_line("/proc/driver/nvidia/version", line, sizeof line);
    const char *at = found ? find_version(line) : NULL;
    snprintf(text, sizeof text, "%.*s", at ? (int)strspn(at, "0123456789.") : 0, at ? at : "");
    return text;
}

/* Of the library: its file is called after it. */
static const char *library_version(const char *file) {
    static char text[64];
    const char *name = strrchr(file, '/'), *at = name ? find_version(name) : NULL;
    snprintf(text, sizeof text, "%s", at ? at : nvml_driver());
    return text;
}

/* ---- driver ------------------------------------------------------------------------------------------------------ */

const char *install_driver(void) {
    static const package_names names = {"nvidia-driver", "akmod-nvidia", "nvidia-driver-G06-kmp-default", "nvidia",
                                        "install driver 580 or newer: https://www.nvidia.com/drivers"};
    if (access("/usr/bin/ubuntu-drivers", X_OK) == 0) return "sudo ubuntu-drivers install";
    return install_command(&names);
}

static bool in_container(void) {
    char path[PATH_MAX];
    return (machine_path(path, sizeof path, "/.dockerenv") && access(path, F_OK) == 0) ||
           (machine_path(path, sizeof path, "/run/.containerenv") && access(path, F_OK) == 0);
}

/* A folder that has the driver's library, though the loader does not look there. */
static const char *hidden_driver(void) {
    static const char *const folders[] = {"/usr/local/nvidia/lib64",
                                          "/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib/wsl/lib",
                                          "/run/opengl-driver/lib",
                                          "/usr/lib/x86_64-linux-gnu/nvidia/current"};
    static char path[PATH_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (!machine_path(path, sizeof path - 16, folders[i])) continue;
        const size_t length = strlen(path);
        memcpy(path + length, "/libcuda.so.1", sizeof "/libcuda.so.1");
        bool there = access(path, R_OK) == 0;
        path[length] = 0;
        if (there) return path;
    }
    return NULL;
}

static void judge_missing(doctor_result *r) {
    const int gpus = count_gpus();
    const char *module = module_version(), *hidden = hidden_driver();
    if (!gpus && !module[0] && !hidden) {
        observe(r, "no NVIDIA GPU and no driver: operators run on the CPU");
        judge(r, SKIPPED, "libcuda.so.1 cannot be opened, and nothing shows that there is a GPU", NULL);
        return;
    }
    observe(r, "%d GPU%s, kernel module %s, but libcuda.so.1 cannot be opened", gpus, gpus == 1 ? "" : "s",
            module[0] ? module : "not loaded");
    if (hidden) {
        judge(r, FAILED, "the driver's library is in a folder where the loader does not look",
              "export LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", hidden);
    } else if (in_container()) {
        judge(
            r, FAILED, "this container was started without the driver",
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …   # needs nvidia-container-toolkit");
    } else {
        judge(r, FAILED, module[0] ? "the driver's kernel part is there, its library is not" : "there is no driver",
              "%s", install_driver());
    }
}

/* What cuInit answers where more can be said than CUDA does. */
static const struct {
    int error;
    const char *reason, *fix;
} starts[] = {
    {34, "this libcuda.so.1 is the stub of the CUDA toolkit, which only linkers are meant to see",
     "unset LD_LIBRARY_PATH   # or take its folder 'stubs' out"},
    {100, "the kernel's part of the driver shows no GPU", "nvidia-smi   # in a container: docker run --gpus all …"},
    {101, "CUDA_VISIBLE_DEVICES names a GPU that there is not", "unset CUDA_VISIBLE_DEVICES"},
    {802, "the NVSwitch fabric is not up", "sudo systemctl restart nvidia-fabricmanager"},
    {803, "the library and the kernel module are of different versions",
     "sudo reboot   # loads the module of the library's version"},
    {804, "a compat library takes the place of the driver's own, and this GPU does not allow that",
     "unset LD_LIBRARY_PATH   # or take its folder 'compat' out"},
    {999, "the kernel's part of the driver does not answer", "sudo modprobe nvidia_uvm || sudo reboot"},
};

static bool devices_are_named(void) {
    return getenv("CUDA_VISIBLE_DEVICES") != NULL;
}

static void judge_start(doctor_result *r, const tni_cuda_found *found) {
    if (found->error == 100 && devices_are_named()) {
        observe(r, "; CUDA_VISIBLE_DEVICES is set: see visible_devices");
        return;
    }
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (starts[i].error != found->error) continue;
        observe(r, ", but it does not start: CUDA error %d", found->error);
        judge(r, FAILED, starts[i].reason, "%s", starts[i].fix);
        return;
    }
    judge(r, FAILED, found->why_not, "nvidia-smi   # says more; if it fails too: sudo reboot");
}

static void check_driver(doctor_result *r) {
    const tni_cuda_found *found = tni_cuda_look();
    require(r, "driver 525 (CUDA 12.0) or newer");
    if (!found->opened) {
        judge_missing(r);
        return;
    }
    const char *module = module_version(), *library = library_version(found->file);
    observe(r, "driver %s, CUDA %d.%d, %s",
            library[0]  ? library
            : module[0] ? module
                        : "of unknown version",
            found->version / 1000, found->version % 1000 / 10, found->file);
    if (found->version < 12000) {
        const bool shadowed = is_from_library_path(found->file);
        judge(r, FAILED, found->why_not, "%s", shadowed ? LEAVE_LIBRARY_PATH : install_driver());
        return;
    }
    const bool differ = library[0] && module[0] && strcmp(library, module) != 0; /* as compat libraries may */
    if (differ) observe(r, ", kernel module %s", module);
    if (differ && !found->started) {
        judge(r, FAILED, "the library and the kernel module are of different versions",
              "sudo reboot   # loads the module of the library's version");
    } else if (!found->started) {
        judge_start(r, found);
    } else if (!found->n_devices && !devices_are_named()) {
        observe(r, ", no GPU");
        judge(r, FAILED, "the driver sees no GPU", "nvidia-smi   # in a container: docker run --gpus all …");
    }
}

/* ---- which GPUs are shown ---------------------------------------------------------------------------------------- */

static void check_visible(doctor_result *r) {
    const tni_cuda_found *found = tni_cuda_look();
    const char *names = getenv("CUDA_VISIBLE_DEVICES");
    int n_names = 0;
    require(r, "GPUs that exist");
    if (!found->opened || found->version < 12000) {
        judge(r, SKIPPED, "there is no driver that could show GPUs", NULL);
        return;
    }
    if (!names) {
        observe(r, "CUDA_VISIBLE_DEVICES is not set; %d GPU%s", found->n_devices, found->n_devices == 1 ? "" : "s");
        return;
    }
    for (const char *p = names; *p; p += strcspn(p, ","), p += *p == ',') n_names++;
    observe(r, "CUDA_VISIBLE_DEVICES=\"%s\", which shows %d GPU%s", names, found->n_devices,
            found->n_devices == 1 ? "" : "s");
    if (!n_names || strcmp(names, "-1") == 0) {
        judge(r, WARNED, "it hides every GPU: operators run on the CPU", "unset CUDA_VISIBLE_DEVICES");
    } else if (found->n_devices < n_names) {
        judge(r, FAILED, "it names a GPU that there is not, which hides that one and those behind it",
              "unset CUDA_VISIBLE_DEVICES   # `nvidia-smi -L` lists what can be named");
    }
}

/* ---- what is built in -------------------------------------------------------------------------------------------- */

typedef struct fit {
    int exact, compiled, none; /* files of kernels: for this GPU; as PTX; not at all */
    char image[32];            /* "sm_90a" */
} fit;

static fit fit_of(const tn_gpu *gpu) {
    fit f = {0};
    const char *unit;
    for (int i = 0; (unit = tni_image_unit(i)); i++) {
        const tni_image *image = tni_image_for(unit, gpu->major, gpu->minor);
        f.none += !image;
        f.compiled += image && image->kind == 'p';
        f.exact += image && image->kind != 'p';
        if (image) tni_image_describe(image, f.image);
    }
    return f;
}

static void judge_gpu(doctor_result *r, const tn_gpu *gpu) {
    const fit f = fit_of(gpu);
    observe(r, "%scuda:%d %s (sm_%d%d): ", gpu->index ? "; " : "", gpu->index, gpu->name, gpu->major, gpu->minor);
    if (!f.exact && !f.compiled) {
        observe(r, "nothing built in");
        judge(r, FAILED,
              tni_image_unit(0) ? "no kernel that is built in runs on this GPU"
                                : "this build has no CUDA kernels: only formulas run on the GPU",
              "TENON_CUDA_ARCHS=%d%d make build   # in the sources; or: python -m pip install --upgrade libtenon",
              gpu->major, gpu->minor);
        return;
    }
    observe(r, "%d of %d files of kernels, %s", f.exact + f.compiled, f.exact + f.compiled + f.none, f.image);
    if (f.none) judge(r, WARNED, "some kernels are missing for this GPU", "python -m pip install --upgrade libtenon");
    if (f.compiled) {
        judge(r, WARNED, "the driver compiles kernels when they are first used: they are for older GPUs",
              "TENON_CUDA_ARCHS=%d%d make build   # in the sources; or: python -m pip install --upgrade libtenon",
              gpu->major, gpu->minor);
    }
}

static void check_gpu(doctor_result *r) {
    const int n = tni_gpu_count(WANTED);
    require(r, "kernels for each GPU");
    if (!n) judge(r, SKIPPED, "there is no GPU to use", NULL);
    for (int i = 0; i < n; i++) {
        const tn_gpu *gpu;
        if (tni_gpu_get(WANTED, i, &gpu) == TN_OK) {
            judge_gpu(r, gpu);
        } else {
            judge(r, FAILED, tn_last_error(), "nvidia-smi");
        }
    }
}

const doctor_row gpu_checks[] = {
    {"driver", "the NVIDIA driver: where it is, its version, its kernel module, whether it starts", check_driver},
    {"visible_devices", "CUDA_VISIBLE_DEVICES: whether it hides GPUs", check_visible},
    {"gpu", "each GPU, and what is built in for its architecture", check_gpu},
    {0},
};
