/* A CUDA driver that does nothing: what an enqueue or an allocation costs besides. One device, one context. Signatures as in cuda.h. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int

static char context;

API cuInit(unsigned flags) { return (int)flags; }
API cuDeviceGetCount(int *count) { return *count = 1, 0; }
API cuDeviceGetName(char *name, int length, int device) { return strncpy(name, "nothing", (size_t)length), device; }
API cuDeviceGetPCIBusId(char *id, int length, int device) { return strncpy(id, "0000:00:01.0", (size_t)length), device; }
API cuDeviceGetUuid_v2(void *uuid, int device) { return memset(uuid, 1, 16), device; }
API cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, *value = 0, device; }
API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = 1, device; }
API cuDevicePrimaryCtxRetain(void **made, int device) { return *made = &context, device; }
API cuCtxGetCurrent(void **current) { return *current = &context, 0; }
API cuCtxGetDevice(int *device) { return *device = 0; }
API cuCtxPushCurrent_v2(void *pushed) { return pushed != &context; }
API cuCtxPopCurrent_v2(void **popped) { return *popped = &context, 0; }
API cuStreamGetFlags(void *stream, unsigned *flags) { return *flags = stream != NULL, 0; }
API cuStreamGetCtx(void *stream, void **of) { return (void)stream, *of = &context, 0; }
API cuCtxSynchronize(void) { return 0; }
API cuStreamSynchronize(void *stream) { return (void)stream, 0; }
API cuStreamGetPriority(void *stream, int *priority) { return (void)stream, *priority = 0; }
API cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0; }
API cuThreadExchangeStreamCaptureMode(int *mode) { return (void)mode, 0; }
API cuMemHostRegister_v2(void *from, size_t bytes, unsigned flags) { return (void)from, (void)bytes, (void)flags, 0; }
API cuMemHostGetDevicePointer_v2(uint64_t *at, void *host, unsigned flags) { return *at = (uintptr_t)host, (void)flags, 0; }
API cuStreamWaitValue32_v2(void *stream, uint64_t at, uint32_t value, unsigned flags) {
    return (void)stream, (void)at, (void)value, (void)flags, 0;
}
API cuStreamWriteValue32_v2(void *stream, uint64_t at, uint32_t value, unsigned flags) {
    return (void)stream, *(volatile uint32_t *)(uintptr_t)at = value, (int)(flags & 0);
}
API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    return (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream,
           (void)arguments, (void)extra, 0;
}

/* Addresses that come back at once, each way with its own. */
static uint64_t next = 0x7f0000000000, free_plain[64], free_pooled;
static int plains;

API cuDeviceGet(int *device, int index) { return *device = index; }
API cuCtxSetCurrent(void *current) { return current != &context; }
API cuStreamCreate(void **made, unsigned flags) { return *made = (void *)0x5000, (int)(flags & 0); }
API cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)80 << 30, device; }
API cuMemGetInfo_v2(size_t *left, size_t *bytes) { return *left = *bytes = (size_t)80 << 30, 0; }
API cuDeviceGetDefaultMemPool(void **pool, int device) { return *pool = (void *)0x6000, device; }
API cuMemPoolSetAttribute(void *pool, int attribute, void *value) { return (void)attribute, (void)value, !pool; }
API cuDeviceGetMemPool(void **pool, int device) { return *pool = (void *)0x6000, device; }
API cuMemPoolGetAttribute(void *pool, int attribute, uint64_t *value) { return *value = (uint64_t)(attribute == 5) << 30, !pool; }
API cuMemAlloc_v2(uint64_t *at, size_t bytes) { return *at = plains ? free_plain[--plains] : (next += bytes), 0; }
API cuMemFree_v2(uint64_t at) { return free_plain[plains++ % 64] = at, 0; }
API cuMemAllocAsync(uint64_t *at, size_t bytes, void *stream) {
    return *at = free_pooled ? free_pooled : (next += bytes), free_pooled = 0, stream == &context;
}
API cuMemFreeAsync(uint64_t at, void *stream) { return free_pooled = at, stream == &context; }
API cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void *stream) { return at && !value && bytes ? stream != &context && !stream : 1; }
