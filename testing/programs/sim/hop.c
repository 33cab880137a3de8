/* A program that goes from one device to another: at each line of stdin it gives COUNT kernels of US each on device 0, waits for
 * them, gives as many on device 1, waits for those, and prints "done BEGIN MIDDLE END", in ns of CLOCK_MONOTONIC.
 *
 *   hop US COUNT */
#include "simdev.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != simSuccess) {                                                                                    \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #call);                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static long long clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    simStream streams[2];
    float *cells[2];
    for (int device = 0; device < 2; device++) {
        OK(simSetDevice(device));
        OK(simStreamCreate(&streams[device]));
        OK(simMalloc((void **)&cells[device], 2 * sizeof **cells));
    }
    char line[80];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long long times[3] = { clock_ns() };
        for (int device = 0; device < 2; device++) {
            OK(simSetDevice(device));
            for (int n = 0; n < atoi(argv[2]); n++) {
                simKernel kernel = { .op = simOpAxpy, .count = 1, .duration_ns = (uint64_t)atol(argv[1]) * 1000,
                                     .x = cells[device], .y = cells[device] + 1, .a = 1 };
                OK(simLaunchKernel(&kernel, streams[device]));
            }
            OK(simStreamSynchronize(streams[device]));
            times[device + 1] = clock_ns();
        }
        printf("done %lld %lld %lld\n", times[0], times[1], times[2]);
        fflush(stdout);
    }
    return 0;
}
