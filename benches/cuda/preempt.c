/* How long a small urgent launch takes to run.
 *
 *   preempt run [--count N] [--secs S] [--period-us P] [--seed S]
 *
 * Every P µs or so (half to one and a half times that, by a generator seeded with S, so that it falls into no step
 * with others) it launches one kernel of one thread whose first store goes to mapped host memory, and polls for it.
 * Latency = the store is seen - just before cuLaunchKernel was called. Says {"ready":true} and waits for a line of
 * input before it begins; prints {"latency_us":[…]} after N launches, or, if S are given, after so many seconds with
 * those that there are. A store that does not come within 20 s ends it with exit status 1. */
#include "gpu.h"

static double patiently(volatile uint32_t *word, uint32_t value, double start) {
    for (unsigned long i = 1;; i++) {
        if (*word == value) return now_s();
        __builtin_ia32_pause();
        if (i % 1000000 == 0 && now_s() - start > 20) {
            fputs("preempt: the kernel did not run within 20 s\n", stderr);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    static const char *const known[] = {"--count=", "--secs=", "--period-us=", "--seed=", NULL};
    if (argc < 2 || strcmp(argv[1], "run")) {
        fputs("usage: preempt run [--count N] [--secs S] [--period-us P] [--seed S]\n", stderr);
        return 2;
    }
    known_options(argc, argv, known);
    int count = (int)option(argc, argv, "--count", 500);
    double secs = option(argc, argv, "--secs", 1e9);
    double period = option(argc, argv, "--period-us", 15000) / 1e6;
    uint64_t random = (uint64_t)option(argc, argv, "--seed", 1) * 2654435761u + 88172645463325252u;
    gpu_open("preempt");
    void *host;
    CUdeviceptr mapped;
    CUstream stream;
    CHECK(cuMemHostAlloc(&host, 4096, HOST_ALLOC_MAPPED));
    CHECK(cuMemHostGetDevicePointer_v2(&mapped, host, 0));
    CHECK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    volatile uint32_t *word = host;
    *word = 0;
    double *latency = calloc((size_t)count + 1, sizeof *latency);
    if (!latency) fail("calloc", strerror(errno));
    const int warm = 10;
    double due = 0, end = 0;
    int done = 0;
    for (int i = 0; i < warm + count; i++) {
        if (i == warm) {
            puts("{\"ready\":true}");
            fflush(stdout);
            if (getchar() == EOF) return 0;
            due = now_s();
            end = due + secs;
        }
        if (i > warm && now_s() > end) break;
        if (i >= warm) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            due += period * (0.5 + (double)(random >> 11) / (double)(1ull << 53));
            if (due < now_s()) due = now_s() + period / 2; /* the last one took long: not at once again */
            sleep_until(due);
        }
        uint32_t value = (uint32_t)i + 1;
        void *parameters[] = {&mapped, &value};
        double start = now_s();
        CHECK(cuLaunchKernel(gpu.mark, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        double seen = patiently(word, value, start);
        if (i >= warm) latency[done++] = (seen - start) * 1e6;
        CHECK(cuStreamSynchronize(stream));
    }
    printf("{\"latency_us\":[");
    for (int i = 0; i < done; i++) printf("%s%.2f", i ? "," : "", latency[i]);
    puts("]}");
    return 0;
}
