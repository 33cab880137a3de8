/* Shared virtual memory: copies, fills, maps, kernels on it, and its release through the queue with a callback. */
#include "check.h"
#include <stdatomic.h>

enum { N = 2048 };

static atomic_int freed;
static void CL_CALLBACK release(cl_command_queue queue, cl_uint count, void *pointers[], void *where)
{
    cl_context owner;
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL));
    for (cl_uint i = 0; i < count; i++)
        clSVMFree(owner, pointers[i]);
    CHECK(where == (void *)&freed);
    atomic_fetch_add(&freed, (int)count);
}

int main(void)
{
    setup();
    cl_device_svm_capabilities svm = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL));
    if (!(svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)) {
        puts("no shared virtual memory on this device");
        return 0;
    }
    cl_command_queue queue = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    size_t bytes = N * sizeof(cl_int), count = N;
    cl_int *a = clSVMAlloc(context, CL_MEM_READ_WRITE, bytes, 0), *b = clSVMAlloc(context, CL_MEM_READ_WRITE, bytes, 0);
    CHECK(a && b);
    cl_int five = 5, plus = 2, times = 3;
    OK(clEnqueueSVMMemFill(queue, a, &five, sizeof five, bytes, 0, NULL, NULL));
    OK(clSetKernelArgSVMPointer(kernel, 0, a));
    OK(clSetKernelArg(kernel, 1, sizeof plus, &plus));
    OK(clSetKernelArg(kernel, 2, sizeof times, &times));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    OK(clEnqueueSVMMemcpy(queue, CL_FALSE, b, a, bytes, 0, NULL, NULL));
    const void *moved = b;
    OK(clEnqueueSVMMigrateMem(queue, 1, &moved, NULL, 0, 0, NULL, NULL));
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, b, bytes, 0, NULL, NULL));
    for (int i = 0; i < N; i++) {
        CHECK(b[i] == 21);
        b[i] = i;
    }
    OK(clEnqueueSVMUnmap(queue, b, 0, NULL, NULL));
    OK(clSetKernelArgSVMPointer(kernel, 0, b));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
    static cl_int back[N];
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, back, b, bytes, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == (i + 2) * 3);
    puts("shared virtual memory: ok");
    void *both[2] = {a, b};
    OK(clEnqueueSVMFree(queue, 2, both, release, &freed, 0, NULL, NULL));
    OK(clFinish(queue));
    printf("freed through the queue: %d\n", atomic_load(&freed));
    return 0;
}
