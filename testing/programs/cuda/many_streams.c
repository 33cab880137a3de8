/* Threads with streams of their own, all at once: many_streams THREADS STREAMS ROUNDS. After the line "ready" and a line on stdin each
 * stream gets a kernel in each round; what each computes is checked. */
#include "cu.h"

enum { N = 4 };

static long streams, rounds;
static pthread_barrier_t made, go;
static int wrong;

static void *works(void *unused)
{
    CUstream *s = calloc((size_t)streams, sizeof *s);
    CUdeviceptr x;
    float back[N];
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&x, sizeof back * (size_t)streams));
    for (long i = 0; i < streams; i++) {
        OK(cuStreamCreate(&s[i], NON_BLOCKING));
        OK(launch_fill(s[i], x + sizeof back * (size_t)i, N, 1));
    }
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&go);
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < streams; i++)
            OK(launch_axpy(s[i], x + sizeof back * (size_t)i, x + sizeof back * (size_t)i, N, 1));
    for (long i = 0; i < streams; i++) {
        OK(cuMemcpyDtoHAsync_v2(back, x + sizeof back * (size_t)i, sizeof back, s[i]));
        OK(cuStreamSynchronize(s[i]));
        if (back[0] != (float)(1L << rounds) || back[N - 1] != back[0])
            __atomic_store_n(&wrong, 1, __ATOMIC_SEQ_CST);
        OK(cuStreamDestroy_v2(s[i]));
    }
    OK(cuMemFree_v2(x));
    free(s);
    return unused;
}

int main(int argc, char **argv)
{
    char line[80];
    if (argc != 4)
        return 2;
    long threads = atol(argv[1]);
    streams = atol(argv[2]);
    rounds = atol(argv[3]);
    cu_start();
    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    pthread_barrier_init(&made, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&go, NULL, (unsigned)threads + 1);
    for (long i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, works, NULL);
    pthread_barrier_wait(&made);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    pthread_barrier_wait(&go);
    for (long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    CHECK("every stream has what its kernels come to", !wrong);
    return 0;
}
