/* Threads with streams of their own, all at once: many_streams THREADS STREAMS ROUNDS. After the line "ready" and a line on
 * stdin each stream gets a kernel in each round. */
#include "hazard.h"
#include <pthread.h>

static long streams, rounds;
static pthread_barrier_t made, go;

/* Memory is taken and given back once a thread: to give it back waits for every stream. */
static void *body(void *arg)
{
    (void)arg;
    struct work *w = calloc((size_t)streams, sizeof *w);
    float *y, *got;
    size_t bytes = sizeof w->expected * (size_t)streams;
    CHECK(w);
    SIM(simMalloc((void **)&y, bytes));
    SIM(simHostAlloc((void **)&got, bytes));
    for (long s = 0; s < streams; s++) {
        w[s].y = y + s * ELEMENTS;
        SIM(simStreamCreateWithPriority(&w[s].stream, 0));
        SIM(simMemsetAsync(w[s].y, 0, sizeof w->expected, w[s].stream));
    }
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&go);
    for (long round = 0; round < rounds; round++)
        for (long s = 0; s < streams; s++)
            launch(&w[s], 1);
    for (long s = 0; s < streams; s++) {
        SIM(simMemcpyAsync(got + s * ELEMENTS, w[s].y, sizeof w->expected, w[s].stream));
        SIM(simStreamSynchronize(w[s].stream));
        for (int i = 0; i < ELEMENTS; i++)
            CHECK(fabsf(got[s * ELEMENTS + i] - w[s].expected[i]) <= 1e-3f * (1 + fabsf(w[s].expected[i])));
        SIM(simStreamDestroy(w[s].stream));
    }
    SIM(simHostFree(got));
    SIM(simFree(y));
    free(w);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    long threads = atol(argv[1]);
    streams = atol(argv[2]);
    rounds = atol(argv[3]);
    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    CHECK(thread);
    CHECK(pthread_barrier_init(&made, NULL, (unsigned)threads + 1) == 0);
    CHECK(pthread_barrier_init(&go, NULL, (unsigned)threads + 1) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&thread[i], NULL, body, NULL) == 0);
    pthread_barrier_wait(&made);
    say("ready");
    await_line();
    pthread_barrier_wait(&go);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    report();
    say("ok");
    return 0;
}
