/* OpenCL: kernels and copies that depend on each other only by their order in the queue. Told by lines: "kernels N" gives
 * N kernels, "turns N" gives N times a kernel and a copy, "wait" waits for the last command's event, "finish" for the
 * queue; each is answered by itself. "end", or the end of stdin, checks the values. */
#include "../opencl/check.h"

enum { ITEMS = 256 };

/* What is copied counts when the kernel comes after the copy, and only then. */
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
    cl_uint zero = 0;
    cl_event last = NULL;
    size_t items = ITEMS;
    setup();
    cl_command_queue queue = queue_with(0);
    cl_kernel kernel = kernel_from(source, "turn");
    cl_mem a = buffer_of(sizeof back, NULL), b = buffer_of(sizeof back, NULL);
    OK(clSetKernelArg(kernel, 0, sizeof a, &a));
    OK(clSetKernelArg(kernel, 1, sizeof b, &b));
    OK(clEnqueueFillBuffer(queue, a, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    OK(clFinish(queue));
    cl_uint of_a = 0, of_b = 0;
    puts("ready");
    fflush(stdout);
    char line[64], what[32];
    while (fgets(line, sizeof line, stdin)) {
        long n = 0;
        if (sscanf(line, "%31s %ld", what, &n) < 1)
            continue;
        if (!strcmp(what, "end"))
            break;
        for (long i = 0; i < n; i++) {
            cl_event *event = i + 1 == n ? &last : NULL;
            if (event && last)
                OK(clReleaseEvent(last));
            int copies = !strcmp(what, "turns");
            OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, copies ? NULL : event));
            of_b = turned(of_a);
            if (copies) {
                OK(clEnqueueCopyBuffer(queue, b, a, 0, 0, sizeof back, 0, NULL, event));
                of_a = of_b;
            }
        }
        if (!strcmp(what, "wait"))
            OK(clWaitForEvents(1, &last));
        if (!strcmp(what, "finish"))
            OK(clFinish(queue));
        puts(what);
        fflush(stdout);
    }
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < ITEMS; i++)
        CHECK(back[i] == of_b);
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < ITEMS; i++)
        CHECK(back[i] == of_a);
    puts("ok");
    return 0;
}
