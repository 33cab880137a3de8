/* CUDA, for the programs beside. */
#include "../cuda/cu.h"

#include <xsched/cuda/hal.h>

typedef CUstream native;

static float *cells;
static CUdeviceptr cells_at;

static void open_device(void)
{
    cu_start();
    cells = pinned(CELLS * sizeof *cells, &cells_at);
    cells[CELLS - 1] = 1;
}

static native new_native(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    return stream;
}

/* A kernel of so many microseconds, and then one that adds 1 to a cell. */
static int give(native stream, long us, int cell)
{
    int result = launch_spin(stream, us);
    return result ? result : launch_axpy(stream, cells_at + cell * sizeof *cells, cells_at + (CELLS - 1) * sizeof *cells, 1, 1);
}

static int drain(native stream)
{
    return cuStreamSynchronize(stream);
}

static XResult handle_of(HwQueueHandle *hwq, native stream)
{
    XResult result = CudaQueueCreate(hwq, stream);
    HwQueueHandle again;
    if (result == kXSchedSuccess && (CudaQueueGet(&again, stream) != kXSchedSuccess || again != *hwq)) {
        return kXSchedErrorUnknown;
    }
    return result;
}

/* Level 3 is the hardware's time slices, which only a preload can set. */
enum { HIGHEST_LEVEL = 2, MAYBE_LEVEL = 3 };

/* The default stream of the thread's context. */
#define DEFAULT_STREAM ((native)NULL)

/* One that is hooked under the preload. */
#define A_FUNCTION "cuLaunchKernel"
