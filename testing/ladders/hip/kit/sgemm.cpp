// Ones times ones through hipBLAS: every element of the product of two 256x256 matrices of ones is 256.
#include <hip/hip_runtime.h>
#if __has_include(<hipblas/hipblas.h>)
#include <hipblas/hipblas.h>
#else
#include <hipblas.h>
#endif

#include <cstdio>
#include <vector>

#include "check.h"

int main(int argc, char **argv)
{
    const int n = 256, rounds = rounds_of(argc, argv, 100);
    std::vector<float> ones(n * n, 1.0f), out(n * n);
    const size_t bytes = ones.size() * sizeof(float);
    float *a, *b, *c;
    hipblasHandle_t handle;
    CHECK(hipMalloc((void **)&a, bytes), hipSuccess);
    CHECK(hipMalloc((void **)&b, bytes), hipSuccess);
    CHECK(hipMalloc((void **)&c, bytes), hipSuccess);
    CHECK(hipMemcpy(a, ones.data(), bytes, hipMemcpyHostToDevice), hipSuccess);
    CHECK(hipMemcpy(b, ones.data(), bytes, hipMemcpyHostToDevice), hipSuccess);
    CHECK(hipblasCreate(&handle), HIPBLAS_STATUS_SUCCESS);
    const float one = 1, zero = 0;
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
        CHECK(hipMemset(c, 0xff, bytes), hipSuccess);
        CHECK(hipblasSgemm(handle, HIPBLAS_OP_N, HIPBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n),
              HIPBLAS_STATUS_SUCCESS);
        CHECK(hipMemcpy(out.data(), c, bytes, hipMemcpyDeviceToHost), hipSuccess);
        for (float value : out) {
            wrong += value != 256.0f;
        }
    }
    CHECK(hipblasDestroy(handle), HIPBLAS_STATUS_SUCCESS);
    CHECK(hipFree(a), hipSuccess);
    CHECK(hipFree(b), hipSuccess);
    CHECK(hipFree(c), hipSuccess);
    return verdict("sgemm", rounds, wrong);
}
