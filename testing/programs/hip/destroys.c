/* A stream more urgent than the default one is destroyed while it works. Then "destroyed"; after "end" on stdin the
 * default stream does its part. */
#include "hip.h"

int main(void)
{
    hipStream_t urgent;
    float *sum, host;
    char line[32];
    need_device();
    OK(hipMalloc(&sum, sizeof *sum));
    OK(run_fill(sum, 1, 1, 0));
    OK(hipDeviceSynchronize());
    OK(hipStreamCreateWithPriority(&urgent, 1, -1));
    for (int i = 0; i < 4; i++) {
        OK(run_spin(20000000, urgent));
    }
    OK(hipStreamDestroy(urgent));
    puts("destroyed");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
    }
    OK(run_axpy(1, sum, sum, 1, 0));
    OK(hipMemcpy(&host, sum, sizeof host, DEVICE_TO_HOST));
    check_that(host == 2, "the default stream goes on");
    CHECKS_DONE;
}
