/* Wrong calls: prints the error each one gives, so that two runs can be compared. The program goes on after every one. */
#include "check.h"

int main(void)
{
    setup();
    cl_command_queue queue = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_int value = 1, error;
    cl_mem data = buffer_of(sizeof value, &value);
    size_t one = 1, zero = 0, huge[3] = {1, 1, 1};
    cl_event unset = NULL;
    cl_int pattern = 0;
#define SHOW(call) printf("%-40.40s %d\n", #call, (call))
    SHOW(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL)); /* arguments not set */
    SHOW(clEnqueueNDRangeKernel(queue, kernel, 0, NULL, &one, NULL, 0, NULL, NULL));
    SHOW(clEnqueueNDRangeKernel(queue, kernel, 9, NULL, huge, NULL, 0, NULL, NULL));
    SHOW(clEnqueueNDRangeKernel(NULL, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    SHOW(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, NULL, NULL));
    SHOW(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, &unset, NULL));
    SHOW(clEnqueueReadBuffer(queue, data, CL_TRUE, 2, sizeof value, &value, 0, NULL, NULL));
    SHOW(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof value, NULL, 0, NULL, NULL));
    SHOW(clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    SHOW(clEnqueueReadBuffer(NULL, data, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    SHOW(clEnqueueWriteBuffer(queue, data, CL_FALSE, 0, 1 << 20, &value, 0, NULL, NULL));
    SHOW(clEnqueueCopyBuffer(queue, data, data, 0, 0, sizeof value, 0, NULL, NULL));
    SHOW(clEnqueueFillBuffer(queue, data, &pattern, 3, 0, sizeof value, 0, NULL, NULL));
    SHOW(clEnqueueMarkerWithWaitList(queue, 1, NULL, NULL));
    SHOW(clEnqueueBarrierWithWaitList(NULL, 0, NULL, NULL));
    SHOW(clEnqueueMigrateMemObjects(queue, 0, NULL, 0, 0, NULL, NULL));
    SHOW(clWaitForEvents(0, NULL));
    SHOW(clWaitForEvents(1, NULL));
    SHOW(clFinish(NULL));
    SHOW(clFlush(NULL));
    SHOW(clRetainCommandQueue(NULL));
    SHOW(clReleaseCommandQueue(NULL));
    SHOW(clReleaseEvent(NULL));
    SHOW(clReleaseContext(NULL));
    error = 77;
    void *p = clEnqueueMapBuffer(queue, data, CL_TRUE, CL_MAP_READ, 0, 99, 0, NULL, NULL, &error);
    printf("map too much: %s %d\n", p ? "pointer" : "null", error);
    p = clEnqueueMapBuffer(queue, data, CL_TRUE, CL_MAP_READ, 0, 99, 0, NULL, NULL, NULL);
    printf("map too much, no error wanted: %s\n", p ? "pointer" : "null");
    cl_queue_properties unknown[] = {0x7fff, 1, 0};
    CHECK(clCreateCommandQueueWithProperties(context, device, unknown, &error) == NULL);
    printf("queue with an unknown property: %d\n", error);
    CHECK(clCreateCommandQueueWithProperties(NULL, device, NULL, &error) == NULL);
    printf("queue without a context: %d\n", error);
    CHECK(clCreateContext(NULL, 0, NULL, NULL, NULL, &error) == NULL);
    printf("context without devices: %d\n", error);
    CHECK(clCreateUserEvent(NULL, &error) == NULL);
    printf("user event without a context: %d\n", error);
    cl_event event = clCreateUserEvent(context, &error);
    SHOW(clSetUserEventStatus(event, 5));
    SHOW(clSetUserEventStatus(event, CL_COMPLETE));
    SHOW(clSetUserEventStatus(event, CL_COMPLETE));
    SHOW(clSetUserEventStatus(NULL, CL_COMPLETE));

    /* After all that the queue still works. */
    OK(clSetKernelArg(kernel, 1, sizeof value, &value));
    step(queue, kernel, data, 1, 1, 3, 0, NULL, NULL);
    cl_int back = 0;
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, zero, sizeof back, &back, 0, NULL, NULL));
    CHECK(back == 6);
    puts("the queue still works");
    return 0;
}
