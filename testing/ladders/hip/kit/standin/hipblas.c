/* A stand-in for hipBLAS over the software HIP runtime's kernels: a plain product, where its matrices lie without gaps.
 * With -DWRONG it leaves out what comes last. */
#include "hipblas/hipblas.h"
#include "../../../../programs/hip/hip.h"

hipblasStatus_t hipblasCreate(hipblasHandle_t *handle)
{
    return hipMalloc(handle, 1 << 16) == SUCCESS ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_INTERNAL_ERROR;
}

hipblasStatus_t hipblasDestroy(hipblasHandle_t handle)
{
    return hipFree(handle) == SUCCESS ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_INTERNAL_ERROR;
}

hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t ta, hipblasOperation_t tb, int m, int n, int k,
                             const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,
                             float *c, int ldc)
{
    if (!handle || ta != HIPBLAS_OP_N || tb != HIPBLAS_OP_N || *alpha != 1 || *beta != 0)
        return HIPBLAS_STATUS_NOT_SUPPORTED;
    if (lda != m || ldb != k || ldc != m)
        return HIPBLAS_STATUS_NOT_SUPPORTED;
    /* Columns first here, rows first there: the product of the transposed. */
#ifdef WRONG
    k--;
#endif
    hipError_t rc = launch_as_compiled(&gemm, BLOCKS((unsigned)(m * n)), 256, 0, ARGS(&n, &m, &k, &b, &a, &c));
    return rc == SUCCESS ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_INTERNAL_ERROR;
}
