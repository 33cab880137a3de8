// A program for AMD's compiler: launches by <<<>>>, variables, a module of its own code. Its kernels have names and
// arguments that a software runtime stands in for, so that the results are the same there as on a GPU.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

extern "C" __global__ void fill(unsigned n, float v, float *p)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        p[i] = v;
    }
}

// By its mangled name.
__global__ void axpy(unsigned n, float a, float *x, float *y)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] += a * x[i];
    }
}

extern "C" __global__ void reduce(unsigned n, float *in, float *out)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned i = 0; i < n; i++) {
            sum += in[i];
        }
        *out = sum;
    }
}

__device__ int table[4] = {1, 2, 3, 4};
__constant__ float factor = 2.5f;

static int failed;

static void check(const char *what, bool holds)
{
    printf("%s %s\n", holds ? "ok" : "FAIL", what);
    failed |= !holds;
}

#define OK(call) check(#call, (call) == hipSuccess)

int main()
{
    const unsigned n = 5000;
    float *x = nullptr, *y = nullptr, *sum = nullptr, total = 0;
    OK(hipMalloc(&x, n * sizeof *x));
    OK(hipMalloc(&y, n * sizeof *y));
    OK(hipMalloc(&sum, sizeof *sum));
    hipStream_t stream;
    OK(hipStreamCreate(&stream));
    fill<<<20, 256, 0, stream>>>(n, 2.0f, x);
    fill<<<20, 256, 0, stream>>>(n, 1.0f, y);
    axpy<<<dim3(20), dim3(256), 0, stream>>>(n, 3.0f, x, y);
    reduce<<<1, 1, 0, stream>>>(n, y, sum);
    OK(hipGetLastError());
    OK(hipMemcpyAsync(&total, sum, sizeof total, hipMemcpyDeviceToHost, stream));
    OK(hipStreamSynchronize(stream));
    check("the sum of all is 7 n", total == 7.0f * n);
    std::vector<float> host(n);
    OK(hipMemcpy(host.data(), y, n * sizeof *y, hipMemcpyDeviceToHost));
    bool all = true;
    for (float value : host) {
        all &= value == 7.0f;
    }
    check("each is 7", all);

    int numbers[4] = {};
    float constant = 0;
    OK(hipMemcpyFromSymbol(numbers, HIP_SYMBOL(table), sizeof numbers));
    check("a variable begins with what the program says", numbers[0] == 1 && numbers[3] == 4);
    OK(hipMemcpyFromSymbol(&constant, HIP_SYMBOL(factor), sizeof constant));
    check("so does a constant", constant == 2.5f);
    numbers[1] = 20;
    OK(hipMemcpyToSymbol(HIP_SYMBOL(table), numbers, sizeof numbers));
    int again[4] = {};
    OK(hipMemcpyFromSymbol(again, HIP_SYMBOL(table), sizeof again));
    check("and it can be changed", again[1] == 20);
    hipFuncAttributes attributes;
    OK(hipFuncGetAttributes(&attributes, reinterpret_cast<const void *>(&axpy)));
    OK(hipStreamDestroy(stream));
    OK(hipFree(x));
    OK(hipFree(y));
    OK(hipFree(sum));
    return failed;
}
