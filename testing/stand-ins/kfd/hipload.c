/* Launches kernels through HIP, 32 and a wait, over and over. Understands "count" and "end", prints "ready" and then
 * CLOCK_MONOTONIC in ns after each wait; see load.c. At its end: "launched PID N". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint32_t x, y, z;
} dim3;

int hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
int hipStreamSynchronize(void *stream);
uint64_t fakehip_done(void);

static atomic_uint_fast64_t launched;
static atomic_bool over;

static void *work(void *unused)
{
    (void)unused;
    static const char kernel;
    const dim3 one = {1, 1, 1};
    while (!over) {
        for (int i = 0; i < 32; i++) {
            if (hipLaunchKernel(&kernel, one, one, NULL, 0, NULL)) {
                puts("failed: hipLaunchKernel");
                exit(1);
            }
            launched++;
        }
        hipStreamSynchronize(NULL);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
    }
    return NULL;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "count\n")) {
            uint64_t done = fakehip_done();
            printf("given %llu taken %llu\n", (unsigned long long)launched, (unsigned long long)done);
        }
    }
    over = true;
    pthread_join(thread, NULL);
    printf("launched %d %llu\n", getpid(), (unsigned long long)launched);
    return 0;
}
