/* A pretended libamdhip64 for tests of who is called: it runs nothing, says which copy each call reached, and knows only
 * what was registered with or made by that copy, as the real one does. -DCOPY=n names the copy. Some functions call
 * others through their exported names, as ROCm 5.2's library does, and one does so on a thread of its own. */
#define _GNU_SOURCE
#include "fakehip.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_SYMBOL = 13, INVALID_FUNCTION = 98, INVALID_HANDLE = 400, DESTROYED = 709, MOST = 64 };

struct set {
    const void *items[MOST];
    int used;
};

static struct set functions, variables, streams, modules;
static __thread int depth, is_worker;

static int knows(const struct set *set, const void *item)
{
    for (int i = 0; i < set->used; i++)
        if (set->items[i] == item)
            return 1;
    return 0;
}

static void *make(struct set *set)
{
    void *item = malloc(64);
    if (set->used == MOST)
        abort();
    set->items[set->used++] = item;
    return item;
}

static int said(const char *name, int rc)
{
    printf("%s in copy %d%s: %d\n", name, COPY, depth ? " inside" : is_worker ? " on its own thread" : "", rc);
    fflush(stdout);
    return rc;
}

static int on_stream(void *stream)
{
    return (size_t)stream <= 2 || knows(&streams, stream) ? SUCCESS : DESTROYED;
}

/* Compiled programs. */
void **__hipRegisterFatBinary(const void *wrapper)
{
    (void)wrapper;
    return make(&modules);
}

void __hipRegisterFunction(
    void **module, const void *host, char *device, const char *name, unsigned limit, void *a, void *b, void *c, void *d,
    int *size)
{
    (void)device, (void)name, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)size;
    if (knows(&modules, module))
        functions.items[functions.used++] = host;
}

void __hipRegisterVar(
    void **module, void *variable, char *host, char *device, int external, size_t size, int constant, int global)
{
    (void)host, (void)device, (void)external, (void)size, (void)constant, (void)global;
    if (knows(&modules, module))
        variables.items[variables.used++] = variable;
}

void __hipUnregisterFatBinary(void **module)
{
    said("__hipUnregisterFatBinary", knows(&modules, module) ? SUCCESS : INVALID_HANDLE);
}

/* Devices: one, not AMD's. */
int hipGetDeviceCount(int *count)
{
    *count = 1;
    return SUCCESS;
}

int hipGetDevice(int *device)
{
    *device = 0;
    return SUCCESS;
}

int hipDeviceGetPCIBusId(char *text, int room, int device)
{
    snprintf(text, (size_t)room, "0000:%02X:00.0", 0x40 + device);
    return SUCCESS;
}

int hipPeekAtLastError(void)
{
    return SUCCESS;
}

int hipGetLastError(void)
{
    return SUCCESS;
}

int hipDeviceSynchronize(void)
{
    return said("hipDeviceSynchronize", SUCCESS);
}

int hipDeviceReset(void)
{
    return said("hipDeviceReset", SUCCESS);
}

int hipMalloc(void **at, size_t size)
{
    *at = calloc(1, size);
    return SUCCESS;
}

int hipFree(void *at)
{
    free(at);
    return SUCCESS;
}

/* Streams. */
int hipStreamCreate(void **stream)
{
    *stream = make(&streams);
    return said("hipStreamCreate", SUCCESS);
}

int hipStreamDestroy(void *stream)
{
    return said("hipStreamDestroy", (size_t)stream > 2 ? on_stream(stream) : INVALID_HANDLE);
}

int hipStreamSynchronize(void *stream)
{
    return said("hipStreamSynchronize", on_stream(stream));
}

int hipStreamSynchronize_spt(void *stream)
{
    return said("hipStreamSynchronize_spt", on_stream(stream));
}

/* Launches. */
int hipLaunchKernel(const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream)
{
    printf("%u,%u,%u x %u,%u,%u with %p, %zu bytes\n", grid.x, grid.y, grid.z, block.x, block.y, block.z, args[0], shared);
    return said("hipLaunchKernel", knows(&functions, f) ? on_stream(stream) : INVALID_FUNCTION);
}

int hipLaunchKernel_spt(const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream)
{
    printf("%u,%u,%u x %u,%u,%u with %p, %zu bytes\n", grid.x, grid.y, grid.z, block.x, block.y, block.z, args[0], shared);
    return said("hipLaunchKernel_spt", knows(&functions, f) ? on_stream(stream) : INVALID_FUNCTION);
}

int hipModuleLoadData(void **module, const void *image)
{
    (void)image;
    *module = make(&modules);
    return said("hipModuleLoadData", SUCCESS);
}

int hipModuleGetFunction(void **function, void *module, const char *name)
{
    (void)name;
    *function = module;
    return said("hipModuleGetFunction", knows(&modules, module) ? SUCCESS : INVALID_HANDLE);
}

int hipModuleLaunchKernel(
    void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared, void *stream,
    void **parameters, void **extra)
{
    printf("%u,%u,%u x %u,%u,%u, %u bytes, %p %p\n", a, b, c, d, e, g, shared, parameters[0], (void *)extra);
    return said("hipModuleLaunchKernel", knows(&modules, f) ? on_stream(stream) : INVALID_HANDLE);
}

/* C++ in the real one. Calls another export by name. */
int _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
    void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, size_t shared, void *stream,
    void **parameters, void **extra, void *start, void *stop, unsigned flags)
{
    printf("events %p %p, flags %u\n", start, stop, flags);
    depth++;
    int rc = hipModuleLaunchKernel(f, a / d, b / e, c / g, d, e, g, (unsigned)shared, stream, parameters, extra);
    depth--;
    return said("hipExtModuleLaunchKernel", rc);
}

/* Copies. */
int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream)
{
    (void)kind;
    memcpy(to, from, size);
    return said("hipMemcpyAsync", on_stream(stream));
}

int hipMemcpy(void *to, const void *from, size_t size, int kind)
{
    depth++;
    int rc = hipMemcpyAsync(to, from, size, kind, NULL);
    hipStreamSynchronize(NULL);
    depth--;
    return said("hipMemcpy", rc);
}

int hipMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind)
{
    (void)from, (void)size, (void)offset, (void)kind;
    return said("hipMemcpyToSymbol", knows(&variables, symbol) ? SUCCESS : INVALID_SYMBOL);
}

static void *copies_later(void *at)
{
    is_worker = 1;
    hipMemcpyAsync(at, (char *)at + 8, 8, 4, NULL);
    return NULL;
}

/* Does its work on a thread of its own, by an exported name. */
int hipMemPrefetchAsync(const void *at, size_t size, int device, void *stream)
{
    (void)size, (void)device;
    pthread_t thread;
    if (pthread_create(&thread, NULL, copies_later, (void *)(size_t)at))
        abort();
    pthread_join(thread, NULL);
    return said("hipMemPrefetchAsync", on_stream(stream));
}

/* Functions by name; as in the real one, the answer may be bound to whoever defines the name first. */
int hipGetProcAddress(const char *name, void **found, int version, unsigned long long flags, int *status)
{
    (void)version, (void)flags;
    *found = !strcmp(name, "hipLaunchKernel")       ? (void *)hipLaunchKernel
             : !strcmp(name, "hipStreamSynchronize") ? (void *)hipStreamSynchronize
                                                     : NULL;
    if (status)
        *status = *found ? 0 : 1;
    return said("hipGetProcAddress", *found ? SUCCESS : INVALID_SYMBOL);
}
