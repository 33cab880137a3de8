/* OpenCL: many commands behind a user event that the same thread completes only after giving them all. */
#include "../opencl/check.h"
#include <time.h>
#include <unistd.h>

enum { N = 64, DEEP = 500 };

int main(void)
{
    setup();
    cl_int error, zero = 0;
    cl_command_queue queue = queue_with(0), other = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_mem data = buffer_of(N * sizeof(cl_int), NULL), more = buffer_of(N * sizeof(cl_int), NULL);
    static cl_int back[N];
    OK(clEnqueueFillBuffer(queue, data, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    OK(clEnqueueFillBuffer(other, more, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clFinish(other));
    puts("ready");
    fflush(stdout);
    if (!fgets((char *)back, sizeof back, stdin))
        return 9;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    cl_event start = clCreateUserEvent(context, &error);
    OK(error);
    /* Only the first names the event; the rest are behind it because the queue is in order. */
    step(queue, kernel, data, N, 1, 1, 1, &start, NULL);
    for (int i = 1; i < DEEP; i++) {
        step(queue, kernel, data, N, 1, 1, 0, NULL, NULL);
        step(other, kernel, more, N, 1, 1, 0, NULL, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%ld ms\n", (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
    OK(clSetUserEventStatus(start, CL_COMPLETE));
    OK(clFinish(queue));
    OK(clFinish(other));
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == DEEP);
    OK(clEnqueueReadBuffer(other, more, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == DEEP - 1);
    puts("ok");
    return 0;
}
