/* A stand-in for NVIDIA's management library, for tests on machines without a GPU: libnvidia-ml.so.1 with one device, or with
 * one that is split in two MIG devices, or with as many as the file `count` says, of which the others have a UUID only. What it tells is read at each call from files of the folder $FAKENVML, one number each; a
 * file that is not there is a value that is not supported, but for the memory and the processes: they are then asked of the simulated
 * device at $SIMDEV_SOCKET, so that it is the software driver's. While the file `hang` is there, reading the memory in use does not
 * return; it makes the file `hangs`. While `crash` is there, it makes `crashes` and ends the process. `open` is there between nvmlInit and nvmlShutdown. `looks`, if it is there, gets a byte for each question for utilization.
 *
 * The file `xid` is an event, a critical error of the first device or of the one in `xid_of`; it is removed when it is told.
 *
 * With -DOLD it has what a driver of 2020 has: the first version of the memory's structure, other names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT = 7, TIMEOUT = 10, XID = 8, BOARDS = 4 };

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } pci_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process_t;
typedef struct { void *device; unsigned long long kind, data; unsigned gi, ci; } event_t;

/* Handles: the boards, and the parts of the first. */
static int boards[BOARDS], parts[2];
#define board boards[0]

static int attached = 1;

static const char *path(const char *name)
{
    static _Thread_local char text[4096];
    snprintf(text, sizeof text, "%s/%s", getenv("FAKENVML"), name);
    return text;
}

static int read_number(const char *name, unsigned long long *out)
{
    FILE *file = fopen(path(name), "r");
    int found = file && fscanf(file, "%llu", out) == 1;
    if (file)
        fclose(file);
    return found ? SUCCESS : NOT_SUPPORTED;
}

static int read_unsigned(const char *name, unsigned *out)
{
    unsigned long long value;
    int code = read_number(name, &value);
    if (!code)
        *out = (unsigned)value;
    return code;
}

static void touch(const char *name)
{
    FILE *file = fopen(path(name), "w");
    if (file)
        fclose(file);
}

int nvmlInit_v2(void)
{
    if (!getenv("FAKENVML"))
        return NOT_SUPPORTED;
    touch("open");
    return SUCCESS;
}

/* NVML_INIT_FLAG_NO_ATTACH: without another nvmlInit, nothing is told of a device. */
int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2() ? NOT_SUPPORTED : (attached = !(flags & 2), SUCCESS);
}

int nvmlShutdown(void)
{
    unlink(path("open"));
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned room)
{
    snprintf(text, room, "580.00 (stand-in)");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (read_unsigned("count", count) || *count > BOARDS)
        *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= BOARDS)
        return INVALID;
    *device = &boards[index];
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
    *minor = (unsigned)((int *)device - boards);
    return *minor < BOARDS ? SUCCESS : INVALID;
}

/* The address of the first device of the software CUDA driver. */
int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci)
{
    if (device != &board)
        return INVALID;
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x0a;
    snprintf(pci->address, sizeof pci->address, "00000000:0A:00.0");
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    *device = &board;
    return strcasestr(address, "0000:0a:00.0") ? SUCCESS : INVALID;
}

int nvmlDeviceGetName(void *device, char *text, unsigned room)
{
    (void)device;
    snprintf(text, room, "Stand-in");
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    if (device != &board)
        return INVALID;
    int code = read_unsigned("mig", current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    *count = 7;
    return device == &board ? SUCCESS : INVALID;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part)
{
    if (device != &board || index >= 2)
        return INVALID;
    *part = &parts[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned room)
{
    unsigned minor;
    if (!nvmlDeviceGetMinorNumber(device, &minor))
        snprintf(text, room, "GPU-00000000-0000-0000-0000-00000000000%u", minor);
    else
        snprintf(text, room, "MIG-73696D75-6c61-7465-6420-63756461200%d", (int)((int *)device - parts));
    return SUCCESS;
}

/* A greeting of the simulated devices' socket about the first device, eight words (xsched-sim's wire.rs). */
static int greet(uint64_t kind, uint64_t place, uint64_t words[8])
{
    const char *at = getenv("SIMDEV_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(words, (uint64_t[8]){0x73696d6465760006, kind, 0, place}, 8 * sizeof *words);
    int fd = at ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return NOT_SUPPORTED;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", at);
    ssize_t size = 8 * sizeof *words;
    int answered = !connect(fd, (struct sockaddr *)&address, sizeof address) && write(fd, words, size) == size
        && read(fd, words, size) == size && words[0] == 0;
    close(fd);
    return answered ? SUCCESS : NOT_SUPPORTED;
}

/* Capacity and use of that device (MemoryOf). */
static int ask_device(unsigned long long *total, unsigned long long *used)
{
    uint64_t words[8];
    int code = greet(18, 0, words);
    *total = words[1];
    *used = words[2];
    return code;
}

static int memory_used(unsigned long long *used)
{
    while (!access(path("hang"), F_OK)) {
        touch("hangs");
        usleep(1000);
    }
    if (!access(path("crash"), F_OK)) {
        touch("crashes");
        abort();
    }
    return read_number("memory_used", used);
}

static int memory_of(unsigned long long *total, unsigned long long *used)
{
    if (!attached)
        return INVALID;
    int code = memory_used(used) | read_number("memory_total", total);
    return code ? ask_device(total, used) : code;
}

#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *device, memory2_t *memory)
{
    if (memory->version != (sizeof *memory | 2u << 24))
        return INVALID;
    unsigned long long share = device == &board ? 1 : 2;
    int code = memory_of(&memory->total, &memory->used);
    memory->total /= share;
    memory->free = memory->total - memory->used;
    return code;
}
#endif

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory)
{
    unsigned long long share = device == &board ? 1 : 2;
    int code = memory_of(&memory->total, &memory->used);
    memory->total /= share;
    memory->free = memory->total - memory->used;
    return code;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization_t *rates)
{
    if (device != &board)
        return NOT_SUPPORTED;
    int looks = open(path("looks"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (looks >= 0) {
        (void)!write(looks, ".", 1);
        close(looks);
    }
    return read_unsigned("active", &rates->gpu) | read_unsigned("memory_active", &rates->memory);
}

/* Of MIG devices the sensors are the board's. */
static int of_board(void *device, const char *name, unsigned *out)
{
    return device == &board ? read_unsigned(name, out) : INVALID;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    return sensor == 0 ? of_board(device, "temperature", out) : INVALID;
}

int nvmlDeviceGetTemperatureThreshold(void *device, int kind, unsigned *out)
{
    return kind == 1 ? of_board(device, "temperature_limit", out) : INVALID;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    return of_board(device, "power_mw", out);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out)
{
    return of_board(device, "power_limit_mw", out);
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *out)
{
    return kind == 1 ? of_board(device, "clock", out) : INVALID;
}

#ifndef OLD
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out)
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out)
#endif
{
    return device == &board ? read_number("reasons", out) : INVALID;
}

/* Processes with memory of the simulated device (ProcessOf). */
static int ask_processes(unsigned *count, process_t *out)
{
    uint64_t words[8];
    unsigned room = *count, found = 0;
    do {
        if (greet(20, found, words))
            return NOT_SUPPORTED;
        if (found < words[1] && found < room)
            out[found] = (process_t){.pid = words[2], .memory = words[3]};
    } while (++found < words[1]);
    *count = words[1];
    return words[1] <= room ? SUCCESS : INSUFFICIENT;
}

/* Lines of `processes`: PID BYTES. Without that file the simulated device is asked. */
#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *out)
#else
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, process_t *out)
#endif
{
    (void)device;
    unsigned room = *count, found = 0;
    FILE *file = fopen(path("processes"), "r");
    if (!file)
        return ask_processes(count, out);
    process_t process = {0};
    while (fscanf(file, "%u %llu", &process.pid, &process.memory) == 2) {
        if (found < room)
            out[found] = process;
        found++;
    }
    fclose(file);
    *count = found;
    return found <= room ? SUCCESS : INSUFFICIENT;
}

int nvmlEventSetCreate(void **set)
{
    static int events;
    *set = &events;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set)
{
    (void)set;
    return device && kinds == XID ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned timeout_ms)
{
    (void)set;
    for (unsigned waited = 0; waited < timeout_ms; waited++) {
        unsigned of = 0;
        if (!read_number("xid", &event->data)) {
            if (read_unsigned("xid_of", &of) || of >= BOARDS)
                of = 0;
            event->device = &boards[of];
            event->kind = XID;
            event->gi = event->ci = 0xffffffff;
            unlink(path("xid"));
            return SUCCESS;
        }
        usleep(1000);
    }
    return TIMEOUT;
}
