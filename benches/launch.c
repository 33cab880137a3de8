/* launch N ROUNDS: time per clEnqueueNDRangeKernel in ns and TSC cycles, one line of JSON a round.
 * launch hold: launches once, says so, and stays (a second program on the device) until its input ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

int clEnqueueNDRangeKernel(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned,
                           void *const *, void **);

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int launch(void) {
    static const size_t size[3] = {1024, 1, 1};
    return clEnqueueNDRangeKernel((void *)0x1230, (void *)0x4560, 1, NULL, size, NULL, 0, NULL, NULL);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "hold")) {
        launch();
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF) {}
        return 0;
    }
    if (argc != 3) {
        fputs("usage: launch N ROUNDS | launch hold\n", stderr);
        return 2;
    }
    long n = atol(argv[1]), rounds = atol(argv[2]);
    for (long i = 0; i < 1000; i++) launch();
    for (long r = 0; r < rounds; r++) {
        double start = now_ns();
        unsigned long long ticks = __rdtsc();
        for (long i = 0; i < n; i++) launch();
        ticks = __rdtsc() - ticks;
        printf("{\"ns\":%.3f,\"cycles\":%.2f}\n", (now_ns() - start) / n, (double)ticks / n);
        fflush(stdout);
    }
    return 0;
}
