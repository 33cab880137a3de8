/* AMD's rocRAND: generators of several kinds, launches on a stream. What they compute is not looked at: no device code
 * runs on a software runtime. */
#include <hip/hip_runtime_api.h>
#include <rocrand/rocrand.h>
#include <stdio.h>

#define SAYS(call) printf("%s %d\n", #call, (int)(call))

int main(void)
{
    hipStream_t stream;
    float *numbers;
    unsigned *words;
    rocrand_generator generator;
    int version = 0;
    rocrand_rng_type kinds[] = {ROCRAND_RNG_PSEUDO_XORWOW, ROCRAND_RNG_PSEUDO_PHILOX4_32_10, ROCRAND_RNG_PSEUDO_MRG32K3A};
    SAYS(hipStreamCreate(&stream));
    SAYS(hipMalloc((void **)&numbers, 1 << 16));
    SAYS(hipMalloc((void **)&words, 1 << 16));
    SAYS(rocrand_get_version(&version));
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        SAYS(rocrand_create_generator(&generator, kinds[i]));
        SAYS(rocrand_set_stream(generator, stream));
        SAYS(rocrand_set_seed(generator, 42));
        SAYS(rocrand_initialize_generator(generator));
        SAYS(rocrand_generate_uniform(generator, numbers, 1 << 14));
        SAYS(rocrand_generate_normal(generator, numbers, 1 << 14, 0.0f, 1.0f));
        SAYS(rocrand_generate(generator, words, 1 << 14));
        SAYS(hipStreamSynchronize(stream));
        SAYS(rocrand_destroy_generator(generator));
    }
    SAYS(hipFree(numbers));
    SAYS(hipFree(words));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipGetLastError());
    return 0;
}
