/* A HIP runtime that does nothing, with DEVICES devices: what is left when it is called is the cost of whoever stands
 * between. A mark is passed at once. Built as libamdhip64.so.6 for benches/launch.c only. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifndef DEVICES
#define DEVICES 1
#endif

struct dim3 { uint32_t x, y, z; };

int hipLaunchKernel(const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream) {
    (void)f, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
    return 0;
}
int hipGetDeviceCount(int *count) { *count = DEVICES; return 0; }
int hipGetDevice(int *device) { *device = 0; return 0; }
int hipDeviceGetPCIBusId(char *text, int room, int device) {
    snprintf(text, (size_t)room, "0000:%02x:00.0", device + 1);
    return 0;
}
int hipPeekAtLastError(void) { return 0; }
int hipGetLastError(void) { return 0; }
int hipStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return 0; }
int hipStreamGetPriority(void *stream, int *priority) { (void)stream; *priority = 0; return 0; }
int hipStreamGetDevice(void *stream, int *device) { (void)stream; *device = 0; return 0; }
int hipHostRegister(void *at, size_t size, unsigned flags) { (void)at, (void)size, (void)flags; return 0; }
int hipHostGetDevicePointer(void **device, void *host, unsigned flags) { (void)flags; *device = host; return 0; }
int hipStreamWriteValue32(void *stream, void *at, uint32_t value, unsigned flags) {
    (void)stream, (void)flags;
    *(volatile uint32_t *)at = value;
    return 0;
}
