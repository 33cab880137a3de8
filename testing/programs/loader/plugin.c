/* An extension module: linked against an OpenCL library of its own. */
#define _GNU_SOURCE
#include "fakecl.h"
#include <dlfcn.h>
#include <stdio.h>


void *plugin_make(void)
{
    return clCreateCommandQueue(NULL, NULL, 0, NULL);
}

int plugin_work(void *queue)
{
    return clEnqueueNDRangeKernel(queue, NULL, 1, NULL, NULL, NULL, 0, NULL, NULL) | clFinish(queue);
}

/* The same from other call sites. */
int plugin_work_elsewhere(void *queue)
{
    return clEnqueueNDRangeKernel(queue, NULL, 2, NULL, NULL, NULL, 0, NULL, NULL) | clFinish(queue);
}

int plugin_release(void *queue)
{
    return clReleaseCommandQueue(queue);
}

finish_fn plugin_finish(void)
{
    return clFinish;
}

launch_fn plugin_launch(void)
{
    return clEnqueueNDRangeKernel;
}

void *plugin_look_up(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    asm volatile("" : "+r"(found)); /* no tail call: the call is this object's own */
    return found;
}
