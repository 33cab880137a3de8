/* ticks MS: launches and waits, again and again, beside a timer that ticks each MS milliseconds (0 = none), as a profiler's does.
 * "ticks" on stdin: how often its handler ran so far. SIGTERM sets a flag that is looked at between launches: "stopped". */
#include "hazard.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks, stop;

static void on_tick(int number)
{
    (void)number;
    ticks++;
}

static void on_stop(int number)
{
    (void)number;
    stop = 1;
}

static void *answers(void *arg)
{
    char line[64];
    (void)arg;
    while (fgets(line, sizeof line, stdin)) {
        printf("ticks %d\n", (int)ticks);
        fflush(stdout);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long us = argc > 1 ? atol(argv[1]) * 1000 : 0;
    struct sigaction tick = { .sa_handler = on_tick, .sa_flags = SA_RESTART }, stopping = { .sa_handler = on_stop };
    struct itimerval each = { { us / 1000000, us % 1000000 }, { us / 1000000, us % 1000000 } };
    sigset_t both, before;
    pthread_t thread;
    struct work w;
    CHECK(sigaction(SIGALRM, &tick, NULL) == 0 && sigaction(SIGTERM, &stopping, NULL) == 0);
    /* The handlers run on the thread that launches. */
    sigemptyset(&both);
    sigaddset(&both, SIGALRM);
    sigaddset(&both, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &both, &before) == 0);
    CHECK(pthread_create(&thread, NULL, answers, NULL) == 0);
    start_work(&w, 0);
    SIM(simStreamSynchronize(w.stream));
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &each, NULL) == 0);
    say("ready");
    while (!stop) {
        launch(&w, 200);
        SIM(simStreamSynchronize(w.stream));
    }
    say("stopped");
    fflush(NULL);
    _exit(0);
}
