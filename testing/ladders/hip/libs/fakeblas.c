/* "BLAS-like": a handle with a stream, single precision product of square matrices. */
#include "../../../programs/hip/hip.h"

struct handle { hipStream_t stream; float *workspace; };

int fakeblas_create(struct handle **out)
{
    struct handle *made = calloc(1, sizeof *made);
    int device = 0;
    hipError_t result = hipGetDevice(&device);
    result = result ? result : hipMalloc(&made->workspace, 1 << 16);
    result = result ? result : hipMemset(made->workspace, 0, 1 << 16);
    *out = made;
    return result;
}

int fakeblas_set_stream(struct handle *handle, void *stream)
{
    handle->stream = stream;
    return SUCCESS;
}

int fakeblas_sgemm(struct handle *handle, unsigned m, unsigned n, unsigned k, float *a, float *b, float *c)
{
    return launch_as_compiled(&gemm, BLOCKS(m * n), 256, handle->stream, ARGS(&m, &n, &k, &a, &b, &c));
}

int fakeblas_destroy(struct handle *handle)
{
    hipError_t result = hipFree(handle->workspace);
    free(handle);
    return result;
}
