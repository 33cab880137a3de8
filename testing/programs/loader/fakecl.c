/* A library that poses as an OpenCL loader. Built several times with -DCOPY=n: each copy prints what was called in it,
 * and complains of handles that another copy made. What the preload library calls on its own is only checked. Printed
 * without a buffer: a copy in a namespace of its own has a C library of its own. */
#include "fakecl.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct queue {
    int copy;
};

struct event {
    int copy;
    void *queue;
};

static int device;

static void check(const char *name, int copy)
{
    if (copy != COPY) {
        dprintf(1, "%s: copy %d was given a handle of copy %d\n", name, COPY, copy);
        abort();
    }
    if ((uintptr_t)__builtin_frame_address(0) % 16 != 0) {
        dprintf(1, "the stack is not aligned\n");
        abort();
    }
}

static void say(const char *name, struct queue *queue)
{
    check(name, queue->copy);
    dprintf(1, "%s in copy %d\n", name, COPY);
}

static void *new_queue(const char *name, int *error)
{
    struct queue *queue = malloc(sizeof *queue);
    *queue = (struct queue){COPY};
    say(name, queue);
    if (error)
        *error = 0;
    return queue;
}

static void give(void *queue, void **event)
{
    if (!event)
        return;
    struct event *made = malloc(sizeof *made);
    *made = (struct event){COPY, queue};
    *event = made;
}

static int answer(const void *value, size_t length, size_t size, void *at, size_t *got)
{
    if (got)
        *got = length;
    if (at && size >= length)
        memcpy(at, value, length);
    errno = EPROTO; /* a driver leaves what it likes there */
    return 0;
}

void *clCreateCommandQueue(void *context, void *device, cl_ulong properties, int *error)
{
    (void)context, (void)device, (void)properties;
    return new_queue("clCreateCommandQueue", error);
}

void *clCreateCommandQueueWithProperties(void *context, void *device, const cl_ulong *properties, int *error)
{
    (void)context, (void)device, (void)properties;
    return new_queue("clCreateCommandQueueWithProperties", error);
}

int clRetainCommandQueue(void *queue)
{
    check("clRetainCommandQueue", ((struct queue *)queue)->copy);
    return 0;
}

int clReleaseCommandQueue(void *queue) /* leaked, so that every handle is told apart */
{
    say("clReleaseCommandQueue", queue);
    return 0;
}

int clGetCommandQueueInfo(void *queue, unsigned what, size_t size, void *at, size_t *got)
{
    check("clGetCommandQueueInfo", ((struct queue *)queue)->copy);
    void *own = &device;
    cl_ulong properties = 0;
    unsigned references = 1;
    switch (what) {
    case CL_QUEUE_DEVICE: return answer(&own, sizeof own, size, at, got);
    case CL_QUEUE_REFERENCE_COUNT: return answer(&references, sizeof references, size, at, got);
    case CL_QUEUE_PROPERTIES: return answer(&properties, sizeof properties, size, at, got);
    default: return CL_INVALID_VALUE;
    }
}

int clGetDeviceInfo(void *which, unsigned what, size_t size, void *at, size_t *got)
{
    if (which != &device) {
        dprintf(1, "clGetDeviceInfo: copy %d was given a foreign device\n", COPY);
        abort();
    }
    unsigned long accelerator = 8;
    if (what == CL_DEVICE_TYPE)
        return answer(&accelerator, sizeof accelerator, size, at, got);
    return what == CL_DEVICE_NAME ? answer("fake", 5, size, at, got) : CL_INVALID_VALUE;
}

int clGetEventInfo(void *event, unsigned what, size_t size, void *at, size_t *got)
{
    struct event *own = event;
    check("clGetEventInfo", own->copy);
    return what == CL_EVENT_COMMAND_QUEUE ? answer(&own->queue, sizeof own->queue, size, at, got) : CL_INVALID_VALUE;
}

int clSetEventCallback(void *event, int type, void (*call)(void *, int, void *), void *data)
{
    check("clSetEventCallback", ((struct event *)event)->copy);
    call(event, type, data); /* everything is complete at once */
    return 0;
}

int clReleaseEvent(void *event)
{
    check("clReleaseEvent", ((struct event *)event)->copy);
    free(event);
    return 0;
}

int clFlush(void *queue)
{
    check("clFlush", ((struct queue *)queue)->copy);
    return 0;
}

static int finish(void *queue)
{
    say("clFinish", queue);
    return 0;
}

static int launch(
    void *queue, void *kernel, unsigned dimensions, const size_t *offset, const size_t *size, const size_t *local,
    unsigned count, const void *list, void **event)
{
    (void)offset, (void)size, (void)local, (void)list;
    say("clEnqueueNDRangeKernel", queue);
    dprintf(1, "  kernel %p, %u dimensions, %u events\n", kernel, dimensions, count);
    give(queue, event);
    return 0;
}

int clFinish(void *queue)
{
    return finish(queue);
}

int clEnqueueNDRangeKernel(
    void *queue, void *kernel, unsigned dimensions, const size_t *offset, const size_t *size, const size_t *local,
    unsigned count, const void *list, void **event)
{
    return launch(queue, kernel, dimensions, offset, size, local, count, list, event);
}

/* The longest argument list there is: six registers, eight words on the stack. */
int clEnqueueReadBufferRect(
    void *queue, void *buffer, unsigned blocking, const size_t *a, const size_t *b, const size_t *c, size_t d, size_t e,
    size_t f, size_t g, void *at, unsigned count, const void *list, void **event)
{
    say("clEnqueueReadBufferRect", queue);
    dprintf(1, "  %p %u %p %p %p %zu %zu %zu %zu %p %u %p\n", buffer, blocking, (void *)a, (void *)b, (void *)c, d, e, f, g,
        at, count, list);
    give(queue, event);
    return 0;
}

/* Runs at once, on the caller's own stack, so that what it throws passes through the call. */
int clEnqueueNativeKernel(
    void *queue, void (*call)(void *), void *data, size_t size, unsigned objects, const void *list, const void **where,
    unsigned count, const void *waits, void **event)
{
    (void)size, (void)objects, (void)list, (void)where, (void)count, (void)waits;
    say("clEnqueueNativeKernel", queue);
    call(data);
    give(queue, event);
    return 0;
}

int clEnqueueMarkerWithWaitList(void *queue, unsigned count, const void *list, void **event)
{
    (void)count, (void)list;
    check("clEnqueueMarkerWithWaitList", ((struct queue *)queue)->copy);
    give(queue, event);
    return 0;
}

/* Waits for nothing: every event is complete. Tells of itself through the event's owner. */
int clWaitForEvents(unsigned count, void *const *list)
{
    for (unsigned i = 0; i < count; i++)
        say("clWaitForEvents", ((struct event *)list[i])->queue);
    return 0;
}

/* Not hooked by anyone. */
int clGetPlatformIDs(unsigned count, void **list, unsigned *number)
{
    (void)count, (void)list;
    dprintf(1, "clGetPlatformIDs in copy %d\n", COPY);
    *number = COPY;
    return 0;
}

void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name)
{
    (void)platform;
    dprintf(1, "clGetExtensionFunctionAddressForPlatform in copy %d\n", COPY);
    if (strcmp(name, "clFinish") == 0)
        return (void *)finish; /* a driver's own function, which no symbol names */
    if (strcmp(name, "clEnqueueNDRangeKernel") == 0)
        return (void *)clEnqueueNDRangeKernel; /* as the dynamic linker bound it */
    return NULL;
}

void *clGetExtensionFunctionAddress(const char *name)
{
    return clGetExtensionFunctionAddressForPlatform(NULL, name);
}
