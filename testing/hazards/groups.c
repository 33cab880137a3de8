/* groups REQUESTS: six threads, two of each stream priority -1, 0, 1, with requests of four kernels of 500 us each and
 * 2 ms of their own between. Prints one line a priority: its latencies in ms. */
#include "hazard.h"
#include <pthread.h>

enum { THREADS = 6, KERNELS = 4 };

static struct task {
    int priority;
    double *ms;
} tasks[THREADS];
static long requests;

static void *body(void *arg)
{
    struct task *task = arg;
    struct work w;
    start_work(&w, task->priority);
    for (long r = 0; r < requests; r++) {
        long long begin = now_ns();
        for (int k = 0; k < KERNELS; k++)
            launch(&w, 500);
        SIM(simStreamSynchronize(w.stream));
        task->ms[r] = (double)(now_ns() - begin) / 1e6;
        sleep_ms(2);
    }
    end_work(&w);
    return NULL;
}

int main(int argc, char **argv)
{
    requests = argc > 1 ? atol(argv[1]) : 100;
    int only = argc > 2; /* one priority for all: groups REQUESTS PRIORITY, with two threads */
    int n = only ? 2 : THREADS;
    pthread_t threads[THREADS];
    for (int t = 0; t < n; t++) {
        tasks[t].priority = only ? atoi(argv[2]) : t / 2 - 1;
        tasks[t].ms = calloc((size_t)requests, sizeof(double));
        CHECK(pthread_create(&threads[t], NULL, body, &tasks[t]) == 0);
    }
    for (int t = 0; t < n; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    for (int t = 0; t < n; t++)
        for (long r = 0; r < requests; r++)
            printf("%d %.3f\n", tasks[t].priority, tasks[t].ms[r]);
    report();
    say("ok");
    return 0;
}
