/* AMD's hipBLAS, over rocBLAS: the reports' second step, a handle and a product of 256 x 256. */
#define HIPBLAS_V2
#include <hipblas/hipblas.h>

#include "says.h"

int main()
{
    const float one = 1, zero = 0;
    const hipblasOperation_t none = HIPBLAS_OP_N;
    hipblasHandle_t handle, second;
    hipStream_t stream;
    SAYS(hipblasCreate(&handle));
    SAYS(hipblasCreate(&second));
    SAYS(hipStreamCreate(&stream));
    SAYS(hipblasSetStream(handle, stream));
    float *a = buffer<float>(), *b = buffer<float>(), *c = buffer<float>();
    ALL(50, hipblasSgemm(handle, none, none, 256, 256, 256, &one, a, 256, b, 256, &zero, c, 256));
    ALL(10, hipblasSgemm(second, none, none, 256, 256, 256, &one, a, 256, b, 256, &zero, c, 256));
    ALL(20, hipblasGemmEx(handle, none, none, 128, 128, 128, &one, a, HIP_R_16F, 128, b, HIP_R_16F, 128, &zero, c,
                          HIP_R_16F, 128, HIPBLAS_COMPUTE_32F, HIPBLAS_GEMM_DEFAULT));
    ALL(10, hipblasSgemmStridedBatched(handle, none, none, 32, 32, 32, &one, a, 32, 1024, b, 32, 1024, &zero, c, 32,
                                       1024, 16));
    ALL(10, hipblasSscal(handle, 1000, &one, a, 1));
    SAYS(hipStreamSynchronize(stream));
    SAYS(hipDeviceSynchronize());
    SAYS(hipblasDestroy(second));
    SAYS(hipblasDestroy(handle));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipFree(a));
    SAYS(hipFree(b));
    SAYS(hipFree(c));
    SAYS(hipGetLastError());
    return 0;
}
