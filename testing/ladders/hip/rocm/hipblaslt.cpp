/* AMD's hipBLASLt: what a product is made of, the library's choice of an algorithm, a workspace, and the product. */
#include <hipblaslt/hipblaslt.h>

#include "says.h"

#define N 512
#define WORKSPACE (1u << 20)

/* A product in one precision. */
static void product(hipblasLtHandle_t handle, hipDataType type, hipStream_t stream)
{
    const float one = 1, zero = 0;
    uint64_t limit = WORKSPACE;
    int found = 0;
    hipblasLtMatmulDesc_t what;
    hipblasLtMatrixLayout_t a, b, c;
    hipblasLtMatmulPreference_t preference;
    hipblasLtMatmulHeuristicResult_t best = {};
    void *da = buffer(), *db = buffer(), *dc = buffer(), *workspace = buffer();
    SAYS(hipblasLtMatmulDescCreate(&what, HIPBLAS_COMPUTE_32F, HIP_R_32F));
    SAYS(hipblasLtMatrixLayoutCreate(&a, type, N, N, N));
    SAYS(hipblasLtMatrixLayoutCreate(&b, type, N, N, N));
    SAYS(hipblasLtMatrixLayoutCreate(&c, type, N, N, N));
    SAYS(hipblasLtMatmulPreferenceCreate(&preference));
    SAYS(hipblasLtMatmulPreferenceSetAttribute(preference, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                               sizeof limit));
    SAYS(hipblasLtMatmulAlgoGetHeuristic(handle, what, a, b, c, c, preference, 1, &best, &found));
    printf("found %d, workspace %zu\n", found, best.workspaceSize);
    if (found) {
        ALL(50, hipblasLtMatmul(handle, what, &one, da, a, db, b, &zero, dc, c, dc, c, &best.algo, workspace, WORKSPACE,
                                stream));
    }
    SAYS(hipStreamSynchronize(stream));
    SAYS(hipblasLtMatmulPreferenceDestroy(preference));
    SAYS(hipblasLtMatrixLayoutDestroy(a));
    SAYS(hipblasLtMatrixLayoutDestroy(b));
    SAYS(hipblasLtMatrixLayoutDestroy(c));
    SAYS(hipblasLtMatmulDescDestroy(what));
    SAYS(hipFree(da));
    SAYS(hipFree(db));
    SAYS(hipFree(dc));
    SAYS(hipFree(workspace));
}

int main()
{
    hipblasLtHandle_t handle;
    hipStream_t stream;
    SAYS(hipblasLtCreate(&handle));
    SAYS(hipStreamCreate(&stream));
    product(handle, HIP_R_32F, stream);
    product(handle, HIP_R_16F, stream);
    SAYS(hipblasLtDestroy(handle));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipGetLastError());
    return 0;
}
