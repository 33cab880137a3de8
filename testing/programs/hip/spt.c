/* The per-thread default stream: by its handle, and as the null stream of the functions ending in _spt. */
#include "hip.h"

#define N 1000

int main(void)
{
    need_device();
    float *x = 0, host[N];
    OK(hipMalloc(&x, N * sizeof *x));
    unsigned n = N;
    float value = 3;
    dim3 grid = {BLOCKS(N), 1, 1}, block = {256, 1, 1};
    hipStream_t other = 0;
    OK(hipStreamCreateWithFlags(&other, 1));
    volatile uint32_t *word = 0;
    OK(hipHostMalloc(&word, 64, 0));
    *word = 0;
    /* A kernel's code may be loaded at its first launch, which waits for the device on some of them. */
    OK(run_fill(x, N, 0, other));
    OK(hipStreamSynchronize(other));
    OK(hipStreamWaitValue32(other, (void *)word, 1, WAIT_EQ, ~0u));
    GIVES("a launch", SUCCESS, hipLaunchKernel_spt(&fill, grid, block, ARGS(&n, &value, &x), 0, 0));
    GIVES("a wait", SUCCESS, hipStreamSynchronize_spt(0));
    CHECK("not for other streams", hipStreamQuery(other) == NOT_READY);
    *word = 1;
    GIVES("a copy", SUCCESS, hipMemcpy_spt(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("its result", all_are(host, N, 3));
    GIVES("the same stream by its handle", SUCCESS, run_fill(x, N, 4, PER_THREAD));
    GIVES("an asynchronous copy", SUCCESS, hipMemcpyAsync_spt(host, x, sizeof host, DEVICE_TO_HOST, 0));
    OK(hipStreamSynchronize(PER_THREAD));
    CHECK("its result", all_are(host, N, 4));
    GIVES("a set", SUCCESS, hipMemset_spt(x, 0, N * sizeof *x));
    OK(hipMemcpy_spt(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("its result", all_are(host, N, 0));
    OK(hipStreamSynchronize(other));
    CHECKS_DONE;
}
