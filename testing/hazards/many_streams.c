/* Threads with streams of their own, all at once: many_streams THREADS STREAMS ROUNDS. After the line "ready" and a line on
 * stdin each stream gets a kernel in each round. */
#include "hazard.h"
#include <pthread.h>

static long streams, rounds;
static pthread_barrier_t made, go;

static void *body(void *arg)
{
    (void)arg;
    struct work *w = calloc((size_t)streams, sizeof *w);
    CHECK(w);
    for (long s = 0; s < streams; s++)
        start_work(&w[s], 0);
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&go);
    for (long round = 0; round < rounds; round++)
        for (long s = 0; s < streams; s++)
            launch(&w[s], 1);
    for (long s = 0; s < streams; s++)
        end_work(&w[s]);
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
