/* Four threads, each with its own context and two queues that wait for each other, then one context shared by all
 * threads; queues that are retained, released while busy, and of every KHR priority. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40, N = 1024 };

static cl_context shared;

static void ping_pong(cl_context where)
{
    cl_int error, zero = 0;
    cl_command_queue queues[2];
    for (int i = 0; i < 2; i++) {
        queues[i] = clCreateCommandQueueWithProperties(where, device, NULL, &error);
        OK(error);
    }
    cl_kernel kernel = kernel_in(where, STEP_SOURCE, "advance");
    cl_mem data = clCreateBuffer(where, CL_MEM_READ_WRITE, N * sizeof(cl_int), NULL, &error);
    OK(error);
    cl_event last;
    OK(clEnqueueFillBuffer(queues[0], data, &zero, sizeof zero, 0, N * sizeof(cl_int), 0, NULL, &last));
    cl_uint expected = 0;
    for (int i = 0; i < ROUNDS; i++) {
        cl_event done;
        OK(clFlush(queues[i % 2]));
        step(queues[(i + 1) % 2], kernel, data, N, i, i % 5 == 0 ? 2 : 1, 1, &last, &done);
        expected = (expected + (cl_uint)i) * (i % 5 == 0 ? 2 : 1);
        OK(clReleaseEvent(last));
        last = done;
    }
    cl_int back[N];
    OK(clEnqueueReadBuffer(queues[0], data, CL_TRUE, 0, sizeof back, back, 1, &last, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == (cl_int)expected);
    OK(clReleaseEvent(last));
    /* Released while it may still hold work: the driver keeps it until that is done. */
    cl_event end;
    step(queues[1], kernel, data, N, 1, 1, 0, NULL, &end);
    OK(clRetainCommandQueue(queues[1]));
    OK(clReleaseCommandQueue(queues[1]));
    OK(clFlush(queues[1]));
    OK(clReleaseCommandQueue(queues[1]));
    OK(clWaitForEvents(1, &end));
    OK(clReleaseEvent(end));
    OK(clReleaseMemObject(data));
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(queues[0]));
}

static void *own_context(void *unused)
{
    cl_int error;
    cl_context mine = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
    ping_pong(mine);
    OK(clReleaseContext(mine));
    return unused;
}

static void *shared_context(void *unused)
{
    ping_pong(shared);
    return unused;
}

static void in_threads(void *(*body)(void *), const char *what)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%s: ok\n", what);
}

int main(void)
{
    setup();
    shared = context;
    in_threads(own_context, "a context a thread");
    in_threads(shared_context, "one context");

    /* Queue handles are reused by drivers: many short-lived ones, checked each. */
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_int zero = 0, value;
    cl_mem data = buffer_of(sizeof zero, &zero);
    for (int i = 0; i < 200; i++) {
        cl_command_queue queue = queue_with(i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
        step(queue, kernel, data, 1, 1, 1, 0, NULL, NULL);
        OK(clFinish(queue));
        OK(clReleaseCommandQueue(queue));
    }
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, NULL);
    CHECK(queue);
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CHECK(value == 200);
    OK(clReleaseCommandQueue(queue));
    puts("short-lived queues: ok");

    static const cl_queue_properties levels[] = {
        CL_QUEUE_PRIORITY_HIGH_KHR, CL_QUEUE_PRIORITY_MED_KHR, CL_QUEUE_PRIORITY_LOW_KHR};
    for (int i = 0; i < 3; i++) {
        cl_int error;
        cl_queue_properties list[] = {CL_QUEUE_PRIORITY_KHR, levels[i], 0};
        queue = clCreateCommandQueueWithProperties(context, device, list, &error);
        printf("queue of priority %d: error %d\n", (int)levels[i], error);
        if (!queue)
            continue;
        step(queue, kernel, data, 1, 1, 1, 0, NULL, NULL);
        OK(clFinish(queue));
        OK(clReleaseCommandQueue(queue));
    }
    return 0;
}
