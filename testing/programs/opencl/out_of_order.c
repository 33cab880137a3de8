/* An out-of-order queue whose order comes from events, markers and barriers alone; profiling times are consistent. */
#include "check.h"

enum { N = 1024, CHAINS = 8, LENGTH = 24 };

static cl_int after(cl_int value, int chain)
{
    for (int i = 0; i < LENGTH; i++)
        value = (cl_int)(((cl_uint)value + (cl_uint)(chain + i)) * (cl_uint)(i % 3 + 1));
    return value;
}

static void verify(cl_command_queue queue, cl_mem data, cl_int start, int chain)
{
    static cl_int back[N];
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == after(start, chain));
}

int main(void)
{
    setup();
    cl_command_queue queue = queue_with(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_mem data[CHAINS];
    cl_event last[CHAINS];
    cl_int zero = 0;
    for (int c = 0; c < CHAINS; c++) {
        data[c] = buffer_of(N * sizeof(cl_int), NULL);
        OK(clEnqueueFillBuffer(queue, data[c], &zero, sizeof zero, 0, N * sizeof(cl_int), 0, NULL, &last[c]));
    }
    /* Interleaved chains, each ordered by its own events. */
    for (int i = 0; i < LENGTH; i++)
        for (int c = 0; c < CHAINS; c++) {
            cl_event done;
            step(queue, kernel, data[c], N, c + i, i % 3 + 1, 1, &last[c], &done);
            OK(clReleaseEvent(last[c]));
            last[c] = done;
        }
    cl_event marker;
    OK(clEnqueueMarkerWithWaitList(queue, CHAINS, last, &marker));
    OK(clWaitForEvents(1, &marker));
    for (int c = 0; c < CHAINS; c++) {
        cl_ulong queued, submitted, started, ended;
        OK(clGetEventProfilingInfo(last[c], CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL));
        OK(clGetEventProfilingInfo(last[c], CL_PROFILING_COMMAND_SUBMIT, sizeof submitted, &submitted, NULL));
        OK(clGetEventProfilingInfo(last[c], CL_PROFILING_COMMAND_START, sizeof started, &started, NULL));
        OK(clGetEventProfilingInfo(last[c], CL_PROFILING_COMMAND_END, sizeof ended, &ended, NULL));
        CHECK(queued <= submitted && submitted <= started && started <= ended);
        verify(queue, data[c], 0, c);
        OK(clReleaseEvent(last[c]));
    }
    OK(clReleaseEvent(marker));
    puts("chains of events: ok");

    /* The same order from barriers: everything before one precedes everything after. */
    for (int c = 0; c < CHAINS; c++)
        OK(clEnqueueFillBuffer(queue, data[c], &zero, sizeof zero, 0, N * sizeof(cl_int), 0, NULL, NULL));
    for (int i = 0; i < LENGTH; i++) {
        if (i % 2)
            OK(clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL));
        else
            OK(clEnqueueBarrier(queue));
        for (int c = 0; c < CHAINS; c++)
            step(queue, kernel, data[c], N, c + i, i % 3 + 1, 0, NULL, NULL);
    }
    OK(clEnqueueMarker(queue, &marker));
    OK(clFlush(queue));
    OK(clEnqueueBarrierWithWaitList(queue, 1, &marker, NULL));
    OK(clFinish(queue));
    OK(clReleaseEvent(marker));
    for (int c = 0; c < CHAINS; c++) {
        verify(queue, data[c], 0, c);
        OK(clReleaseMemObject(data[c]));
    }
    puts("barriers: ok");
    return 0;
}
