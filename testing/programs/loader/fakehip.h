/* The few declarations of HIP that these tests need, with handles as plain pointers. */
#pragma once
#include <stddef.h>

struct dim3 {
    unsigned x, y, z;
};

void **__hipRegisterFatBinary(const void *wrapper);
void __hipRegisterFunction(
    void **module, const void *host, char *device, const char *name, unsigned limit, void *a, void *b, void *c, void *d,
    int *size);
void __hipRegisterVar(
    void **module, void *variable, char *host, char *device, int external, size_t size, int constant, int global);
void __hipUnregisterFatBinary(void **module);
int hipMalloc(void **at, size_t size);
int hipFree(void *at);
int hipDeviceSynchronize(void);
int hipStreamCreate(void **stream);
int hipStreamDestroy(void *stream);
int hipStreamSynchronize(void *stream);
int hipStreamSynchronize_spt(void *stream);
int hipLaunchKernel(const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream);
int hipLaunchKernel_spt(const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream);
int hipModuleLoadData(void **module, const void *image);
int hipModuleGetFunction(void **function, void *module, const char *name);
int hipModuleLaunchKernel(
    void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared, void *stream,
    void **parameters, void **extra);
int _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
    void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, size_t shared, void *stream,
    void **parameters, void **extra, void *start, void *stop, unsigned flags);
int hipMemcpy(void *to, const void *from, size_t size, int kind);
int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream);
int hipMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind);
int hipMemPrefetchAsync(const void *at, size_t size, int device, void *stream);
int hipGetProcAddress(const char *name, void **found, int version, unsigned long long flags, int *status);
