/* OpenCL, for work.c. How long a command takes follows a loop, whose pace is measured at the start. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        cl_int error_ = (call);                                                                                        \
        if (error_ != CL_SUCCESS) {                                                                                    \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, error_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const char *const SOURCE =
    "kernel void work(global float *cells, int y, int x, float a, uint rounds) {\n"
    "    uint n = rounds;\n"
    "    for (uint i = 0; i < rounds; i++) n = n * 1664525u + 1013904223u + (n >> 7);\n"
    "    cells[y] += a * cells[x];\n"
    "    if (n == 1u && rounds == 0xffffffffu) cells[y] = 0;\n"
    "}\n";

static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem on_device;
static cl_event marks[2];
static double rounds_per_us;

static void launch(int y, int x, float a, cl_uint rounds)
{
    size_t one = 1;
    OK(clSetKernelArg(kernel, 0, sizeof on_device, &on_device));
    OK(clSetKernelArg(kernel, 1, sizeof y, &y));
    OK(clSetKernelArg(kernel, 2, sizeof x, &x));
    OK(clSetKernelArg(kernel, 3, sizeof a, &a));
    OK(clSetKernelArg(kernel, 4, sizeof rounds, &rounds));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    launched++;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void drain(void)
{
    OK(clFinish(queue));
}

/* A queue cannot be asked. */
static int drained(void)
{
    return 1;
}

static void open_device(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS) {
        fprintf(stderr, "no device\n");
        exit(3);
    }
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
    queue = clCreateCommandQueue(context, device, 0, &error);
    OK(error);
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &error);
    OK(error);
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    kernel = clCreateKernel(program, "work", &error);
    OK(error);
    on_device = clCreateBuffer(context, CL_MEM_READ_WRITE, CELLS * sizeof(float), NULL, &error);
    OK(error);
    /* The shortest of a few: a busy machine only lengthens them. The first also builds the kernel. */
    double least = 1e9;
    for (int i = 0; i < 4; i++) {
        double begin = now_us();
        launch(0, 0, 0, 1000000);
        drain();
        double took = now_us() - begin;
        least = took < least ? took : least;
    }
    rounds_per_us = 1e6 / least;
}

static void give(int y, int x, float a, long us)
{
    launch(y, x, a, (cl_uint)(us * rounds_per_us));
    /* Some implementations begin only then. */
    OK(clFlush(queue));
}

static void put(const float *cells)
{
    OK(clEnqueueWriteBuffer(queue, on_device, CL_FALSE, 0, CELLS * sizeof *cells, cells, 0, NULL, NULL));
    launched++;
    drain();
}

static void get(float *cells)
{
    OK(clEnqueueReadBuffer(queue, on_device, CL_TRUE, 0, CELLS * sizeof *cells, cells, 0, NULL, NULL));
    launched++;
}

/* A marker is a command, and counted. */
static void mark(int n)
{
    if (marks[n])
        OK(clReleaseEvent(marks[n]));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marks[n]));
    launched++;
}

static void await_mark(int n)
{
    OK(clWaitForEvents(1, &marks[n]));
}
