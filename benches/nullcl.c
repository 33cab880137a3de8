/* An OpenCL library that does nothing: what is left when it is called is the cost of whoever stands between.
 * A completion is reported when the next one is asked for, as on a device that is kept busy.
 * Built as libOpenCL.so.1 for benches/launch.c only. */
#include <stddef.h>
#include <stdint.h>

typedef void (*callback)(void *event, int status, void *data);

int clEnqueueNDRangeKernel(void *queue, void *kernel, unsigned dim, const size_t *offset, const size_t *size,
                           const size_t *local, unsigned count, void *const *list, void **event) {
    (void)queue, (void)kernel, (void)dim, (void)offset, (void)size, (void)local, (void)count, (void)list;
    if (event) *event = (void *)8;
    return 0;
}
int clEnqueueMarkerWithWaitList(void *queue, unsigned count, void *const *list, void **event) {
    (void)queue, (void)count, (void)list;
    if (event) *event = (void *)8;
    return 0;
}
int clSetEventCallback(void *event, int type, callback f, void *data) {
    static callback due;
    static void *due_event, *due_data;
    (void)type;
    callback now = due;
    void *now_event = due_event, *now_data = due_data;
    due = f, due_event = event, due_data = data;
    if (now) now(now_event, 0, now_data);
    return 0;
}
int clReleaseEvent(void *event) { (void)event; return 0; }
int clRetainCommandQueue(void *queue) { (void)queue; return 0; }
int clReleaseCommandQueue(void *queue) { (void)queue; return 0; }
int clFlush(void *queue) { (void)queue; return 0; }
int clFinish(void *queue) { (void)queue; return 0; }
int clGetEventInfo(void *event, unsigned what, size_t size, void *at, size_t *got) {
    (void)event, (void)what, (void)size, (void)at, (void)got;
    return -30;
}
int clGetCommandQueueInfo(void *queue, unsigned what, size_t size, void *at, size_t *got) {
    (void)queue;
    if (size < 8 || (what != 0x1091 && what != 0x1093)) return -30; /* CL_QUEUE_DEVICE, CL_QUEUE_PROPERTIES */
    *(uint64_t *)at = what == 0x1091 ? 16 : 0;
    if (got) *got = 8;
    return 0;
}
int clGetDeviceInfo(void *device, unsigned what, size_t size, void *at, size_t *got) {
    (void)device;
    if (what != 0x1000 || size < 8) return -30; /* CL_DEVICE_TYPE: a CPU */
    *(uint64_t *)at = 2;
    if (got) *got = 8;
    return 0;
}
