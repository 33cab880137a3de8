/* The few declarations of OpenCL that these tests need, with handles as plain pointers. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef unsigned long cl_ulong;

enum {
    CL_INVALID_VALUE = -30,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_NAME = 0x102B,
    CL_QUEUE_DEVICE = 0x1091,
    CL_QUEUE_REFERENCE_COUNT = 0x1092,
    CL_QUEUE_PROPERTIES = 0x1093,
    CL_EVENT_COMMAND_QUEUE = 0x11D0,
};

void *clCreateCommandQueue(void *context, void *device, cl_ulong properties, int *error);
void *clCreateCommandQueueWithProperties(void *context, void *device, const cl_ulong *properties, int *error);
int clReleaseCommandQueue(void *queue);
int clFinish(void *queue);
int clEnqueueNDRangeKernel(
    void *queue, void *kernel, unsigned dimensions, const size_t *offset, const size_t *size, const size_t *local,
    unsigned count, const void *list, void **event);
int clEnqueueReadBufferRect(
    void *queue, void *buffer, unsigned blocking, const size_t *a, const size_t *b, const size_t *c, size_t d, size_t e,
    size_t f, size_t g, void *at, unsigned count, const void *list, void **event);
int clEnqueueNativeKernel(
    void *queue, void (*call)(void *), void *data, size_t size, unsigned objects, const void *list, const void **where,
    unsigned count, const void *waits, void **event);
int clWaitForEvents(unsigned count, void *const *list);
int clSetEventCallback(void *event, int type, void (*call)(void *, int, void *), void *data);
int clGetPlatformIDs(unsigned count, void **list, unsigned *number);
void *clGetExtensionFunctionAddress(const char *name);
void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name);

typedef int (*finish_fn)(void *);
typedef int (*launch_fn)(
    void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned, const void *, void **);
typedef void *(*create_fn)(void *, void *, cl_ulong, int *);

#ifdef __cplusplus
}
#endif
