/* groups SECONDS [PRIORITY]: six threads, two of each stream priority -1, 0, 1 (or one of the one named), each with
 * requests of four kernels of 500 us and 4 to 12 ms of its own between, all to the same end, so that none is ever without
 * the others. Prints a line a request: stream priority and latency in ms. */
#include "hazard.h"
#include <pthread.h>

enum { THREADS = 6, KERNELS = 4, MOST = 20000 };

static struct task {
    int priority;
    double *ms;
    long requests;
} tasks[THREADS];
static long long over;

static void *body(void *arg)
{
    struct task *task = arg;
    struct work w;
    start_work(&w, task->priority);
    long long begin;
    unsigned random = (unsigned)(task - tasks) + 1;
    while ((begin = now_ns()) < over && task->requests < MOST) {
        for (int k = 0; k < KERNELS; k++)
            launch(&w, 500);
        SIM(simStreamSynchronize(w.stream));
        task->ms[task->requests++] = (double)(now_ns() - begin) / 1e6;
        /* Not in step with the others. */
        sleep_ms(4 + (random = random * 1103515245 + 12345) / 65536 % 9);
    }
    end_work(&w);
    return NULL;
}

int main(int argc, char **argv)
{
    over = now_ns() + (long long)((argc > 1 ? atof(argv[1]) : 3) * 1e9);
    int only = argc > 2;
    int n = only ? 1 : THREADS;
    pthread_t threads[THREADS];
    for (int t = 0; t < n; t++) {
        tasks[t].priority = only ? atoi(argv[2]) : t / 2 - 1;
        tasks[t].ms = calloc(MOST, sizeof(double));
        CHECK(pthread_create(&threads[t], NULL, body, &tasks[t]) == 0);
    }
    for (int t = 0; t < n; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    for (int t = 0; t < n; t++)
        for (long r = 0; r < tasks[t].requests; r++)
            printf("%d %.3f\n", tasks[t].priority, tasks[t].ms[r]);
    report();
    say("ok");
    return 0;
}
