/* OpenCL: kernels and copies in two queues, one of which waits for the other's events; waits of every kind. It releases and asks
 * nothing, so that whatever else is called in its process was called by something else. */
#include "../opencl/check.h"

enum { ITEMS = 256, ROUNDS = 5, KERNELS = 12 };

static const char *const source =
    "kernel void turn(global const uint *from, global uint *to) {\n"
    "    uint i = get_global_id(0), x = from[i];\n"
    "    for (uint n = 0; n < 2000; n++) x = x * 1664525u + 1013904223u;\n"
    "    to[i] = x;\n"
    "}\n";

static cl_uint turned(cl_uint x)
{
    for (int n = 0; n < 2000; n++)
        x = x * 1664525u + 1013904223u;
    return x;
}

int main(void)
{
    static cl_uint back[ITEMS];
    cl_uint zero = 0, wanted = 0;
    size_t items = ITEMS;
    cl_event event;
    setup();
    cl_command_queue queue = queue_with(0), other = queue_with(0);
    cl_kernel kernel = kernel_from(source, "turn");
    cl_mem a = buffer_of(sizeof back, NULL), b = buffer_of(sizeof back, NULL), c = buffer_of(sizeof back, NULL);
    OK(clSetKernelArg(kernel, 0, sizeof a, &a));
    OK(clSetKernelArg(kernel, 1, sizeof b, &b));
    OK(clEnqueueFillBuffer(queue, a, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KERNELS; i++) {
            OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
            OK(clEnqueueCopyBuffer(queue, b, a, 0, 0, sizeof back, 0, NULL, i + 1 < KERNELS ? NULL : &event));
            wanted = turned(wanted);
        }
        if (round % 2)
            OK(clWaitForEvents(1, &event));
        /* What the other queue waits for must have begun. */
        OK(clFinish(queue));
        OK(clEnqueueCopyBuffer(other, a, c, 0, 0, sizeof back, 1, &event, NULL));
        OK(clEnqueueReadBuffer(other, c, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        for (int i = 0; i < ITEMS; i++)
            CHECK(back[i] == wanted);
        printf("round %d is right\n", round);
    }
    OK(clFinish(other));
    puts("ok");
    return 0;
}
