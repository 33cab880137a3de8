/* What a launch costs its thread.
 *
 *   launch run [--count N] [--rounds R] [--legacy] [--steps S] [--pace-us P]
 *                                                      a line of JSON a round: ns and TSC cycles of one launch
 *   launch hold                                        launches once, says {"ready":true}, stays until its input ends
 *
 * Launches come in bursts of 200 with a wait between them, so that the device's queue is never full; the figures are
 * the median of the bursts and the mean of all. Own stream, or the legacy default stream. The kernel is empty, or one
 * block does S steps. With a pace a launch follows P µs after the one before it, as from a program whose host is the
 * bottleneck, and only the calls are measured. */
#include "gpu.h"
#include <x86intrin.h>

enum { BURST = 200 };

static unsigned steps;
static double pace; /* s */

static void launch(CUstream stream) {
    void *parameters[] = {&gpu.sums, &steps};
    CHECK(cuLaunchKernel(steps ? gpu.spin : gpu.nothing, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* A burst: seconds and cycles spent in the calls. */
static void burst(CUstream stream, double *took, unsigned long long *ticks) {
    *took = 0, *ticks = 0;
    for (int i = 0; i < BURST; i++) {
        double start = now_s();
        unsigned long long from = __rdtsc();
        int calls = pace > 0 ? 1 : BURST;
        for (int n = 0; n < calls; n++) launch(stream);
        *ticks += __rdtsc() - from;
        *took += now_s() - start;
        i += calls - 1;
        while (now_s() < start + pace) __builtin_ia32_pause();
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(CUstream stream, int bursts, double *ns, double *cycles) {
    double mean = 0;
    for (int b = 0; b < bursts; b++) {
        double took;
        unsigned long long ticks;
        burst(stream, &took, &ticks);
        cycles[b] = (double)ticks / BURST;
        ns[b] = took * 1e9 / BURST;
        mean += ns[b] / bursts;
        CHECK(cuStreamSynchronize(stream));
    }
    qsort(ns, (size_t)bursts, sizeof *ns, by_value);
    qsort(cycles, (size_t)bursts, sizeof *cycles, by_value);
    printf("{\"ns\":%.2f,\"cycles\":%.2f,\"mean_ns\":%.2f,\"launches\":%d}\n", ns[bursts / 2], cycles[bursts / 2], mean,
           bursts * BURST);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const char *const known[] = {"--count=", "--rounds=", "--legacy", "--steps=", "--pace-us=", NULL};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "run") && strcmp(what, "hold")) {
        fputs("usage: launch run [--count N] [--rounds R] [--legacy] [--steps S] [--pace-us P] | launch hold\n", stderr);
        return 2;
    }
    known_options(argc, argv, known);
    int bursts = (int)(option(argc, argv, "--count", 100000) / BURST), rounds = (int)option(argc, argv, "--rounds", 1);
    if (bursts < 1) bursts = 1;
    steps = (unsigned)option(argc, argv, "--steps", 0);
    pace = option(argc, argv, "--pace-us", 0) / 1e6;
    gpu_open("launch");
    CUstream stream = NULL;
    if (!flag(argc, argv, "--legacy")) CHECK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    for (int i = 0; i < 10 * BURST; i++) {
        launch(stream);
        if (i % BURST == 0) CHECK(cuStreamSynchronize(stream));
    }
    CHECK(cuStreamSynchronize(stream));
    if (!strcmp(what, "hold")) {
        puts("{\"ready\":true}");
        fflush(stdout);
        while (getchar() != EOF) {}
        return 0;
    }
    double *ns = calloc((size_t)bursts, sizeof *ns), *cycles = calloc((size_t)bursts, sizeof *cycles);
    if (!ns || !cycles) fail("calloc", strerror(errno));
    for (int r = 0; r < rounds; r++) measure(stream, bursts, ns, cycles);
    return 0;
}
