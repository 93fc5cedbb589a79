/* NVML, opened at first need; what is used of it is written out here. */
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct device *handle;
typedef struct memory_info { /* nvmlMemory_t */
    unsigned long long total, free, used;
} memory_info;

static struct {
    int (*init)(void);
    int (*find)(const char *bus, handle *device);
    int (*clock)(handle device, int kind, unsigned *mhz);
    int (*most_clock)(handle device, int kind, unsigned *mhz);
    int (*temperature)(handle device, int sensor, unsigned *celsius);
    int (*power)(handle device, unsigned *milliwatts);
    int (*most_power)(handle device, unsigned *milliwatts);
    int (*memory)(handle device, memory_info *info);
    int (*reasons)(handle device, unsigned long long *bits);
    int (*driver)(char *text, unsigned length);
} nvml;

enum { SM = 1, MEMORY = 2 }; /* nvmlClockType_t */

static bool open_nvml(void) {
    static int known = -1;
    if (known >= 0) return known;
    known = 0;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const struct {
        const char *name;
        void *to;
        const char *later; /* what newer drivers may call it */
    } functions[] = {
        {"nvmlInit_v2", &nvml.init},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.find},
        {"nvmlDeviceGetClockInfo", &nvml.clock},
        {"nvmlDeviceGetMaxClockInfo", &nvml.most_clock},
        {"nvmlDeviceGetTemperature", &nvml.temperature},
        {"nvmlDeviceGetPowerUsage", &nvml.power},
        {"nvmlDeviceGetEnforcedPowerLimit", &nvml.most_power},
        {"nvmlDeviceGetMemoryInfo", &nvml.memory},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.reasons, "nvmlDeviceGetCurrentClocksEventReasons"},
        {"nvmlSystemGetDriverVersion", &nvml.driver}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found && functions[i].later) found = dlsym(library, functions[i].later);
        if (!found) return false;
        memcpy(functions[i].to, &found, sizeof found);
    }
    known = nvml.init() == 0;
    return known;
}

gpu_state nvml_state(int device) {
    gpu_state s = {0};
    const tni_cuda_api *cu = tni_cuda("tenon devices");
    char bus[32];
    handle h;
    if (!cu || !open_nvml() || cu->cuDeviceGetPCIBusId(bus, sizeof bus, device) != 0 || nvml.find(bus, &h) != 0) {
        return s;
    }
    unsigned milliwatts = 0, most = 0;
    unsigned long long reasons = 0;
    memory_info memory = {0, 0, 0};
    s.known = nvml.clock(h, SM, &s.sm_mhz) == 0 && nvml.clock(h, MEMORY, &s.memory_mhz) == 0;
    nvml.most_clock(h, SM, &s.most_sm_mhz);
    nvml.most_clock(h, MEMORY, &s.most_memory_mhz);
    nvml.temperature(h, 0, &s.celsius);
    nvml.power(h, &milliwatts);
    nvml.most_power(h, &most);
    nvml.memory(h, &memory);
    nvml.reasons(h, &reasons);
    s.watts = milliwatts / 1000;
    s.most_watts = most / 1000;
    s.memory_used = memory.used;
    s.memory_free = memory.free;
    s.reasons = reasons;
    return s;
}

const char *nvml_driver(void) {
    static char text[96];
    if (!text[0] && open_nvml() && nvml.driver(text, sizeof text) != 0) text[0] = 0;
    return text;
}

const char *nvml_reasons(uint64_t reasons, char text[static 160]) {
    static const struct {
        uint64_t bit;
        const char *name;
    } rows[] = {{0x2, "application clocks"}, {0x4, "power cap"},       {0x8, "hardware slowdown"},
                {0x10, "sync boost"},        {0x20, "thermal"},        {0x40, "hardware thermal"},
                {0x80, "power brake"},       {0x100, "display clocks"}};
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (reasons & rows[i].bit && n < 120)
            n += (size_t)snprintf(text + n, 160 - n, "%s%s", n ? ", " : "", rows[i].name);
    }
    if (!n) snprintf(text, 160, "none");
    return text;
}
