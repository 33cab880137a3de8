/* Goes on and on: steady [US] [BATCH]. Batches of kernels of US microseconds, back to back: each batch is given before
 * the one before it is complete, so that the device always has something to do. After each batch a line with the time of
 * CLOCK_MONOTONIC in ns. Lines on stdin: "count" is answered with "given N done M" also while launches are held; "end",
 * or the end of stdin, ends it: the result is checked. */
#include "hip.h"
#include "../../lib/steady.h"
#include <time.h>

enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, MAPPED = 2 };

static unsigned long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t us = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    long batch = argc > 2 ? atol(argv[2]) : 8;
    hipStream_t s;
    hipEvent_t reached[2];
    float *cells, *at;
    pthread_t listener;
    need_device();
    OK(hipHostMalloc(&cells, 2 * sizeof *cells, MAPPED));
    OK(hipHostGetDevicePointer(&at, cells, 0));
    cells[0] = 0;
    cells[1] = 1;
    done = cells;
    OK(hipStreamCreateWithFlags(&s, NON_BLOCKING));
    OK(hipEventCreateWithFlags(&reached[0], DISABLE_TIMING));
    OK(hipEventCreateWithFlags(&reached[1], DISABLE_TIMING));
    puts("ready");
    fflush(stdout);
    pthread_create(&listener, NULL, listens, NULL);
    for (long n = 0; !atomic_load(&ending); n++) {
        for (long i = 0; i < batch; i++) {
            OK(run_spin(us * 1000, s));
            OK(run_axpy(1, at + 1, at, 1, s));
            atomic_fetch_add(&given, 1);
        }
        OK(hipEventRecord(reached[n % 2], s));
        if (n > 0) {
            OK(hipEventSynchronize(reached[(n + 1) % 2]));
        }
        printf("%llu\n", now_ns());
        fflush(stdout);
    }
    pthread_join(listener, NULL);
    OK(hipStreamSynchronize(s));
    CHECK("every kernel has run once", (long)*done == atomic_load(&given));
    CHECKS_DONE;
}
