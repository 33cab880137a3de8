/* What the kit uses of hipBLAS's interface, for trying the kit on the software HIP runtime: see hipblas.c. */
#ifndef HIPBLAS_H
#define HIPBLAS_H
#ifdef __cplusplus
extern "C" {
#endif

typedef void *hipblasHandle_t;
typedef enum {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_INTERNAL_ERROR = 6,
    HIPBLAS_STATUS_NOT_SUPPORTED = 7
} hipblasStatus_t;
typedef enum { HIPBLAS_OP_N = 111 } hipblasOperation_t;

hipblasStatus_t hipblasCreate(hipblasHandle_t *handle);
hipblasStatus_t hipblasDestroy(hipblasHandle_t handle);
hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t ta, hipblasOperation_t tb, int m, int n, int k,
                             const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,
                             float *c, int ldc);

#ifdef __cplusplus
}
#endif
#endif
