/* hipSPARSE, which goes through rocSPARSE. */
#include <hip/hip_runtime_api.h>
#include <hipsparse/hipsparse.h>
#include <stdio.h>

#define N 128
#define SAYS(call) printf("%s %d\n", #call, (int)(call))

int main(void)
{
    hipsparseHandle_t handle;
    int indices[N], *device_indices;
    float values[N], alpha = 3, *device_values, *y;
    for (int i = 0; i < N; i++) {
        indices[i] = i;
        values[i] = 1;
    }
    SAYS(hipsparseCreate(&handle));
    SAYS(hipMalloc((void **)&device_indices, sizeof indices));
    SAYS(hipMalloc((void **)&device_values, sizeof values));
    SAYS(hipMalloc((void **)&y, sizeof values));
    SAYS(hipMemcpy(device_indices, indices, sizeof indices, hipMemcpyHostToDevice));
    SAYS(hipMemcpy(device_values, values, sizeof values, hipMemcpyHostToDevice));
    SAYS(hipsparseSaxpyi(handle, N, &alpha, device_values, device_indices, y, HIPSPARSE_INDEX_BASE_ZERO));
    SAYS(hipsparseSgthr(handle, N, y, device_values, device_indices, HIPSPARSE_INDEX_BASE_ZERO));
    SAYS(hipDeviceSynchronize());
    SAYS(hipsparseDestroy(handle));
    SAYS(hipGetLastError());
    return 0;
}
