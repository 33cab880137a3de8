/* The simulated device, for work.c. */
#include "simdev.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int error_ = (call);                                                                                           \
        if (error_ != simSuccess) {                                                                                    \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, error_);                                 \
            _exit(error_ == simErrorNoDevice ? 3 : 1);                                                                 \
        }                                                                                                              \
    } while (0)

static simStream stream;
static simEvent marks[2];
static float *on_device, *on_host;

/* SUITE_DEVICE says which of several devices. */
static void open_device(void)
{
    const char *device = getenv("SUITE_DEVICE");
    OK(simSetDevice(device ? atoi(device) : 0));
    OK(simStreamCreate(&stream));
    OK(simMalloc((void **)&on_device, CELLS * sizeof *on_device));
    OK(simHostAlloc((void **)&on_host, CELLS * sizeof *on_host));
    OK(simEventCreate(&marks[0]));
    OK(simEventCreate(&marks[1]));
}

static void give(int y, int x, float a, long us)
{
    simKernel kernel = { .op = simOpAxpy, .count = 1, .duration_ns = (uint64_t)us * 1000, .x = on_device + x,
                         .y = on_device + y, .a = a };
    OK(simLaunchKernel(&kernel, stream));
    launched++;
}

static void drain(void)
{
    OK(simStreamSynchronize(stream));
}

static int drained(void)
{
    return simStreamQuery(stream) == simSuccess;
}

static void put(const float *cells)
{
    memcpy(on_host, cells, CELLS * sizeof *cells);
    OK(simMemcpyAsync(on_device, on_host, CELLS * sizeof *cells, stream));
    launched++;
    drain();
}

static void get(float *cells)
{
    OK(simMemcpyAsync(on_host, on_device, CELLS * sizeof *cells, stream));
    launched++;
    drain();
    memcpy(cells, on_host, CELLS * sizeof *cells);
}

static void mark(int n)
{
    OK(simEventRecord(marks[n], stream));
}

static void await_mark(int n)
{
    OK(simEventSynchronize(marks[n]));
}
