/* Many threads: each with streams of its own, and all with the same ones. */
#include "cu.h"

enum { THREADS = 8, ROUNDS = 200, N = 64 };

static CUdeviceptr shared_sum, one;
static CUstream shared_stream;
static int right[THREADS];

static void *works(void *number)
{
    int me = (int)(intptr_t)number;
    CUstream s;
    CUevent event;
    CUdeviceptr x;
    float back[N];
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&s, me % 2 ? NON_BLOCKING : 0));
    OK(cuEventCreate(&event, DISABLE_TIMING));
    OK(cuMemAlloc_v2(&x, sizeof back));
    right[me] = 1;
    for (int i = 0; i < ROUNDS; i++) {
        OK(launch_fill(s, x, N, (float)me));
        OK(launch_axpy(s, x, x, N, 1));
        OK(cuEventRecord(event, s));
        OK(launch_axpy(shared_stream, shared_sum, one, 1, 1));
        if (i % 10 == 0) {
            OK(launch(empty, i % 20 ? NULL : PER_THREAD, NULL));
            OK(cuEventSynchronize(event));
        }
        if (i % 50 == 0) {
            OK(cuMemcpyDtoHAsync_v2(back, x, sizeof back, s));
            OK(cuStreamSynchronize(s));
            right[me] &= back[0] == 2.0f * me && back[N - 1] == 2.0f * me;
        }
    }
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
    OK(cuEventDestroy_v2(event));
    OK(cuMemFree_v2(x));
    return NULL;
}

int main(void)
{
    cu_start();
    pthread_t threads[THREADS];
    float sum;
    OK(cuMemAlloc_v2(&shared_sum, 4));
    OK(cuMemAlloc_v2(&one, 4));
    OK(cuStreamCreate(&shared_stream, NON_BLOCKING));
    OK(launch_fill(shared_stream, shared_sum, 1, 0));
    OK(launch_fill(shared_stream, one, 1, 1));
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, works, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        check_that(right[i], "thread %d", i);
    }
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(&sum, shared_sum, 4));
    CHECK("all launches of all threads in one stream", sum == THREADS * ROUNDS);
    CHECKS_DONE;
}
