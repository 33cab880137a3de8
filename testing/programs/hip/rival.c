/* Takes half of the device's time until SIGTERM: four kernels of 500 µs, then as long nothing. Says "rival: ready" on
 * stderr after the first, and ends with status 0 if nothing of what it launched was lost. */
#include <signal.h>
#include <time.h>

#include "hip.h"

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

int main(void)
{
    need_device();
    signal(SIGTERM, on_signal);
    hipStream_t stream = 0;
    float *x = 0, *y = 0, sum = 0;
    unsigned launched = 0;
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipMalloc(&x, sizeof *x));
    OK(hipMalloc(&y, sizeof *y));
    OK(run_fill(x, 1, 1, stream));
    OK(run_fill(y, 1, 0, stream));
    while (!ended) {
        for (int i = 0; i < 4; i++) {
            OK(run_spin(500000, stream));
        }
        OK(run_axpy(1, x, y, 1, stream));
        OK(hipStreamSynchronize(stream));
        if (!launched++) {
            fputs("rival: ready\n", stderr);
        }
        nanosleep(&(struct timespec){0, 2000000}, 0);
    }
    OK(hipMemcpy(&sum, y, sizeof sum, DEVICE_TO_HOST));
    check_that(sum == launched, "nothing was lost");
    CHECKS_DONE;
}
