// A libnvidia-ml.so.1 without a GPU, for the real pynvml. It does what the file $FAKE_NVML says,
// which it reads again at each call:
//
//   init 9                            code that nvmlInit returns
//   hang nvmlDeviceGetName            that function returns once this line is gone
//   gpu GPU-1 total=24564 name=NVIDIA_L4
//
// A gpu line is a UUID and pairs key=number: handle (the code of asking for its handle), code (of
// every later query), total, reserved, used (MiB), temperature (C), power (W), load (%), ecc, mig,
// pid, sm and held (the one process on it, its load, %, and its memory, MiB; pid or held -1: the
// driver does not tell);
// in name=, which "-" makes empty, each underscore is a space. Codes are NVML's: 0 is success,
// 3 not supported, 15 lost, 999 unknown. -DOLD leaves out what older drivers lack.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 64
typedef unsigned long long u64;
typedef struct {
    char uuid[96], name[96];
    long long handle, code, total, reserved, used, temperature, power, load, ecc, mig, pid, sm, held;
} Gpu;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Load;
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } Process;
typedef struct { unsigned pid; u64 used; unsigned instance, part; } Held;

static char handles[GPUS];
static int inits = 0;

static void read_pair(Gpu *gpu, const char *pair) {
    const char *keys[] = {"handle", "code", "total", "reserved", "used",
                          "temperature", "power", "load", "ecc", "mig", "pid", "sm", "held"};
    long long *values[] = {&gpu->handle, &gpu->code, &gpu->total, &gpu->reserved, &gpu->used,
                           &gpu->temperature, &gpu->power, &gpu->load, &gpu->ecc, &gpu->mig,
                           &gpu->pid, &gpu->sm, &gpu->held};
    const char *value = strchr(pair, '=');
    if (!value) return;
    if (!strncmp(pair, "name=", 5)) {
        snprintf(gpu->name, sizeof gpu->name, "%s", strcmp(value + 1, "-") ? value + 1 : "");
        for (char *c = gpu->name; *c; c++) if (*c == '_') *c = ' ';
    }
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i]) == (size_t)(value - pair) && !strncmp(pair, keys[i], value - pair))
            *values[i] = atoll(value + 1);
}

// The number of GPUs; fills `wanted` with the one of this index and tells init code and hang.
static int read_state(int index, Gpu *wanted, int *init, const char *function, int *hangs) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024], *rest;
    int count = 0;
    *init = file ? 0 : 9;
    *hangs = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *word = strtok_r(line, " \n", &rest), *value = strtok_r(NULL, " \n", &rest);
        if (!word || !value) continue;
        if (!strcmp(word, "init")) *init = atoi(value);
        if (!strcmp(word, "hang") && function && !strcmp(value, function)) *hangs = 1;
        if (strcmp(word, "gpu") || count++ != index) continue;
        memset(wanted, 0, sizeof *wanted);
        snprintf(wanted->uuid, sizeof wanted->uuid, "%s", strcmp(value, "-") ? value : "");
        for (char *pair; (pair = strtok_r(NULL, " \n", &rest));) read_pair(wanted, pair);
    }
    if (file) fclose(file);
    return count;
}

static int wait_and_read(int index, Gpu *wanted, int *init, const char *function) {
    int hangs, count;
    while (count = read_state(index, wanted, init, function, &hangs), hangs) usleep(5000);
    return count;
}

static int find(void *handle, Gpu *gpu, const char *function) {
    int init, index = (int)((char *)handle - handles);
    if (!inits) return 1;
    if (index < 0 || index >= GPUS) return 2;
    return index < wait_and_read(index, gpu, &init, function) ? (int)gpu->code : 15;
}

#define QUERY Gpu gpu; int code = find(handle, &gpu, __func__); if (code) return code;

int nvmlInitWithFlags(unsigned flags) {
    Gpu gpu; int init; (void)flags;
    wait_and_read(-1, &gpu, &init, __func__);
    if (!init) inits++;
    return init;
}
int nvmlShutdown(void) { if (!inits) return 1; inits--; return 0; }
const char *nvmlErrorString(int code) { return code ? "some error" : "success"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "570.86.15");
    return inits ? 0 : 1;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    Gpu gpu; int init;
    *count = wait_and_read(-1, &gpu, &init, __func__);
    return inits ? 0 : 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    Gpu gpu; int init;
    if (!inits) return 1;
    if (index >= GPUS || (int)index >= wait_and_read(index, &gpu, &init, __func__)) return 2;
    *handle = handles + index;
    return (int)gpu.handle;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    Gpu gpu; int init;
    for (int i = 0; i < wait_and_read(i, &gpu, &init, __func__); i++)
        if (!strcmp(gpu.uuid, uuid)) { *handle = handles + i; return (int)gpu.handle; }
    return inits ? 6 : 1;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    QUERY snprintf(text, size, "%s", gpu.name); return 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    QUERY snprintf(text, size, "%s", gpu.uuid); return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    QUERY
    memory->total = (u64)gpu.total << 20;
    memory->used = (u64)(gpu.used + gpu.reserved) << 20;
    memory->free = memory->total - memory->used;
    return 0;
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    QUERY
    memory->total = (u64)gpu.total << 20;
    memory->reserved = (u64)gpu.reserved << 20;
    memory->used = (u64)gpu.used << 20;
    memory->free = memory->total - memory->reserved - memory->used;
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    QUERY *major = 8; *minor = 9; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Held *found) {
    QUERY
    if (gpu.pid < 0) return 3;
    if (!gpu.pid) { *count = 0; return 0; }
    if (!found || *count < 1) { *count = 1; return 7; }
    memset(found, 0, sizeof *found);
    found->pid = (unsigned)gpu.pid;
    found->used = gpu.held < 0 ? ~0ULL : (u64)gpu.held << 20;
    *count = 1;
    return 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    QUERY *current = *pending = (unsigned)gpu.mig; return 0;
}
#endif
int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, u64 *count) {
    QUERY (void)kind; (void)counter;
    if (gpu.ecc < 0) return 3;
    *count = (u64)gpu.ecc;
    return 0;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    QUERY (void)sensor; *celsius = (unsigned)gpu.temperature; return 0;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    QUERY *milliwatts = (unsigned)gpu.power * 1000; return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, Load *load) {
    QUERY load->gpu = load->memory = (unsigned)gpu.load; return 0;
}
int nvmlDeviceGetProcessUtilization(void *handle, Process *found, unsigned *count, u64 since) {
    QUERY (void)since;
    if (gpu.pid < 0) return 3;
    if (!gpu.pid) return 6;
    if (!found || *count < 1) { *count = 1; return 7; }
    memset(found, 0, sizeof *found);
    found->pid = (unsigned)gpu.pid; found->sm = (unsigned)gpu.sm; found->time = 1;
    *count = 1;
    return 0;
}
