/* Shared by the programs below: checks, the clock, and work whose result depends on every single command. */
#ifndef HAZARD_H
#define HAZARD_H
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simdev.h"

/* Ends the program unless the condition holds. */
#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                 \
            _exit(1);                                                                                                 \
        }                                                                                                             \
    } while (0)
/* Ends the program unless a call of the device succeeds. */
#define SIM(call)                                                                                                     \
    do {                                                                                                              \
        int error_ = (call);                                                                                          \
        if (error_ != simSuccess) {                                                                                   \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, error_);                                \
            _exit(1);                                                                                                 \
        }                                                                                                             \
    } while (0)

enum { ELEMENTS = 16 };

/* A chain of kernels, y[i] = y[i] * a + i with an a of its own each: one lost, doubled or swapped kernel shows. */
struct work {
    simStream stream;
    float *y, expected[ELEMENTS];
    long given;
};

__attribute__((unused)) static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((unused)) static void sleep_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&t, &t) && errno == EINTR) { }
}

__attribute__((unused)) static void start_work(struct work *w, int priority)
{
    memset(w, 0, sizeof *w);
    SIM(simStreamCreateWithPriority(&w->stream, priority));
    SIM(simMalloc((void **)&w->y, sizeof w->expected));
    SIM(simMemsetAsync(w->y, 0, sizeof w->expected, w->stream));
}

__attribute__((unused)) static simKernel next_kernel(struct work *w, long us)
{
    float a = 0.125f * (float)(w->given % 7);
    for (int i = 0; i < ELEMENTS; i++)
        w->expected[i] = w->expected[i] * a + (float)i;
    w->given++;
    return (simKernel){ .op = simOpAddIndex, .count = ELEMENTS, .duration_ns = (uint64_t)us * 1000, .y = w->y,
                        .a = a };
}

__attribute__((unused)) static void launch(struct work *w, long us)
{
    simKernel k = next_kernel(w, us);
    SIM(simLaunchKernel(&k, w->stream));
}

/* Waits for the work and compares it with the host's. */
__attribute__((unused)) static void check_work(struct work *w)
{
    float *got;
    SIM(simHostAlloc((void **)&got, sizeof w->expected));
    SIM(simMemcpyAsync(got, w->y, sizeof w->expected, w->stream));
    SIM(simStreamSynchronize(w->stream));
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(fabsf(got[i] - w->expected[i]) <= 1e-3f * (1 + fabsf(got[i])));
    SIM(simHostFree(got));
}

__attribute__((unused)) static void end_work(struct work *w)
{
    check_work(w);
    SIM(simStreamDestroy(w->stream));
    SIM(simFree(w->y));
}

/* The library's own count, for comparison with the scheduler's. */
__attribute__((unused)) static void report(void)
{
    simCounters counters;
    SIM(simGetCounters(0, &counters));
    printf("launched %d %llu\n", (int)getpid(), (unsigned long long)counters.launched);
    fflush(stdout);
}

/* Waits for a line from the test. */
__attribute__((unused)) static void await_line(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        _exit(9);
}

__attribute__((unused)) static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}
#endif
