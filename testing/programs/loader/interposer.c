/* Another preload library that wraps an OpenCL function, in the usual way. */
#define _GNU_SOURCE
#include "fakecl.h"
#include <dlfcn.h>
#include <stdio.h>

int clFinish(void *queue)
{
    static finish_fn real;
    if (!real)
        real = (finish_fn)dlsym(RTLD_NEXT, "clFinish");
    printf("interposer: clFinish, %s behind it\n", real ? "something" : "nothing");
    return real ? real(queue) : -1;
}

int clEnqueueNDRangeKernel(
    void *queue, void *kernel, unsigned dimensions, const size_t *offset, const size_t *size, const size_t *local,
    unsigned count, const void *list, void **event)
{
    static launch_fn real;
    if (!real)
        real = (launch_fn)dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    printf("interposer: clEnqueueNDRangeKernel, %s behind it\n", real ? "something" : "nothing");
    return real ? real(queue, kernel, dimensions, offset, size, local, count, list, event) : -1;
}
