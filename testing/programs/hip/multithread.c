/* Several threads, each with a stream and its own last error, under launches that overlap. */
#include "hip.h"

#define N 2000
#define THREADS 4
#define ROUNDS 50

static int right[THREADS];

static void *work(void *argument)
{
    int me = (int)(intptr_t)argument;
    hipStream_t stream = 0;
    float *x = 0, *y = 0, *host = malloc(N * sizeof *host);
    OK(hipStreamCreateWithPriority(&stream, 1, me % 3 - 1));
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    OK(run_fill(x, N, 1, stream));
    OK(run_fill(y, N, me, stream));
    for (int i = 0; i < ROUNDS; i++) {
        OK(run_axpy(2, x, y, N, stream));
    }
    OK(hipMemcpyAsync(host, y, N * sizeof *y, DEVICE_TO_HOST, stream));
    OK(hipStreamSynchronize(stream));
    right[me] = all_are(host, N, me + 2 * ROUNDS);
    /* An error of this thread alone. */
    if (me == 1 && hipSetDevice(1000) != INVALID_DEVICE) {
        right[me] = 0;
    }
    right[me] &= hipGetLastError() == (me == 1 ? INVALID_DEVICE : SUCCESS);
    OK(hipFree(x));
    OK(hipFree(y));
    OK(hipStreamDestroy(stream));
    free(host);
    return 0;
}

int main(void)
{
    need_device();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], 0, work, (void *)(intptr_t)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], 0);
    }
    for (int i = 0; i < THREADS; i++) {
        check_that(right[i], "thread %d", i);
    }
    CHECKS_DONE;
}
