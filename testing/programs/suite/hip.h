/* HIP, for work.c. */
#include "../hip/hip.h"

enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, TO_DEVICE = 1, TO_HOST = 2 };

static hipStream_t stream;
static hipEvent_t marks[2];
static float *on_device;

static void open_device(void)
{
    need_device();
    OK(hipStreamCreateWithFlags(&stream, NON_BLOCKING));
    OK(hipMalloc(&on_device, CELLS * sizeof *on_device));
    OK(hipEventCreateWithFlags(&marks[0], DISABLE_TIMING));
    OK(hipEventCreateWithFlags(&marks[1], DISABLE_TIMING));
}

static void give(int y, int x, float a, long us)
{
    OK(run_spin((uint64_t)us * 1000, stream));
    OK(run_axpy(a, on_device + x, on_device + y, 1, stream));
    launched += 2;
}

static void drain(void)
{
    OK(hipStreamSynchronize(stream));
}

static int drained(void)
{
    return hipStreamQuery(stream) == SUCCESS;
}

static void put(const float *cells)
{
    OK(hipMemcpyAsync(on_device, cells, CELLS * sizeof *cells, TO_DEVICE, stream));
    launched++;
    drain();
}

static void get(float *cells)
{
    OK(hipMemcpyAsync(cells, on_device, CELLS * sizeof *cells, TO_HOST, stream));
    launched++;
    drain();
}

static void mark(int n)
{
    OK(hipEventRecord(marks[n], stream));
}

static void await_mark(int n)
{
    OK(hipEventSynchronize(marks[n]));
}
