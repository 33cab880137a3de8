/* Answers a request every 50 ms: five products of matrices. serve [REQUESTS], 0 or nothing = without end. */
#define _POSIX_C_SOURCE 200809L
#include "device.h"
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    const double period_ms = 50;
    long requests = argc > 1 ? atol(argv[1]) : 0;
    set_up();
    multiply(5);
    double due = now_ms();
    for (long n = 1; requests == 0 || n <= requests; n++, due += period_ms) {
        struct timespec t = { .tv_sec = (time_t)(due / 1e3) };
        t.tv_nsec = (long)((due - (double)t.tv_sec * 1e3) * 1e6);
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        multiply(5);
        /* From when it was due: a late start is part of it. */
        printf("request %ld: %.3f ms\n", n, now_ms() - due);
        fflush(stdout);
    }
    return 0;
}
