/* HIP, for the programs beside. */
#include "../hip/hip.h"

#include <xsched/hip/hal.h>

typedef hipStream_t native;

static float *cells;

static void open_device(void)
{
    need_device();
    OK(hipHostMalloc((void **)&cells, CELLS * sizeof *cells, 0));
    memset(cells, 0, CELLS * sizeof *cells);
    cells[CELLS - 1] = 1;
}

static native new_native(void)
{
    hipStream_t stream;
    OK(hipStreamCreateWithFlags(&stream, 1));
    return stream;
}

/* A kernel of so many microseconds, and then one that adds 1 to a cell. */
static int give(native stream, long us, int cell)
{
    int result = run_spin((uint64_t)us * 1000, stream);
    return result ? result : run_axpy(1, cells + CELLS - 1, cells + cell, 1, stream);
}

static int drain(native stream)
{
    return hipStreamSynchronize(stream);
}

static XResult handle_of(HwQueueHandle *hwq, native stream)
{
    return HipQueueCreate(hwq, stream);
}

enum { HIGHEST_LEVEL = 2, MAYBE_LEVEL = 2 };

/* The default stream of the thread's context. */
#define DEFAULT_STREAM ((native)NULL)

/* One that is hooked under the preload. */
#define A_FUNCTION "hipLaunchKernel"
