/* Events: recorded, waited for, timed. */
#include "cu.h"

enum { LONG_US = 50000 };

int main(void)
{
    cu_start();
    CUstream a, b;
    CUevent start, end, quiet, unused;
    CUdeviceptr at;
    float ms = -1;
    volatile uint64_t *stamps = pinned(64, &at);
    OK(cuStreamCreate(&a, NON_BLOCKING));
    OK(cuStreamCreate(&b, NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&quiet, DISABLE_TIMING));
    OK(cuEventCreate(&unused, 0));
    OK(launch_stamp(a, at)); /* the first launch may have to load */
    OK(cuStreamSynchronize(a));

    GIVES("an event never recorded is complete", SUCCESS, cuEventQuery(unused));
    GIVES("and not waited for", SUCCESS, cuEventSynchronize(unused));
    GIVES("but has no time", INVALID_HANDLE, cuEventElapsedTime(&ms, unused, unused));

    OK(cuEventRecord(start, a));
    OK(launch_spin(a, LONG_US));
    /* Not ready, however long this thread is held up before it asks. */
    stamps[3] = 0;
    OK(cuStreamWaitValue32_v2(a, at + 24, 1, WAIT_EQ));
    OK(cuEventRecord(end, a));
    GIVES("recorded behind a long kernel: not ready", NOT_READY, cuEventQuery(end));
    GIVES("nor is the time", NOT_READY, cuEventElapsedTime(&ms, start, end));
    stamps[3] = 1;
    GIVES("synchronize", SUCCESS, cuEventSynchronize(end));
    GIVES("query", SUCCESS, cuEventQuery(end));
    GIVES("elapsed time", SUCCESS, cuEventElapsedTime(&ms, start, end));
    CHECK("is at least the kernel's", ms >= LONG_US / 1000.0 * 0.99);
    OK(cuEventRecord(quiet, a));
    OK(cuEventSynchronize(quiet));
    GIVES("an event without timing has none", INVALID_HANDLE, cuEventElapsedTime(&ms, start, quiet));

    stamps[0] = stamps[1] = 0;
    OK(launch_spin(a, LONG_US));
    OK(launch_stamp(a, at));
    OK(cuEventRecord(quiet, a));
    OK(cuStreamWaitEvent(b, quiet, 0));
    OK(launch_stamp(b, at + 8));
    OK(cuStreamSynchronize(b));
    CHECK("a stream waits for another by an event", stamps[0] && stamps[1] >= stamps[0]);

    /* A wait is for the record before it. */
    stamps[0] = stamps[1] = 0;
    OK(cuEventRecord(quiet, b));
    OK(cuStreamWaitEvent(b, quiet, 0));
    volatile uint32_t *word = (volatile uint32_t *)&stamps[2];
    *word = 0;
    OK(cuStreamWaitValue32_v2(a, at + 16, 1, WAIT_EQ));
    OK(launch_stamp(a, at));
    OK(cuEventRecord(quiet, a));
    OK(launch_stamp(b, at + 8));
    OK(cuStreamSynchronize(b));
    CHECK("a later record is not waited for", stamps[1] != 0 && stamps[0] == 0);
    *word = 1;
    OK(cuStreamSynchronize(a));

    /* There and back a hundred times. */
    for (int i = 0; i < 100; i++) {
        OK(launch_stamp(a, at));
        OK(cuEventRecord(start, a));
        OK(cuStreamWaitEvent(b, start, 0));
        OK(launch_stamp(b, at + 8));
        OK(cuEventRecord(end, b));
        OK(cuStreamWaitEvent(a, end, 0));
    }
    OK(cuStreamSynchronize(a));
    CHECK("two streams in turns", stamps[1] >= stamps[0]);

    OK(launch_spin(a, LONG_US));
    OK(cuEventRecord(quiet, a));
    OK(cuStreamWaitEvent(b, quiet, 0));
    GIVES("an event destroyed while it is waited for", SUCCESS, cuEventDestroy_v2(quiet));
    OK(launch_stamp(b, at + 8));
    GIVES("is still waited for", SUCCESS, cuStreamSynchronize(b));
    GIVES("so the first is done", SUCCESS, cuStreamQuery(a));
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    OK(cuEventDestroy_v2(unused));
    CHECKS_DONE;
}
