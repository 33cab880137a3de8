/* A vendor's runtime, as libcudart over libcuda: passes on what both programs and libraries ask for. With -DCUDA over
 * the driver, found as libcudart does; with -DHIP, as part of a vendor's library, over HIP, which is such a runtime; else
 * over the simulated device. */
#include <stddef.h>
#ifdef CUDA
#include <dlfcn.h>
#include <stdint.h>

struct launch {
    void *function, **arguments;
};
typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);
typedef int (*create_fn)(void **, unsigned);
typedef int (*lookup_fn)(const char *, void **, int, uint64_t, int *);

static void *entry(const char *name)
{
    static void *driver;
    void *found = NULL;
    int how = 0;
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    lookup_fn lookup = driver ? (lookup_fn)dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (!lookup || lookup(name, &found, 12000, 0, &how) != 0)
        return NULL;
    return found;
}

static int give(const void *kernel, void *stream)
{
    static launch_fn launch;
    const struct launch *l = kernel;
    if (!launch)
        launch = (launch_fn)entry("cuLaunchKernel");
    return launch(l->function, 1, 1, 1, 32, 1, 1, 0, stream, l->arguments, NULL);
}

static int create(void **stream)
{
    create_fn function = (create_fn)entry("cuStreamCreate");
    return function(stream, 1);
}
#elif defined HIP
#include "../hip/hip.h"

struct launch {
    void *function, **arguments;
};

static int give(const void *kernel, void *stream)
{
    const struct launch *l = kernel;
    return launch_as_compiled(l->function, 1, 32, stream, l->arguments);
}

static int create(void **stream)
{
    return hipStreamCreateWithFlags((hipStream_t *)stream, 1);
}
#else
#include "simdev.h"

static int give(const void *kernel, void *stream)
{
    return simLaunchKernel(kernel, stream);
}

static int create(void **stream)
{
    return simStreamCreate((simStream *)stream);
}
#endif

/* Some frames of its own between its entry and the driver's. */
__attribute__((noinline)) static int inner(const void *kernel, void *stream, int depth)
{
    volatile char room[96];
    room[0] = (char)depth;
    int error = depth > 0 ? inner(kernel, stream, depth - 1) : give(kernel, stream);
    return error + (room[0] - depth);
}

int runtime_launch(const void *kernel, void *stream)
{
    volatile int zero = 0;
    return inner(kernel, stream, 2) + zero;
}

int runtime_stream(void **stream)
{
    volatile int zero = 0;
    return create(stream) + zero;
}
