/* AMD's rocBLAS: its handle, a stream, a workspace, and products in three precisions. */
#include <rocblas/rocblas.h>

#include "says.h"

int main()
{
    const float one = 1, zero = 0;
    const double dbl = 1;
    const rocblas_half half = {0x3c00};
    const rocblas_operation none = rocblas_operation_none, flip = rocblas_operation_transpose;
    rocblas_handle handle;
    hipStream_t stream;
    size_t workspace = 0;
    SAYS(rocblas_create_handle(&handle));
    SAYS(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    SAYS(rocblas_set_stream(handle, stream));
    SAYS(rocblas_get_device_memory_size(handle, &workspace));
    printf("workspace %zu\n", workspace);
    SAYS(rocblas_set_device_memory_size(handle, 8 << 20));
    float *a = buffer<float>(), *b = buffer<float>(), *c = buffer<float>();
    ALL(50, rocblas_sgemm(handle, none, none, 256, 256, 256, &one, a, 256, b, 256, &zero, c, 256));
    ALL(20, rocblas_sgemm(handle, flip, none, 64, 100, 33, &one, a, 33, b, 33, &zero, c, 64));
    ALL(20, rocblas_dgemm(handle, none, none, 128, 128, 128, &dbl, (double *)a, 128, (double *)b, 128, &dbl,
                          (double *)c, 128));
    ALL(20, rocblas_hgemm(handle, none, none, 128, 128, 128, &half, (rocblas_half *)a, 128, (rocblas_half *)b, 128,
                          &half, (rocblas_half *)c, 128));
    ALL(10, rocblas_sgemm_strided_batched(handle, none, none, 32, 32, 32, &one, a, 32, 1024, b, 32, 1024, &zero, c, 32,
                                          1024, 16));
    ALL(10, rocblas_sgemv(handle, none, 256, 256, &one, a, 256, b, 1, &zero, c, 1));
    ALL(10, rocblas_saxpy(handle, 1000, &one, a, 1, c, 1));
    SAYS(rocblas_set_pointer_mode(handle, rocblas_pointer_mode_device));
    SAYS(rocblas_sdot(handle, 1000, a, 1, b, 1, c));
    SAYS(hipStreamSynchronize(stream));
    SAYS(rocblas_destroy_handle(handle));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipFree(a));
    SAYS(hipFree(b));
    SAYS(hipFree(c));
    SAYS(hipGetLastError());
    return 0;
}
