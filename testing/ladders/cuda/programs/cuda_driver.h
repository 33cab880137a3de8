/* The CUDA driver API as the ladder's C programs need it: declared here, reached by dlopen, to build anywhere.
 *
 * Exit codes of the programs: 0, 1 a wrong result or an error of the driver, 2 bad arguments, 3 no driver or no GPU. */

#pragma once

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t device_ptr;

static void *driver_library;

/* The address of a driver function; ends the program if there is none. */
static inline void *driver_function(const char *name) {
    if (!driver_library)
        driver_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver_library) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        exit(3);
    }
    void *function = dlsym(driver_library, name);
    if (!function) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(3);
    }
    return function;
}

/* Declares a pointer to a driver function in the current scope: DRIVER(cuInit, unsigned); */
#define DRIVER(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))driver_function(#name)

/* Ends the program if a driver call fails. */
#define MUST(call) must((call), #call)

static inline void must(int rc, const char *call) {
    if (rc != 0) {
        fprintf(stderr, "%.60s: error %d\n", call, rc);
        exit(rc == 100 ? 3 : 1);
    }
}

/* A current context on device 0: the primary one. */
static inline void *begin(void) {
    DRIVER(cuInit, unsigned);
    DRIVER(cuDeviceGet, int *, int);
    DRIVER(cuDevicePrimaryCtxRetain, void **, int);
    DRIVER(cuCtxSetCurrent, void *);
    int device;
    void *context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return context;
}

static inline void *load_kernel(const char *ptx, const char *name) {
    DRIVER(cuModuleLoadData, void **, const void *);
    DRIVER(cuModuleGetFunction, void **, void *, const char *);
    void *module, *function;
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
}

typedef int launch_fn(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                      void **extra);

/* data[i] = data[i] * factor + i, for every thread: the order of launches shows in the result. */
#define STEP_PTX                                                                                                       \
    ".version 6.0\n.target sm_50\n.address_size 64\n"                                                                  \
    ".visible .entry step(.param .u64 data, .param .u32 n, .param .u32 factor) {\n"                                    \
    ".reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<4>;\n"                                                              \
    "ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [factor];\n"                                  \
    "mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"                                              \
    "mad.lo.u32 %r6, %r3, %r4, %r5; setp.ge.u32 %p, %r6, %r1; @%p bra done;\n"                                         \
    "mul.wide.u32 %rd2, %r6, 4; add.u64 %rd3, %rd1, %rd2; ld.global.u32 %r7, [%rd3];\n"                                \
    "mad.lo.u32 %r8, %r7, %r2, %r6; st.global.u32 [%rd3], %r8;\n"                                                      \
    "done:\nret;\n}\n"

/* Every thread of block after block is busy for so many ns; each block's first thread then counts itself. */
#define SPIN_PTX                                                                                                       \
    ".version 6.0\n.target sm_50\n.address_size 64\n"                                                                  \
    ".visible .entry spin(.param .u64 count, .param .u64 ns) {\n"                                                      \
    ".reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<6>;\n"                                                           \
    "ld.param.u64 %rd1, [count]; ld.param.u64 %rd2, [ns]; mov.u64 %rd3, %globaltimer;\n"                               \
    "again:\nmov.u64 %rd4, %globaltimer; sub.u64 %rd5, %rd4, %rd3; setp.lt.u64 %p0, %rd5, %rd2; @%p0 bra again;\n"     \
    "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra done;\n"                                                   \
    "atom.global.add.u32 %r2, [%rd1], 1;\n"                                                                            \
    "done:\nret;\n}\n"

/* What `step` makes of a zero at index i, run once for each factor first..last. */
static inline uint32_t stepped(uint32_t i, uint32_t first, uint32_t last) {
    uint32_t word = 0;
    for (uint32_t factor = first; factor <= last; factor++)
        word = word * factor + i;
    return word;
}
