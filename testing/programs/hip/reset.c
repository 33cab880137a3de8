/* A device is reset again and again: what was on it is gone, what comes after works. */
#include "hip.h"

enum { N = 1000, KERNELS = 50 };

static float host[N];

static void round_of(int number, hipStream_t stream)
{
    float *x, *y;
    hipStream_t own;
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    OK(hipStreamCreate(&own));
    OK(run_fill(x, N, 1, stream));
    OK(run_fill(y, N, 0, stream));
    OK(hipStreamSynchronize(stream));
    for (int i = 0; i < KERNELS; i++) {
        OK(run_axpy(1, x, y, N, own));
    }
    OK(hipStreamSynchronize(own));
    for (int i = 0; i < KERNELS; i++) {
        OK(run_axpy(1, x, y, N, stream));
    }
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, y, sizeof host, DEVICE_TO_HOST));
    check_that(all_are(host, N, 2 * KERNELS), "round %d", number);
    check_that(hipDeviceReset() == SUCCESS, "reset %d", number);
    check_that(hipGetLastError() == SUCCESS, "nothing is wrong after %d", number);
}

int main(void)
{
    need_device();
    for (int i = 0; i < 6; i++) {
        round_of(i, i % 2 ? PER_THREAD : 0);
    }
    CHECKS_DONE;
}
