/* The first OpenCL device that is found, and a kernel that multiplies two matrices. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 128 };

#define OK(call)                                                           \
    do {                                                                   \
        cl_int status = (call);                                            \
        if (status != CL_SUCCESS) {                                        \
            fprintf(stderr, "%s returned %d\n", #call, (int)status);       \
            exit(3);                                                       \
        }                                                                  \
    } while (0)

static const char *const source =
    "kernel void multiply(global const float *a, global const float *b, global float *c, int n) {\n"
    "    int row = get_global_id(1), column = get_global_id(0);\n"
    "    float sum = 0;\n"
    "    for (int i = 0; i < n; i++) sum += a[row * n + i] * b[i * n + column];\n"
    "    c[row * n + column] = sum;\n"
    "}\n";

static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem product;

static cl_mem ones(cl_context context)
{
    static float values[N * N];
    cl_int status;
    for (int i = 0; i < N * N; i++)
        values[i] = 1;
    cl_mem memory = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof values, values, &status);
    OK(status);
    return memory;
}

static void set_up(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int status, n = N;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    OK(status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    OK(status);
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &status);
    OK(status);
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    kernel = clCreateKernel(program, "multiply", &status);
    OK(status);
    cl_mem a = ones(context), b = ones(context);
    product = ones(context);
    OK(clSetKernelArg(kernel, 0, sizeof a, &a));
    OK(clSetKernelArg(kernel, 1, sizeof b, &b));
    OK(clSetKernelArg(kernel, 2, sizeof product, &product));
    OK(clSetKernelArg(kernel, 3, sizeof n, &n));
}

/* Gives the device so many products, one after the other, and waits. Each element must be N. */
static void multiply(int times)
{
    static const size_t items[2] = { N, N }, group[2] = { 16, 16 };
    float last;
    for (int i = 0; i < times; i++)
        OK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, items, group, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, product, CL_TRUE, (N * N - 1) * sizeof last, sizeof last, &last, 0, NULL, NULL));
    if (last != N) {
        fprintf(stderr, "the last element is %g instead of %d\n", (double)last, N);
        exit(1);
    }
}
