/* Goes on and on: steady [US] [BATCH] [PRIORITY]. Batches of kernels of US microseconds, back to back: each batch is
 * given before the one before it is complete, so that the device always has something to do. After each batch a line
 * with the time of CLOCK_MONOTONIC in ns. A line on stdin, or its end, ends it: the result is checked. */
#include "hazard.h"
#include <poll.h>
#include <signal.h>

static volatile sig_atomic_t handled;
static void on_signal(int number)
{
    (void)number;
    handled++;
}

int main(int argc, char **argv)
{
    long us = argc > 1 ? atol(argv[1]) : 200, batch = argc > 2 ? atol(argv[2]) : 8;
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    struct work w;
    start_work(&w, argc > 3 ? atoi(argv[3]) : 0);
    SIM(simStreamSynchronize(w.stream));
    say("ready");
    simEvent done[2];
    SIM(simEventCreate(&done[0]));
    SIM(simEventCreate(&done[1]));
    struct pollfd in = { .fd = 0, .events = POLLIN };
    for (long n = 0; poll(&in, 1, 0) <= 0; n++) {
        for (long i = 0; i < batch; i++)
            launch(&w, us);
        SIM(simEventRecord(done[n % 2], w.stream));
        if (n > 0)
            SIM(simEventSynchronize(done[(n + 1) % 2]));
        printf("%lld\n", now_ns());
        fflush(stdout);
    }
    end_work(&w);
    printf("handled %d\n", (int)handled);
    report();
    say("ok");
    return 0;
}
