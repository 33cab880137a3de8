/* hipRAND, which goes through rocRAND. */
#include <hip/hip_runtime_api.h>
#include <hiprand/hiprand.h>
#include <stdio.h>

#define SAYS(call) printf("%s %d\n", #call, (int)(call))

int main(void)
{
    hipStream_t stream;
    float *numbers;
    hiprandGenerator_t generator;
    SAYS(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    SAYS(hipMalloc((void **)&numbers, 1 << 16));
    SAYS(hiprandCreateGenerator(&generator, HIPRAND_RNG_PSEUDO_XORWOW));
    SAYS(hiprandSetStream(generator, stream));
    SAYS(hiprandSetPseudoRandomGeneratorSeed(generator, 7));
    SAYS(hiprandGenerateUniform(generator, numbers, 1 << 14));
    SAYS(hiprandGenerateNormal(generator, numbers, 1 << 14, 0.0f, 1.0f));
    SAYS(hipStreamSynchronize(stream));
    SAYS(hiprandDestroyGenerator(generator));
    SAYS(hipFree(numbers));
    SAYS(hipStreamDestroy(stream));
    return 0;
}
