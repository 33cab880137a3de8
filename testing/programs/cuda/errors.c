/* Errors that a program may meet: before initialisation, bad arguments, no memory, a kernel that faults. */
#include "cu.h"

static void *without_context(void *of_others)
{
    CUdeviceptr p;
    CUstream s;
    CUcontext none = (CUcontext)1;
    OK(cuCtxGetCurrent(&none));
    CHECK("a new thread has no context", none == NULL);
    GIVES("so no memory", INVALID_CONTEXT, cuMemAlloc_v2(&p, 16));
    GIVES("and no stream", INVALID_CONTEXT, cuStreamCreate(&s, 0));
    GIVES("and nothing to synchronize", INVALID_CONTEXT, cuCtxSynchronize());
    /* Though another thread has given work to its own already. */
    GIVES("and no default stream", INVALID_CONTEXT, cuMemsetD32Async(*(CUdeviceptr *)of_others, 1, 4, NULL));
    return NULL;
}

int main(void)
{
    CUdeviceptr p, q[64];
    CUstream s;
    CUmodule bad;
    pthread_t thread;
    const char *text = NULL;
    int count, blocks = 0;
    cu_open();
    GIVES("before initialisation", NOT_INITIALIZED, cuDeviceGetCount(&count));
    cu_start();
    OK(cuMemAlloc_v2(&p, 16));
    OK(cuMemsetD32Async(p, 7, 4, NULL));
    OK(cuCtxSynchronize());
    pthread_create(&thread, NULL, without_context, &p);
    pthread_join(thread, NULL);
    unsigned words[4];
    OK(cuMemcpyDtoH_v2(words, p, sizeof words));
    CHECK("which changed nothing", words[0] == 7 && words[3] == 7);
    OK(cuMemFree_v2(p));

    OK(cuGetErrorName(NOT_READY, &text));
    CHECK("an error's name", strcmp(text, "CUDA_ERROR_NOT_READY") == 0);
    OK(cuGetErrorString(OUT_OF_MEMORY, &text));
    CHECK("an error's text", strcmp(text, "out of memory") == 0);
    GIVES("an error that there is not", INVALID_VALUE, cuGetErrorName(12345, &text));

    GIVES("no bytes", INVALID_VALUE, cuMemAlloc_v2(&p, 0));
    GIVES("more than there is", OUT_OF_MEMORY, cuMemAlloc_v2(&p, (size_t)1 << 50));
    size_t unused, total;
    OK(cuMemGetInfo_v2(&unused, &total));
    while (blocks < 64 && cuMemAlloc_v2(&q[blocks], total / 8) == SUCCESS) {
        blocks++;
    }
    CHECK("an eighth of the memory fits up to eight times", blocks > 0 && blocks <= 8);
    GIVES("then there is none", OUT_OF_MEMORY, cuMemAlloc_v2(&q[blocks], total / 8));
    while (blocks > 0) {
        OK(cuMemFree_v2(q[--blocks]));
    }
    GIVES("and then there is", SUCCESS, cuMemAlloc_v2(&p, total / 8));
    OK(cuMemFree_v2(p));
    GIVES("free what is not there", INVALID_VALUE, cuMemFree_v2(512));

    GIVES("flags of a stream", INVALID_VALUE, cuStreamCreate(&s, 0x80));
    GIVES("an empty grid", INVALID_VALUE, cuLaunchKernel(empty, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    GIVES("a block too large", INVALID_VALUE, cuLaunchKernel(empty, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL));
    CHECK("an image that is none", cuModuleLoadData(&bad, "nonsense") != SUCCESS);
    GIVES("all that does no harm", SUCCESS, cuCtxSynchronize());

    /* A fault stays. */
    CUfunction crash;
    OK(cuModuleGetFunction(&crash, module, "crash"));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuMemAlloc_v2(&p, 1024));
    GIVES("a kernel that faults is launched", SUCCESS, cuLaunchKernel(crash, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    GIVES("and found out", ILLEGAL_ADDRESS, cuStreamSynchronize(s));
    GIVES("it stays", ILLEGAL_ADDRESS, cuCtxSynchronize());
    GIVES("for launches", ILLEGAL_ADDRESS, launch_fill(s, p, 16, 1));
    GIVES("and memory", ILLEGAL_ADDRESS, cuMemAlloc_v2(&p, 16));
    GIVES("the context can be reset", SUCCESS, cuDevicePrimaryCtxReset_v2(device));
    GIVES("but this process gets no other", ILLEGAL_ADDRESS, cuDevicePrimaryCtxRetain(&context, device));
    CHECKS_DONE;
}
