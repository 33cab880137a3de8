/* Keeps a GPU busy until SIGTERM, and checks that nothing of what it launched was lost.
 *
 *   rival KERNEL_US COUNT PERIOD_US
 *
 * Every PERIOD_US it launches COUNT kernels of KERNEL_US each, on all multiprocessors, and waits for them; a period
 * of 0 is back to back, with two batches in flight. Says "rival: ready" on stderr after the first batch. */

#define _GNU_SOURCE
#include <signal.h>
#include <time.h>

#include "cuda_driver.h"

enum { MULTIPROCESSORS = 16, THREADS = 512, BLOCKS_EACH = 4 };

static volatile sig_atomic_t ended;

static void on_signal(int number) {
    (void)number;
    ended = 1;
}

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void sleep_until(uint64_t us) {
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    while (!ended && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

static uint64_t number(const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > 100000000) {
        fprintf(stderr, "rival: %s is not a number from 0 to 100000000\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: rival KERNEL_US COUNT PERIOD_US\n");
        return 2;
    }
    uint64_t ns = number(argv[1]) * 1000, kernels = number(argv[2]), period = number(argv[3]);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);

    begin();
    DRIVER(cuMemAlloc_v2, device_ptr *, size_t);
    DRIVER(cuMemsetD32_v2, device_ptr, unsigned, size_t);
    DRIVER(cuMemcpyDtoH_v2, void *, device_ptr, size_t);
    DRIVER(cuStreamCreate, void **, unsigned);
    DRIVER(cuStreamSynchronize, void *);
    DRIVER(cuEventCreate, void **, unsigned);
    DRIVER(cuEventRecord, void *, void *);
    DRIVER(cuEventSynchronize, void *);
    DRIVER(cuDeviceGetAttribute, int *, int, int);
    launch_fn *launch = (launch_fn *)driver_function("cuLaunchKernel");
    void *spin = load_kernel(SPIN_PTX, "spin"), *stream, *events[2];
    device_ptr counter;
    int processors;
    MUST(cuDeviceGetAttribute(&processors, MULTIPROCESSORS, 0));
    MUST(cuMemAlloc_v2(&counter, 4));
    MUST(cuMemsetD32_v2(counter, 0, 1));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuEventCreate(&events[0], 2));
    MUST(cuEventCreate(&events[1], 2));

    void *parameters[] = {&counter, &ns};
    unsigned blocks = (unsigned)processors * BLOCKS_EACH;
    uint32_t launched = 0;
    uint64_t next = now_us();
    for (unsigned batch = 0; !ended; batch++) {
        for (uint64_t i = 0; i < kernels; i++, launched++)
            MUST(launch(spin, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
        MUST(cuEventRecord(events[batch % 2], stream));
        if (period) {
            MUST(cuEventSynchronize(events[batch % 2]));
            next += period;
            if (next < now_us())
                next = now_us();
            else
                sleep_until(next);
        } else if (batch) {
            MUST(cuEventSynchronize(events[(batch + 1) % 2]));
        }
        if (batch == 0)
            fprintf(stderr, "rival: ready\n");
    }
    MUST(cuStreamSynchronize(stream));
    uint32_t counted;
    MUST(cuMemcpyDtoH_v2(&counted, counter, 4));
    int right = counted == launched * blocks;
    printf("rival %u kernels %s\n", launched, right ? "right" : "WRONG");
    return right ? 0 : 1;
}
