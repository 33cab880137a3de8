/* What real runtimes answer to what should not be: the numbers of the reports, and errors that stay until asked for. */
#include "hip.h"

int main(void)
{
    need_device();
    static char unregistered;
    dim3 one = {1, 1, 1}, many = {1 << 22, 1, 1}, wide = {1025, 1, 1}, block = {1024, 1, 1};
    hipStream_t stream = 0;
    hipEvent_t event = 0;
    hipModule_t module = 0;
    hipFunction_t function = 0;
    void *p = 0;
    int number = 0;
    OK(hipStreamCreate(&stream));
    OK(hipEventCreate(&event));

    GIVES("a function nobody registered: invalid device function", INVALID_DEVICE_FUNCTION,
          hipLaunchKernel(&unregistered, one, one, 0, 0, 0));
    GIVES("the error stays", INVALID_DEVICE_FUNCTION, hipPeekAtLastError());
    GIVES("until it is asked for", INVALID_DEVICE_FUNCTION, hipGetLastError());
    GIVES("and is gone then", SUCCESS, hipGetLastError());
    GIVES("NULL as a function: invalid handle", INVALID_HANDLE,
          hipModuleLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    GIVES("more threads than 2^32 - 1", INVALID_CONFIGURATION, hipLaunchKernel(&empty, many, block, 0, 0, 0));
    GIVES("too many in a block", INVALID_CONFIGURATION, hipLaunchKernel(&empty, one, wide, 0, 0, 0));
    GIVES("a variable nobody registered: invalid symbol", INVALID_SYMBOL,
          hipMemcpyToSymbol(&unregistered, &number, sizeof number, 0, HOST_TO_DEVICE));
    GIVES("no such device", INVALID_DEVICE, hipSetDevice(1000));
    GIVES("no image", INVALID_IMAGE, hipModuleLoadData(&module, "nonsense, and that at some length"));
    OK(hipModuleLoadData(&module, kernel_names));
    GIVES("no such kernel in it", NOT_FOUND, hipModuleGetFunction(&function, module, "somebody"));
    GIVES("no direction", INVALID_DIRECTION, hipMemcpy(&number, &number, sizeof number, 9));
    GIVES("a free of what was not allocated", INVALID_VALUE, hipFree(&number));
    GIVES("a free of nothing is none", SUCCESS, hipFree(0));
    GIVES("memory that was not registered", HOST_NOT_REGISTERED, hipHostUnregister(&number));
    OK(hipMalloc(&p, 64));
    GIVES("a set past the end", INVALID_VALUE, hipMemset(p, 0, 65));

    OK(hipStreamDestroy(stream));
    GIVES("a stream that is gone: context is destroyed", CONTEXT_IS_DESTROYED, hipStreamSynchronize(stream));
    GIVES("for copies, too", CONTEXT_IS_DESTROYED, hipMemcpyAsync(p, &number, sizeof number, HOST_TO_DEVICE, stream));
    GIVES("for waits, too", CONTEXT_IS_DESTROYED, hipStreamWaitEvent(stream, event, 0));
    GIVES("a launch says invalid value", INVALID_VALUE, hipLaunchKernel(&empty, one, one, 0, 0, stream));
    GIVES("the null stream cannot be destroyed", INVALID_HANDLE, hipStreamDestroy(0));
    GIVES("nor the thread's", INVALID_HANDLE, hipStreamDestroy(PER_THREAD));
    OK(hipEventDestroy(event));
    GIVES("an event that is gone, destroyed again", CONTEXT_IS_DESTROYED, hipEventDestroy(event));
    GIVES("no event", INVALID_HANDLE, hipEventRecord(0, 0));
    CHECK("errors have names", !strcmp(hipGetErrorName(709), "hipErrorContextIsDestroyed"));
    CHECK("and texts", !strcmp(hipGetErrorString(709), "context is destroyed"));
    GIVES("nothing else is wrong", SUCCESS, hipDeviceSynchronize());
    float *x = 0, back[16] = {0};
    OK(hipMalloc(&x, sizeof back));
    OK(run_fill(x, 16, 3, 0));
    OK(hipMemcpy(back, x, sizeof back, DEVICE_TO_HOST));
    CHECK("and all goes on", all_are(back, 16, 3));
    CHECKS_DONE;
}
