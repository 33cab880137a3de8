/* Launches in all the ways there are, each with a result that is checked. */
#include "hip.h"

#define N 10000

static float *x, *y, host[1 << 16];

static const float *seen(const float *from, unsigned n)
{
    OK(hipMemcpy(host, from, n * sizeof *host, DEVICE_TO_HOST));
    return host;
}

int main(void)
{
    need_device();
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    GIVES("fill", SUCCESS, run_fill(x, N, 2, 0));
    GIVES("fill again", SUCCESS, run_fill(y, N, 1, 0));
    GIVES("axpy", SUCCESS, run_axpy(3, x, y, N, 0));
    CHECK("axpy's result", all_are(seen(y, N), N, 7));

    unsigned n = N, m = 64;
    float *sum = 0;
    OK(hipMalloc(&sum, sizeof *sum));
    GIVES("reduce", SUCCESS, launch_as_compiled(&reduce, 1, 1, 0, ARGS(&n, &y, &sum)));
    CHECK("reduce's result", *seen(sum, 1) == 7.0f * N);
    GIVES("a mangled name", SUCCESS, launch_as_compiled(&copy, BLOCKS(N), 256, 0, ARGS(&n, &y, &x)));
    CHECK("copy's result", all_are(seen(x, N), N, 7));

    float *a = 0, *b = 0, *c = 0;
    OK(hipMalloc(&a, m * m * sizeof *a));
    OK(hipMalloc(&b, m * m * sizeof *b));
    OK(hipMalloc(&c, m * m * sizeof *c));
    OK(run_fill(a, m * m, 1, 0));
    OK(run_fill(b, m * m, 1, 0));
    GIVES("gemm", SUCCESS, launch_as_compiled(&gemm, 16, 256, 0, ARGS(&m, &m, &m, &a, &b, &c)));
    CHECK("gemm's result", all_are(seen(c, m * m), m * m, m));
    for (unsigned i = 0; i < m * m; i++) {
        host[i] = i % 5;
    }
    OK(hipMemcpy(a, host, m * m * sizeof *a, HOST_TO_DEVICE));
    unsigned three = 3, wide = m - 2;
    OK(hipMemcpy(b, (float[]){0, 0, 0, 0, 1, 0, 0, 0, 0}, 9 * sizeof *b, HOST_TO_DEVICE));
    GIVES("conv2d", SUCCESS, launch_as_compiled(&conv2d, 16, 256, 0, ARGS(&m, &m, &three, &three, &a, &b, &c)));
    seen(c, wide * wide);
    int right = 1;
    for (unsigned i = 0; i < wide * wide; i++) {
        right &= host[i] == ((i / wide + 1) * m + i % wide + 1) % 5;
    }
    CHECK("conv2d's result: the middle of the filter alone", right);

    hipModule_t module = 0;
    hipFunction_t function = 0;
    OK(hipModuleLoadData(&module, kernel_names));
    OK(hipModuleGetFunction(&function, module, "fill"));
    float value = 5;
    GIVES("a module's kernel", SUCCESS,
          hipModuleLaunchKernel(function, BLOCKS(N), 1, 1, 256, 1, 1, 0, 0, ARGS(&n, &value, &x), 0));
    CHECK("its result", all_are(seen(x, N), N, 5));
    struct { unsigned n; float value; float *to; } packed = {N, 6, x};
    size_t size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, (void *)3};
    GIVES("arguments in a buffer", SUCCESS, hipModuleLaunchKernel(function, 40, 1, 1, 256, 1, 1, 0, 0, 0, extra));
    CHECK("their result", all_are(seen(x, N), N, 6));
    packed.value = 8;
    hipEvent_t start = 0, stop = 0;
    float ms = -1;
    OK(hipEventCreate(&start));
    OK(hipEventCreate(&stop));
    GIVES("a size in threads", SUCCESS,
          hipExtModuleLaunchKernel(function, N, 1, 1, 256, 1, 1, 0, 0, 0, extra, start, stop, 0));
    CHECK("its result", all_are(seen(x, N), N, 8));
    OK(hipEventSynchronize(stop));
    OK(hipEventElapsedTime(&ms, start, stop));
    CHECK("its events", ms > 0);
    value = 9;
    dim3 grid = {BLOCKS(N), 1, 1}, block = {256, 1, 1};
    GIVES("hipExtLaunchKernel", SUCCESS, hipExtLaunchKernel(&fill, grid, block, ARGS(&n, &value, &x), 0, 0, start, 0, 0));
    CHECK("its result", all_are(seen(x, N), N, 9));
    value = 10;
    GIVES("a cooperative launch", SUCCESS, hipLaunchCooperativeKernel(&fill, grid, block, ARGS(&n, &value, &x), 0, 0));
    CHECK("its result", all_are(seen(x, N), N, 10));

    /* Values are taken when the launch is made. */
    hipStream_t stream = 0;
    OK(hipStreamCreate(&stream));
    OK(run_spin(2000000, stream));
    value = 11;
    OK(hipLaunchKernel(&fill, grid, block, ARGS(&n, &value, &x), 0, stream));
    value = 12;
    n = 1;
    OK(hipStreamSynchronize(stream));
    CHECK("arguments are copied by the launch", all_are(seen(x, N), N, 11));
    GIVES("a kernel that cannot run here takes time and does nothing", SUCCESS,
          launch_as_compiled(&nobody, 4, 64, stream, ARGS(&n)));
    OK(hipStreamSynchronize(stream));
    CHECK("nothing changed", all_are(seen(x, N), N, 11));
    OK(hipModuleUnload(module));
    OK(hipDeviceSynchronize());
    CHECKS_DONE;
}
