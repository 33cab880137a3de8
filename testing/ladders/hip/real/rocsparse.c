/* AMD's rocSPARSE: a handle, vector and matrix operations on a stream. What they compute is not looked at. */
#include <hip/hip_runtime_api.h>
#include <rocsparse/rocsparse.h>
#include <stdio.h>

#define N 256
#define SAYS(call) printf("%s %d\n", #call, (int)(call))

int main(void)
{
    rocsparse_handle handle;
    rocsparse_mat_descr matrix;
    hipStream_t stream;
    int rows[N + 1], columns[N], *device_rows, *device_columns;
    float values[N], one = 1, *device_values, *x, *y;
    for (int i = 0; i <= N; i++) {
        rows[i] = i;
    }
    for (int i = 0; i < N; i++) {
        columns[i] = i;
        values[i] = 2;
    }
    SAYS(rocsparse_create_handle(&handle));
    SAYS(hipStreamCreate(&stream));
    SAYS(rocsparse_set_stream(handle, stream));
    SAYS(rocsparse_create_mat_descr(&matrix));
    SAYS(hipMalloc((void **)&device_rows, sizeof rows));
    SAYS(hipMalloc((void **)&device_columns, sizeof columns));
    SAYS(hipMalloc((void **)&device_values, sizeof values));
    SAYS(hipMalloc((void **)&x, sizeof values));
    SAYS(hipMalloc((void **)&y, sizeof values));
    SAYS(hipMemcpy(device_rows, rows, sizeof rows, hipMemcpyHostToDevice));
    SAYS(hipMemcpy(device_columns, columns, sizeof columns, hipMemcpyHostToDevice));
    SAYS(hipMemcpy(device_values, values, sizeof values, hipMemcpyHostToDevice));
    SAYS(hipMemset(x, 0, sizeof values));
    SAYS(hipMemset(y, 0, sizeof values));
    SAYS(rocsparse_saxpyi(handle, N, &one, device_values, device_columns, y, rocsparse_index_base_zero));
    SAYS(rocsparse_sgthr(handle, N, y, x, device_columns, rocsparse_index_base_zero));
    SAYS(rocsparse_scsrmv(handle, rocsparse_operation_none, N, N, N, &one, matrix, device_values, device_rows,
                          device_columns, NULL, x, &one, y));
    SAYS(hipStreamSynchronize(stream));
    SAYS(rocsparse_destroy_mat_descr(matrix));
    SAYS(rocsparse_destroy_handle(handle));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipGetLastError());
    return 0;
}
