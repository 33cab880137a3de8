/* What the C programs of this folder share: the CUDA driver reached by dlopen, so that they build without a toolkit;
 * the kernels as PTX, which the driver compiles; time; how an error is told (one line, exit 3). */
#ifndef GPU_H
#define GPU_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the driver ------------------------------------------------------------------------------------------------- */

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct mod *CUmodule;
typedef struct func *CUfunction;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef struct exec *CUgraphExec;

enum { EVENT_DISABLE_TIMING = 2, STREAM_NON_BLOCKING = 1, HOST_ALLOC_MAPPED = 2 | 1, CAPTURE_RELAXED = 2 };
enum { ATTRIBUTE_SMS = 16, ATTRIBUTE_THREADS_PER_SM = 39 };

#define FUNCTIONS(f)                                                                                                   \
    f(cuInit, (unsigned))                                                                                              \
    f(cuDeviceGet, (CUdevice *, int))                                                                                  \
    f(cuDeviceGetAttribute, (int *, int, CUdevice))                                                                    \
    f(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                               \
    f(cuDevicePrimaryCtxReset_v2, (CUdevice))                                                                          \
    f(cuCtxSetCurrent, (CUcontext))                                                                                    \
    f(cuCtxSynchronize, (void))                                                                                        \
    f(cuModuleLoadData, (CUmodule *, const void *))                                                                    \
    f(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                     \
    f(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,     \
                       void **, void **))                                                                              \
    f(cuStreamCreate, (CUstream *, unsigned))                                                                          \
    f(cuStreamSynchronize, (CUstream))                                                                                 \
    f(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                \
    f(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned))                                             \
    f(cuEventCreate, (CUevent *, unsigned))                                                                            \
    f(cuEventRecord, (CUevent, CUstream))                                                                              \
    f(cuEventSynchronize, (CUevent))                                                                                   \
    f(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                          \
    f(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                                                                 \
    f(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                                  \
    f(cuMemHostAlloc, (void **, size_t, unsigned))                                                                     \
    f(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned))                                                 \
    f(cuStreamBeginCapture_v2, (CUstream, int))                                                                        \
    f(cuStreamEndCapture, (CUstream, CUgraph *))                                                                       \
    f(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                                       \
    f(cuGraphLaunch, (CUgraphExec, CUstream))                                                                          \
    f(cuGetErrorName, (CUresult, const char **))

#define DECLARE(name, parameters) static CUresult(*name) parameters;
FUNCTIONS(DECLARE)
#undef DECLARE

static const char *program = "?"; /* for messages; set by gpu_open */

__attribute__((noreturn)) static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", program, what, why);
    exit(3);
}

static volatile int leaving; /* exit() has begun on another thread */

static void check(CUresult result, const char *what) {
    const char *name = "unknown error";
    if (result == 0) return;
    while (leaving) pause();
    if (cuGetErrorName) cuGetErrorName(result, &name);
    fail(what, name);
}
#define CHECK(call) check(call, #call)

static void *driver_function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail(name, "the driver lacks it, it is too old");
    return found;
}

/* ---- the kernels -------------------------------------------------------------------------------------------------
 * mark: its first instruction that has an effect stores to host memory.
 * spin: a given number of steps of a linear congruential generator in every thread, so that its work is the same
 *       however often it is interrupted; every block then adds the outcome to its word, so that a lost or doubled
 *       kernel shows. */
static const char KERNELS[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry nothing()\n{\n    ret;\n}\n"
    ".visible .entry mark(.param .u64 where, .param .u32 what)\n{\n"
    "    .reg .u64 %a;\n    .reg .u32 %v;\n"
    "    ld.param.u64 %a, [where];\n    ld.param.u32 %v, [what];\n"
    "    st.volatile.u32 [%a], %v;\n    membar.sys;\n    ret;\n}\n"
    ".visible .entry spin(.param .u64 sums, .param .u32 steps)\n{\n"
    "    .reg .u64 %a, %o;\n    .reg .u32 %n, %x, %t, %b;\n    .reg .pred %p;\n"
    "    ld.param.u64 %a, [sums];\n    ld.param.u32 %n, [steps];\n    mov.u32 %x, 1;\n"
    "    setp.eq.u32 %p, %n, 0;\n    @%p bra end;\n"
    "loop:\n    mad.lo.u32 %x, %x, 1664525, 1013904223;\n    sub.u32 %n, %n, 1;\n"
    "    setp.ne.u32 %p, %n, 0;\n    @%p bra loop;\n"
    "end:\n    mov.u32 %t, %tid.x;\n    setp.ne.u32 %p, %t, 0;\n    @%p ret;\n"
    "    mov.u32 %b, %ctaid.x;\n    mul.wide.u32 %o, %b, 4;\n    add.u64 %a, %a, %o;\n"
    "    red.global.add.u32 [%a], %x;\n    ret;\n}\n";

enum { BLOCK = 256 };

static struct {
    CUdevice device;
    CUcontext context;
    CUfunction nothing, mark, spin;
    unsigned blocks; /* fill every multiprocessor */
    CUdeviceptr sums;
} gpu;

static void gpu_open(const char *name) {
    program = name;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) fail("no CUDA driver", dlerror());
#define RESOLVE(name, parameters) name = (CUresult(*) parameters)driver_function(library, #name);
    FUNCTIONS(RESOLVE)
#undef RESOLVE
    int sms = 0, threads = 0;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&gpu.device, 0));
    CHECK(cuDeviceGetAttribute(&sms, ATTRIBUTE_SMS, gpu.device));
    CHECK(cuDeviceGetAttribute(&threads, ATTRIBUTE_THREADS_PER_SM, gpu.device));
    CHECK(cuDevicePrimaryCtxRetain(&gpu.context, gpu.device));
    CHECK(cuCtxSetCurrent(gpu.context));
    CHECK(cuModuleLoadData(&module, KERNELS));
    CHECK(cuModuleGetFunction(&gpu.nothing, module, "nothing"));
    CHECK(cuModuleGetFunction(&gpu.mark, module, "mark"));
    CHECK(cuModuleGetFunction(&gpu.spin, module, "spin"));
    gpu.blocks = (unsigned)sms * (unsigned)(threads / BLOCK);
    CHECK(cuMemAlloc_v2(&gpu.sums, gpu.blocks * sizeof(uint32_t)));
    CHECK(cuMemsetD32_v2(gpu.sums, 0, gpu.blocks));
    CHECK(cuCtxSynchronize());
}

/* One kernel that fills the device. */
static inline void spin(CUstream stream, uint32_t steps) {
    void *parameters[] = {&gpu.sums, &steps};
    CHECK(cuLaunchKernel(gpu.spin, gpu.blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters, NULL));
}

/* What one kernel of so many steps adds to every word. */
static inline uint32_t outcome(uint32_t steps) {
    uint32_t x = 1;
    while (steps--) x = x * 1664525u + 1013904223u;
    return x;
}

/* ---- time and arguments ----------------------------------------------------------------------------------------- */

/* Seconds of the monotonic clock, the same for all processes. */
static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sleep_until(double when) {
    struct timespec t = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

/* The number in `text`, or the program ends with 2. */
static inline double number(const char *program_name, const char *name, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*text && !*end && value >= 0) return value;
    fprintf(stderr, "%s: %s: '%s' is no number from 0 on\n", program_name, name, text);
    exit(2);
}

/* Value of `--name X` among the arguments, or `otherwise`. */
static inline double option(int argc, char **argv, const char *name, double otherwise) {
    for (int i = 2; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return number(argv[0], name, argv[i + 1]);
    return otherwise;
}

static inline int flag(int argc, char **argv, const char *name) {
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], name)) return 1;
    return 0;
}

/* Ends the program with 2 unless every word after the first is among `known` (names that take a number end in '='). */
static inline void known_options(int argc, char **argv, const char *const *known) {
    for (int i = 2; i < argc; i++) {
        const char *const *k = known;
        size_t n = strlen(argv[i]);
        while (*k && (strncmp(*k, argv[i], n) || ((*k)[n] && strcmp(*k + n, "=")))) k++;
        if (!*k) {
            fprintf(stderr, "%s: %s: is no option\n", argv[0], argv[i]);
            exit(2);
        }
        if ((*k)[n] == '=' && i + 1 < argc) {
            number(argv[0], argv[i], argv[i + 1]);
            i++;
        } else if ((*k)[n] == '=') {
            fprintf(stderr, "%s: %s: its value is missing\n", argv[0], argv[i]);
            exit(2);
        }
    }
}

/* Steps of a kernel that takes so many µs, from what `flat calibrate` found. */
static inline uint32_t steps_for(int argc, char **argv, double us) {
    double base = option(argc, argv, "--base-us", 0), rate = option(argc, argv, "--steps-per-us", 0);
    if (rate <= 0) {
        fprintf(stderr, "%s: --steps-per-us is missing: `flat calibrate` prints it\n", argv[0]);
        exit(2);
    }
    return us > base ? (uint32_t)((us - base) * rate) : 0;
}

#endif
