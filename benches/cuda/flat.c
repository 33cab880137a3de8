/* Kernels that fill the device, for a given time each.
 *
 *   flat calibrate
 *   flat run   --us D --steps-per-us N [--base-us B] [--secs S] [--batch B] [--depth K] [--graph N] [--every MS]
 *              [--exit-after MS] [--reset-at-end] [--default-signals]
 *   flat paced --us D --steps-per-us N [--base-us B] [--kernels K] [--period-us P] [--requests R]
 *
 * calibrate prints {"base_us":…,"steps_per_us":…}: a kernel of n steps takes base + n / rate. Steps are work, not time,
 * so that a kernel that is interrupted is not shorter for it.
 * run launches without end (or for S seconds), K batches of B kernels in flight, or graphs of N kernels, and prints a
 * line {"t":…,"done":…} every MS: kernels known to be complete at that second of the monotonic clock. Ended by SIGTERM
 * or SIGINT it waits for what is in flight, checks the results on the device, prints {"done":…,"wrong":…} and exits
 * with 1 if something is wrong. --exit-after calls exit() from another thread, --reset-at-end resets the primary
 * context, --default-signals leaves SIGTERM and SIGINT to end it at once.
 * paced serves requests of K kernels, one every P µs, until there were R or SIGTERM comes, and prints {"latency_us":[…]}; a
 * late start counts. */
#include "gpu.h"
#include <pthread.h>
#include <signal.h>

static volatile sig_atomic_t stop;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* µs a kernel takes among many, back to back; the median of nine. */
static double measure(CUstream stream, uint32_t steps, int count) {
    double found[9];
    for (int i = 0; i < 9; i++) {
        double start = now_s();
        for (int k = 0; k < count; k++) spin(stream, steps);
        CHECK(cuStreamSynchronize(stream));
        found[i] = (now_s() - start) * 1e6 / count;
    }
    qsort(found, 9, sizeof *found, by_value);
    return found[4];
}

static int calibrate(CUstream stream) {
    enum { SMALL = 2000, LARGE = 20000 };
    double end = now_s() + 0.4; /* clocks rise under load */
    while (now_s() < end) measure(stream, LARGE, 10);
    double small = measure(stream, SMALL, 200), large = measure(stream, LARGE, 50);
    double rate = (LARGE - SMALL) / (large - small), base = small - SMALL / rate;
    printf("{\"base_us\":%.3f,\"steps_per_us\":%.4f,\"blocks\":%u}\n", base > 0 ? base : 0, rate, gpu.blocks);
    return 0;
}

static CUgraphExec graph_of(CUstream stream, uint32_t steps, int kernels) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    for (int i = 0; i < kernels; i++) spin(stream, steps);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void *exits(void *ms) {
    sleep_until(now_s() + *(double *)ms / 1e3);
    /* The driver goes while the other thread still calls it: what it answers then is of no meaning. */
    leaving = 1;
    exit(0);
}

/* Words on the device that differ from what `kernels` kernels leave there. */
static unsigned wrong_words(uint32_t steps, unsigned long kernels) {
    uint32_t *words = malloc(gpu.blocks * sizeof *words), expected = outcome(steps) * (uint32_t)kernels;
    unsigned wrong = 0;
    if (!words) fail("malloc", strerror(errno));
    CHECK(cuMemcpyDtoH_v2(words, gpu.sums, gpu.blocks * sizeof *words));
    for (unsigned i = 0; i < gpu.blocks; i++) wrong += words[i] != expected;
    free(words);
    return wrong;
}

static int run(int argc, char **argv, CUstream stream) {
    double us = option(argc, argv, "--us", 1000), secs = option(argc, argv, "--secs", 0);
    double every = option(argc, argv, "--every", 50) / 1e3, exit_after = option(argc, argv, "--exit-after", 0);
    int kernels = (int)option(argc, argv, "--graph", 0);
    int batch = (int)option(argc, argv, "--batch", us <= 50 ? 16 : us <= 500 ? 4 : 1);
    int depth = (int)option(argc, argv, "--depth", 2);
    uint32_t steps = steps_for(argc, argv, us);
    CUgraphExec exec = kernels ? graph_of(stream, steps, kernels) : NULL;
    if (kernels) batch = kernels;
    if (batch < 1 || depth < 1 || depth > 64) fail("--batch, --depth", "from 1 on, and a depth of 64 at most");
    CUevent events[64];
    for (int i = 0; i < depth; i++) CHECK(cuEventCreate(&events[i], EVENT_DISABLE_TIMING));
    struct sigaction action = {.sa_handler = on_signal};
    if (!flag(argc, argv, "--default-signals")) {
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
    }
    pthread_t thread;
    if (exit_after > 0 && pthread_create(&thread, NULL, exits, &exit_after)) fail("pthread_create", "no thread");

    unsigned long begun = 0, done = 0;
    double start = now_s(), told = 0;
    while (!stop && (secs == 0 || now_s() - start < secs)) {
        if (begun - done == (unsigned long)depth) {
            CHECK(cuEventSynchronize(events[done % (unsigned long)depth]));
            done++;
        }
        if (exec) CHECK(cuGraphLaunch(exec, stream));
        else
            for (int i = 0; i < batch; i++) spin(stream, steps);
        CHECK(cuEventRecord(events[begun % (unsigned long)depth], stream));
        begun++;
        double now = now_s();
        if (now - told >= every) {
            printf("{\"t\":%.6f,\"done\":%lu}\n", now, done * (unsigned long)batch);
            fflush(stdout);
            told = now;
        }
    }
    CHECK(cuStreamSynchronize(stream));
    unsigned wrong = wrong_words(steps, begun * (unsigned long)batch);
    printf("{\"t\":%.6f,\"done\":%lu,\"wrong\":%u}\n", now_s(), begun * (unsigned long)batch, wrong);
    if (flag(argc, argv, "--reset-at-end")) CHECK(cuDevicePrimaryCtxReset_v2(gpu.device));
    return wrong != 0;
}

static int paced(int argc, char **argv, CUstream stream) {
    int kernels = (int)option(argc, argv, "--kernels", 5), requests = (int)option(argc, argv, "--requests", 100);
    double period = option(argc, argv, "--period-us", 20000) / 1e6;
    uint32_t steps = steps_for(argc, argv, option(argc, argv, "--us", 200));
    double *latency = calloc((size_t)requests + 1, sizeof *latency);
    if (!latency) fail("calloc", strerror(errno));
    for (int i = 0; i < 20; i++) spin(stream, steps);
    CHECK(cuStreamSynchronize(stream));
    puts("{\"ready\":true}");
    fflush(stdout);
    signal(SIGTERM, on_signal);
    double due = now_s();
    int served = 0;
    for (; served < requests && !stop; served++, due += period) {
        sleep_until(due);
        double begin = now_s() - due > 1e-3 ? due : now_s();
        for (int k = 0; k < kernels; k++) spin(stream, steps);
        CHECK(cuStreamSynchronize(stream));
        latency[served] = (now_s() - begin) * 1e6;
    }
    printf("{\"latency_us\":[");
    for (int r = 0; r < served; r++) printf("%s%.1f", r ? "," : "", latency[r]);
    puts("]}");
    return 0;
}

int main(int argc, char **argv) {
    static const char *const known[] = {"--us=",        "--steps-per-us=", "--base-us=",       "--secs=",
                                        "--batch=",     "--depth=",        "--graph=",         "--every=",
                                        "--exit-after=", "--reset-at-end", "--default-signals", "--kernels=",
                                        "--period-us=", "--requests=",     NULL};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "calibrate") && strcmp(what, "run") && strcmp(what, "paced")) {
        fputs("usage: flat calibrate | flat run … | flat paced … (see the head of flat.c)\n", stderr);
        return 2;
    }
    known_options(argc, argv, known);
    if (strcmp(what, "calibrate")) steps_for(argc, argv, 0); /* a mistake is told before the device is touched */
    gpu_open("flat");
    CUstream stream;
    CHECK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    if (!strcmp(what, "calibrate")) return calibrate(stream);
    return strcmp(what, "run") ? paced(argc, argv, stream) : run(argc, argv, stream);
}
