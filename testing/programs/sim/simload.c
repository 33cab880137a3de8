/* A load for the simulated device: cc -O2 -o simload simload.c -I crates/xsched-simdev/include -L target/release -lsimdev -lpthread
 *
 *   simload lc --kernels 5 --us 1000 --period-us 20000 --requests N   latency-critical: one request each period
 *   simload be --us 200 --batch 64 --secs S                           best-effort: batches back to back
 *   simload be --us 200 --batch 64 --until FILE                       the same, until there is such a file
 *
 * Options of both: --threads T (each with its own streams), --streams K (per thread; kernels go round them),
 * --priority P (-2..2, of the streams), --event-chain (each kernel waits for the one before it, across streams).
 *
 * Every kernel does y[i] = y[i] * a + i with an a of its own, so that the result depends on the order; it is checked
 * against the host's. Prints one line of JSON; "enqueued" is the number of kernels, copies and sets given. Exit
 * status: 0, 1 = a wrong result, 2 = bad arguments, 3 = no device or a failed call. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simdev.h"

enum { ELEMENTS = 16, MAX_STREAMS = 64, MAX_THREADS = 64 };

static struct {
    int be, kernels, streams, threads, priority, chain;
    long us, period_us, requests, batch;
    double secs;
    const char *until;
} opt = { .kernels = 5, .streams = 1, .threads = 1, .us = 1000, .period_us = 20000, .requests = 100, .batch = 64,
          .secs = 5 };

struct worker {
    pthread_t thread;
    simStream stream[MAX_STREAMS];
    simEvent event;
    float *y[MAX_STREAMS];              /* on the device, one per stream (all the same one with --event-chain) */
    float expected[MAX_STREAMS][ELEMENTS];
    long given, enqueued, done;
    double *latency_ms, seconds;
    int wrong;
};

static void check(int error, const char *what)
{
    if (error != simSuccess) {
        fprintf(stderr, "simload: %s: simError %d\n", what, error);
        exit(3);
    }
}
#define CHECK(call) check(call, #call)

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void sleep_until(double when)
{
    struct timespec t = { (time_t)when, (long)((when - (double)(time_t)when) * 1e9) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) { }
}

static void start(struct worker *w)
{
    CHECK(simEventCreate(&w->event));
    for (int s = 0; s < opt.streams; s++) {
        CHECK(simStreamCreateWithPriority(&w->stream[s], opt.priority));
        if (s > 0 && opt.chain) {
            w->y[s] = w->y[0];
            continue;
        }
        CHECK(simMalloc((void **)&w->y[s], ELEMENTS * sizeof(float)));
        CHECK(simMemset(w->y[s], 0, ELEMENTS * sizeof(float)));
        w->enqueued++;
    }
}

static void launch(struct worker *w)
{
    int s = (int)(w->given % opt.streams), e = opt.chain ? 0 : s;
    /* The factors keep the values bounded and no two neighbours commute. */
    float a = 0.125f * (float)(w->given % 7);
    simKernel k = { .op = simOpAddIndex, .count = ELEMENTS, .duration_ns = (uint64_t)opt.us * 1000, .y = w->y[s],
                    .a = a };
    if (opt.chain && w->given > 0)
        CHECK(simStreamWaitEvent(w->stream[s], w->event));
    CHECK(simLaunchKernel(&k, w->stream[s]));
    if (opt.chain)
        CHECK(simEventRecord(w->event, w->stream[s]));
    for (int i = 0; i < ELEMENTS; i++)
        w->expected[e][i] = w->expected[e][i] * a + (float)i;
    w->given++;
    w->enqueued++;
}

static void finish(struct worker *w)
{
    for (int s = 0; s < opt.streams; s++)
        CHECK(simStreamSynchronize(w->stream[s]));
}

static void verify(struct worker *w)
{
    float got[ELEMENTS];
    for (int s = 0; s < (opt.chain ? 1 : opt.streams); s++) {
        CHECK(simMemcpy(got, w->y[s], sizeof got));
        w->enqueued++;
        for (int i = 0; i < ELEMENTS; i++)
            w->wrong |= !(fabsf(got[i] - w->expected[s][i]) <= 1e-3f * (1 + fabsf(got[i])));
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    start(w);
    double begin = now_s();
    if (opt.be) {
        while (opt.until ? access(opt.until, F_OK) : now_s() < begin + opt.secs) {
            for (long i = 0; i < opt.batch; i++)
                launch(w);
            finish(w);
            w->done += opt.batch;
        }
    } else {
        for (long r = 0; r < opt.requests; r++) {
            double due = begin + (double)r * (double)opt.period_us * 1e-6;
            sleep_until(due);
            double from = now_s();
            for (int k = 0; k < opt.kernels; k++)
                launch(w);
            finish(w);
            w->latency_ms[r] = (now_s() - from) * 1e3;
        }
    }
    w->seconds = now_s() - begin;
    verify(w);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void usage(const char *why, const char *what)
{
    fprintf(stderr,
            "simload: %s%s; usage: simload lc|be [--us N] [--kernels N] [--period-us N] [--requests N] [--batch N] "
            "[--secs S | --until FILE] [--threads N] [--streams N] [--priority -2..2] [--event-chain]\n", why, what);
    exit(2);
}

static long number(const char *name, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long value = text ? strtol(text, &end, 10) : 0;
    if (!text || errno || end == text || *end || value < low || value > high)
        usage(name, ": out of range or missing");
    return value;
}

static void parse(int argc, char **argv)
{
    if (argc < 2 || (strcmp(argv[1], "lc") && strcmp(argv[1], "be")))
        usage("first word must be lc or be", "");
    opt.be = argv[1][0] == 'b';
    if (opt.be)
        opt.us = 200;
    for (int i = 2; i < argc; i++) {
        const char *name = argv[i];
        if (!strcmp(name, "--event-chain")) {
            opt.chain = 1;
            continue;
        }
        const char *value = argv[++i]; /* argv ends in NULL */
        if (!strcmp(name, "--us")) opt.us = number(name, value, 0, 100000000);
        else if (!strcmp(name, "--kernels")) opt.kernels = (int)number(name, value, 1, 100000);
        else if (!strcmp(name, "--period-us")) opt.period_us = number(name, value, 0, 1000000000);
        else if (!strcmp(name, "--requests")) opt.requests = number(name, value, 1, 10000000);
        else if (!strcmp(name, "--batch")) opt.batch = number(name, value, 1, 10000000);
        else if (!strcmp(name, "--secs")) opt.secs = value ? atof(value) : 0;
        else if (!strcmp(name, "--until")) opt.until = value;
        else if (!strcmp(name, "--threads")) opt.threads = (int)number(name, value, 1, MAX_THREADS);
        else if (!strcmp(name, "--streams")) opt.streams = (int)number(name, value, 1, MAX_STREAMS);
        else if (!strcmp(name, "--priority")) opt.priority = (int)number(name, value, -2, 2);
        else usage("unknown option ", name);
    }
    if (opt.be && !(opt.secs > 0))
        usage("--secs", ": expected a positive number");
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    CHECK(simInit(0));
    struct worker *workers = calloc((size_t)opt.threads, sizeof *workers);
    size_t n = opt.be ? 0 : (size_t)opt.requests * (size_t)opt.threads;
    double *latency = calloc(n + 1, sizeof *latency);
    for (int t = 0; t < opt.threads; t++) {
        workers[t].latency_ms = latency + (opt.be ? 0 : t * opt.requests);
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
            check(simErrorOutOfMemory, "pthread_create");
    }
    long done = 0, enqueued = 0;
    double per_s = 0;
    int wrong = 0;
    for (int t = 0; t < opt.threads; t++) {
        pthread_join(workers[t].thread, NULL);
        done += workers[t].done;
        enqueued += workers[t].enqueued;
        per_s += (double)workers[t].done / workers[t].seconds;
        wrong |= workers[t].wrong;
    }
    const char *verdict = wrong ? "wrong" : "ok";
    if (opt.be) {
        printf("{\"done\":%ld,\"per_s\":%.1f,\"enqueued\":%ld,\"check\":\"%s\"}\n", done, per_s, enqueued, verdict);
    } else {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += latency[i];
        qsort(latency, n, sizeof *latency, by_value);
        printf("{\"n\":%zu,\"mean_ms\":%.3f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"enqueued\":%ld,\"check\":\"%s\"}\n",
               n, sum / (double)n, latency[n / 2], latency[n * 99 / 100], latency[n - 1], enqueued, verdict);
    }
    return wrong;
}
