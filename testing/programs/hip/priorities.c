/* Streams of each priority, the default ones among them, work until "end" comes on stdin. A line "ready" says that each
 * has been used; the result is checked at the end. */
#include "hip.h"

enum { STREAMS = 5, KERNELS = 20 };

int main(void)
{
    static const int priorities[] = {1, 0, -1};
    hipStream_t streams[STREAMS] = {0, PER_THREAD};
    float *sums[STREAMS], *ones, host[STREAMS];
    char line[32];
    need_device();
    OK(hipMalloc(&ones, sizeof *ones));
    OK(run_fill(ones, 1, 1, 0));
    OK(hipDeviceSynchronize());
    for (int i = 2; i < STREAMS; i++) {
        OK(hipStreamCreateWithPriority(&streams[i], 1, priorities[i - 2]));
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(hipMalloc(&sums[i], sizeof *sums[i]));
        OK(hipMemsetAsync(sums[i], 0, sizeof *sums[i], streams[i]));
        for (int k = 0; k < KERNELS; k++) {
            OK(run_axpy(1, ones, sums[i], 1, streams[i]));
        }
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(hipMemcpyAsync(&host[i], sums[i], sizeof host[i], DEVICE_TO_HOST, streams[i]));
        OK(hipStreamSynchronize(streams[i]));
        check_that(host[i] == KERNELS, "stream %d has done its part", i);
    }
    CHECKS_DONE;
}
