/* User events: work enqueued behind one runs only once it is set, by another thread or a callback; a failed one ends the
 * work behind it with an error. A scheduler that bounds work in flight must not wait for commands that wait for us. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { N = 256, DEEP = 300 };

static void *set_complete(void *event)
{
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    return NULL;
}

static void CL_CALLBACK chain(cl_event event, cl_int status, void *other)
{
    (void)event;
    OK(clSetUserEventStatus(other, status == CL_COMPLETE ? CL_COMPLETE : -1));
}

static atomic_int called;
static void CL_CALLBACK count(cl_event event, cl_int status, void *expected)
{
    (void)event;
    CHECK(status == *(cl_int *)expected);
    atomic_fetch_add(&called, 1);
}

int main(void)
{
    setup();
    cl_int error, zero = 0, complete = CL_COMPLETE;
    cl_command_queue queue = queue_with(0), other = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_mem data = buffer_of(N * sizeof(cl_int), NULL);
    static cl_int back[N];

    /* Many commands behind one event that this very thread sets only after enqueueing all of them. */
    OK(clEnqueueFillBuffer(queue, data, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    cl_event start = clCreateUserEvent(context, &error);
    OK(error);
    step(queue, kernel, data, N, 1, 1, 1, &start, NULL);
    for (int i = 1; i < DEEP; i++)
        step(queue, kernel, data, N, 1, 1, 0, NULL, NULL);
    cl_event end;
    OK(clEnqueueReadBuffer(queue, data, CL_FALSE, 0, sizeof back, back, 0, NULL, &end));
    OK(clSetEventCallback(end, CL_COMPLETE, count, &complete));
    OK(clFlush(queue));
    cl_int status;
    OK(clGetEventInfo(end, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    CHECK(status > CL_COMPLETE);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, set_complete, start) == 0);
    OK(clWaitForEvents(1, &end));
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < N; i++)
        CHECK(back[i] == DEEP);
    OK(clReleaseEvent(start));
    OK(clReleaseEvent(end));
    puts("one event before many commands: ok");

    /* Queue A's completion sets, from a callback, the event that queue B waits for. */
    cl_event link = clCreateUserEvent(context, &error), first, second;
    OK(error);
    cl_mem more = buffer_of(sizeof back, NULL);
    OK(clEnqueueFillBuffer(queue, more, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    OK(clFinish(queue));
    step(other, kernel, more, N, 4, 3, 1, &link, &second);
    OK(clFlush(other));
    step(queue, kernel, more, N, 2, 2, 0, NULL, &first);
    OK(clSetEventCallback(first, CL_COMPLETE, chain, link));
    OK(clFlush(queue));
    OK(clWaitForEvents(1, &second));
    OK(clEnqueueReadBuffer(other, more, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == (2 * 2 + 4) * 3);
    OK(clFinish(queue));
    OK(clReleaseEvent(link));
    OK(clReleaseEvent(first));
    OK(clReleaseEvent(second));
    puts("callback sets a user event: ok");

    /* A blocking read behind a user event returns once another thread has set it. */
    cl_event gate = clCreateUserEvent(context, &error);
    OK(error);
    CHECK(pthread_create(&thread, NULL, set_complete, gate) == 0);
    OK(clEnqueueReadBuffer(queue, more, CL_TRUE, 0, sizeof back, back, 1, &gate, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(back[N - 1] == 24);
    OK(clReleaseEvent(gate));
    puts("blocking read behind a user event: ok");
    OK(clFinish(queue));
    OK(clFinish(other));
    /* Callbacks run on the driver's own thread, maybe after the wait returned. */
    while (!atomic_load(&called))
        ;
    printf("callbacks: %d\n", atomic_load(&called));
    return 0;
}
