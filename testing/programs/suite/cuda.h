/* CUDA's driver interface, for work.c. */
#include "../cuda/cu.h"

static CUstream stream;
static CUevent marks[2];
static CUdeviceptr on_device;

static void open_device(void)
{
    cu_start();
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    OK(cuMemAlloc_v2(&on_device, CELLS * sizeof(float)));
    OK(cuEventCreate(&marks[0], DISABLE_TIMING));
    OK(cuEventCreate(&marks[1], DISABLE_TIMING));
}

static void give(int y, int x, float a, long us)
{
    OK(launch_spin(stream, us));
    OK(launch_axpy(stream, on_device + y * sizeof a, on_device + x * sizeof a, 1, a));
    launched += 2;
}

static void drain(void)
{
    OK(cuStreamSynchronize(stream));
}

static int drained(void)
{
    OK(cuCtxSetCurrent(context));
    return cuStreamQuery(stream) == SUCCESS;
}

static void put(const float *cells)
{
    OK(cuMemcpyHtoDAsync_v2(on_device, cells, CELLS * sizeof *cells, stream));
    launched++;
    drain();
}

static void get(float *cells)
{
    OK(cuMemcpyDtoHAsync_v2(cells, on_device, CELLS * sizeof *cells, stream));
    launched++;
    drain();
}

static void mark(int n)
{
    OK(cuEventRecord(marks[n], stream));
}

static void await_mark(int n)
{
    OK(cuEventSynchronize(marks[n]));
}
