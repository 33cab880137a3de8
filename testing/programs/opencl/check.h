/* Shared by the OpenCL test programs: error checks, a device, a kernel. Output is the same on every run. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with a message unless the call gave CL_SUCCESS. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        cl_int ok_ = (call);                                                                                           \
        if (ok_ != CL_SUCCESS) {                                                                                       \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, ok_);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Ends the program with a message unless the condition holds. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;

__attribute__((unused)) static void setup(void)
{
    cl_int error;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
}

__attribute__((unused)) static cl_command_queue queue_with(cl_command_queue_properties properties)
{
    cl_int error;
    cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, properties, 0};
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, properties ? list : NULL, &error);
    OK(error);
    return queue;
}

__attribute__((unused)) static cl_kernel kernel_in(cl_context where, const char *source, const char *name)
{
    cl_int error;
    cl_program program = clCreateProgramWithSource(where, 1, &source, NULL, &error);
    OK(error);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, name, &error);
    OK(error);
    OK(clReleaseProgram(program));
    return kernel;
}

__attribute__((unused)) static cl_kernel kernel_from(const char *source, const char *name)
{
    return kernel_in(context, source, name);
}

__attribute__((unused)) static cl_mem buffer_of(size_t bytes, void *copied)
{
    cl_int error;
    cl_mem_flags flags = CL_MEM_READ_WRITE | (copied ? CL_MEM_COPY_HOST_PTR : 0);
    cl_mem buffer = clCreateBuffer(context, flags, bytes, copied, &error);
    OK(error);
    return buffer;
}

/* Adds `plus` to every element, then multiplies by `times`: not commutative, so order shows in the result. */
#define STEP_SOURCE                                                                                                    \
    "kernel void advance(global int *data, int plus, int times) {\n"                                                      \
    "    int i = get_global_id(0);\n"                                                                                  \
    "    data[i] = (data[i] + plus) * times;\n"                                                                        \
    "}\n"

__attribute__((unused)) static void
step(cl_command_queue queue, cl_kernel kernel, cl_mem data, size_t count, cl_int plus, cl_int times, cl_uint waits,
     const cl_event *wait_list, cl_event *event)
{
    OK(clSetKernelArg(kernel, 0, sizeof data, &data));
    OK(clSetKernelArg(kernel, 1, sizeof plus, &plus));
    OK(clSetKernelArg(kernel, 2, sizeof times, &times));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, waits, wait_list, event));
}
#endif
