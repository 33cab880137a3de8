/* Native kernels (host functions run in queue order), tasks, and fills of every width. */
#include "check.h"

enum { N = 512 };

struct job {
    cl_int *data;
    cl_int add;
};

static void CL_CALLBACK add(void *argument)
{
    struct job *job = argument;
    for (int i = 0; i < N; i++)
        job->data[i] += job->add;
}

int main(void)
{
    setup();
    cl_device_exec_capabilities can = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL));
    cl_command_queue queue = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    static cl_int back[N];
    cl_int zero = 0;
    cl_mem data = buffer_of(sizeof back, NULL);
    OK(clEnqueueFillBuffer(queue, data, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    cl_int expected = 0;
    if (can & CL_EXEC_NATIVE_KERNEL) {
        for (int i = 1; i <= 20; i++) {
            struct job job = {NULL, i};
            const void *place = &job.data;
            OK(clEnqueueNativeKernel(queue, add, &job, sizeof job, 1, &data, &place, 0, NULL, NULL));
            step(queue, kernel, data, N, 1, i % 4 == 0 ? 2 : 1, 0, NULL, NULL);
            expected = (expected + i + 1) * (i % 4 == 0 ? 2 : 1);
        }
        OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        for (int i = 0; i < N; i++)
            CHECK(back[i] == expected);
        puts("native kernels in order: ok");
    } else {
        puts("no native kernels on this device");
    }
    /* A task is one work item: only element 0 changes. */
    cl_int one = 1;
    OK(clEnqueueFillBuffer(queue, data, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    OK(clSetKernelArg(kernel, 0, sizeof data, &data));
    OK(clSetKernelArg(kernel, 1, sizeof one, &one));
    OK(clSetKernelArg(kernel, 2, sizeof one, &one));
    for (int i = 0; i < 10; i++)
        OK(clEnqueueTask(queue, kernel, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    CHECK(back[0] == 10 && back[1] == 0 && back[N - 1] == 0);
    puts("tasks: ok");

    cl_uchar pattern[128];
    for (int i = 0; i < 128; i++)
        pattern[i] = (cl_uchar)(i * 3);
    for (size_t width = 1; width <= 128; width *= 2) {
        OK(clEnqueueFillBuffer(queue, data, pattern, width, 0, sizeof back, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        for (size_t i = 0; i < sizeof back; i++)
            CHECK(((cl_uchar *)back)[i] == pattern[i % width]);
    }
    puts("fills: ok");
    return 0;
}
