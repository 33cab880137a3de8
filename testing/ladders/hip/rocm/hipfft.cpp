/* AMD's hipFFT, over rocFFT. */
#include <hipfft/hipfft.h>

#include "says.h"

int main()
{
    hipfftHandle plan;
    hipStream_t stream;
    size_t bytes = 0;
    SAYS(hipStreamCreate(&stream));
    SAYS(hipfftPlan1d(&plan, 512, HIPFFT_C2C, 4));
    SAYS(hipfftSetStream(plan, stream));
    SAYS(hipfftGetSize(plan, &bytes));
    printf("work area %zu\n", bytes);
    hipfftComplex *data = buffer<hipfftComplex>();
    ALL(50, hipfftExecC2C(plan, data, data, HIPFFT_FORWARD));
    ALL(50, hipfftExecC2C(plan, data, data, HIPFFT_BACKWARD));
    SAYS(hipStreamSynchronize(stream));
    SAYS(hipfftDestroy(plan));
    SAYS(hipFree(data));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipGetLastError());
    return 0;
}
