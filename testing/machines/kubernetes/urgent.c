/* An urgent program of the simulated device: every 20 ms one kernel of 1 ms, until there is the file that it is given. Prints of each
 * request the time of CLOCK_MONOTONIC right before its launch and after its end, in us. Exit status: 3 = no device or a failed call. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "simdev.h"

#define CHECK(call) do { if ((call) != simSuccess) { fprintf(stderr, "urgent: %s failed\n", #call); exit(3); } } while (0)

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    simStream stream;
    simKernel kernel = { .op = simOpAddIndex, .count = 1, .duration_ns = 1000000, .a = 1 };
    if (argc != 2)
        return 2;
    CHECK(simInit(0));
    CHECK(simStreamCreateWithPriority(&stream, 0));
    CHECK(simMalloc((void **)&kernel.y, sizeof(float)));
    CHECK(simMemset(kernel.y, 0, sizeof(float)));
    while (access(argv[1], F_OK)) {
        struct timespec idle = { 0, 20 * 1000 * 1000 };
        nanosleep(&idle, NULL);
        long from = now_us();
        CHECK(simLaunchKernel(&kernel, stream));
        CHECK(simStreamSynchronize(stream));
        printf("%ld %ld\n", from, now_us());
        fflush(stdout);
    }
    return 0;
}
