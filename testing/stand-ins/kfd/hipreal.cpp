// For AMD's real HIP runtime, compiled by hipcc: launches kernels, 32 and a wait, over and over. Understands "count" (which
// tells what was launched and what was waited for) and "end"; prints "ready" and then CLOCK_MONOTONIC in ns after each
// wait. At its end: "launched PID N".
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <unistd.h>

__global__ void kernel(float *out)
{
    out[threadIdx.x] = 1;
}

static std::atomic<unsigned long> launched, done;
static std::atomic<bool> over;

static void check(hipError_t error, const char *what)
{
    if (error != hipSuccess) {
        printf("failed: %s: %d\n", what, error);
        exit(1);
    }
}

static void work()
{
    float *memory;
    hipStream_t stream;
    check(hipMalloc((void **)&memory, 4096), "hipMalloc");
    check(hipStreamCreate(&stream), "hipStreamCreate");
    while (!over) {
        for (int i = 0; i < 32; i++) {
            kernel<<<1, 64, 0, stream>>>(memory);
            check(hipGetLastError(), "launch");
            launched++;
        }
        check(hipStreamSynchronize(stream), "hipStreamSynchronize");
        done = launched.load();
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
    }
    check(hipStreamDestroy(stream), "hipStreamDestroy");
}

int main()
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    std::thread thread(work);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "count\n")) {
            printf("given %lu taken %lu\n", launched.load(), done.load());
        }
    }
    over = true;
    thread.join();
    printf("launched %d %lu\n", getpid(), launched.load());
    return 0;
}
