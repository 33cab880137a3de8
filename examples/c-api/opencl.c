/* Two OpenCL command queues of one program, one of which goes first. Prints how long the urgent one takes beside the other, with equal
 * priorities and with its own. Schedules by itself: no daemon and no preload are needed.
 *
 * cc -O2 -o opencl opencl.c $(pkg-config --cflags --libs xsched-opencl) -lOpenCL */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <xsched/opencl/hal.h>
#include <xsched/xsched.h>

enum { N = 128, BACKGROUND = 200, URGENT = 10 };

/* For both OpenCL and xsched, 0 is success. */
#define OK(call)                                                     \
    do {                                                             \
        int result = (int)(call);                                    \
        if (result != 0) {                                           \
            fprintf(stderr, "%s returned %d\n", #call, result);      \
            exit(3);                                                 \
        }                                                            \
    } while (0)

static const char *const SOURCE =
    "kernel void multiply(global const float *a, global float *c, int n) {\n"
    "    int row = get_global_id(1), column = get_global_id(0);\n"
    "    float sum = 0;\n"
    "    for (int i = 0; i < n; i++) sum += a[row * n + i] * a[i * n + column];\n"
    "    c[row * n + column] = sum;\n"
    "}\n";

/* A command queue, the XQueue over it, and a kernel of its own. */
struct lane {
    cl_command_queue queue;
    cl_kernel kernel;
    HwQueueHandle hardware;
    XQueueHandle xqueue;
};

/* A command: one product of two matrices. xsched calls it when it is the lane's turn. */
static XResult multiply(HwQueueHandle hardware, void *data)
{
    static const size_t items[2] = { N, N };
    struct lane *lane = data;
    (void)hardware;
    cl_int status = clEnqueueNDRangeKernel(lane->queue, lane->kernel, 2, NULL, items, NULL, 0, NULL, NULL);
    /* A wait outside OpenCL does not hand over what is enqueued. */
    return status || clFlush(lane->queue) ? kXSchedErrorHardware : kXSchedSuccess;
}

static void submit(struct lane *lane, int times)
{
    for (int i = 0; i < times; i++) {
        HwCommandHandle command;
        OK(HwCommandCreateCallback(&command, multiply, lane));
        OK(XQueueSubmit(lane->xqueue, command));
        OK(HwCommandDestroy(command)); /* It is launched all the same. */
    }
}

static struct lane new_lane(cl_context context, cl_device_id device, cl_program program, cl_mem input)
{
    struct lane lane;
    cl_int status, n = N;
    lane.queue = clCreateCommandQueue(context, device, 0, &status);
    OK(status);
    lane.kernel = clCreateKernel(program, "multiply", &status);
    OK(status);
    cl_mem output = clCreateBuffer(context, CL_MEM_READ_WRITE, N * N * sizeof(float), NULL, &status);
    OK(status);
    OK(clSetKernelArg(lane.kernel, 0, sizeof input, &input));
    OK(clSetKernelArg(lane.kernel, 1, sizeof output, &output));
    OK(clSetKernelArg(lane.kernel, 2, sizeof n, &n));
    OK(OclQueueCreate(&lane.hardware, lane.queue));
    OK(XQueueCreate(&lane.xqueue, lane.hardware, kPreemptLevelBlock, kQueueCreateFlagNone));
    return lane;
}

/* Milliseconds that the urgent lane takes beside the other. */
static double urgent_ms(struct lane *background, struct lane *urgent)
{
    struct timespec begin, end;
    submit(background, BACKGROUND);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    submit(urgent, URGENT);
    OK(XQueueWaitAll(urgent->xqueue));
    clock_gettime(CLOCK_MONOTONIC, &end);
    OK(XQueueWaitAll(background->xqueue));
    return (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
}

int main(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    static float ones[N * N];
    for (int i = 0; i < N * N; i++)
        ones[i] = 1;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    OK(status);
    const char *text = SOURCE;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &status);
    OK(status);
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_mem input = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof ones, ones, &status);
    OK(status);

    OK(XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst));
    struct lane background = new_lane(context, device, program, input);
    struct lane urgent = new_lane(context, device, program, input);
    urgent_ms(&background, &urgent); /* The first time is one of compilation. */
    printf("equal priorities: the urgent queue took %.1f ms\n", urgent_ms(&background, &urgent));
    OK(XHintPriority(background.xqueue, -1));
    OK(XHintPriority(urgent.xqueue, 1));
    printf("urgent one first: the urgent queue took %.1f ms\n", urgent_ms(&background, &urgent));

    struct lane *lanes[] = { &background, &urgent };
    for (int i = 0; i < 2; i++) {
        OK(XQueueDestroy(lanes[i]->xqueue));
        OK(HwQueueDestroy(lanes[i]->hardware));
    }
    return 0;
}
