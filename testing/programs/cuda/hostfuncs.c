/* Host functions and callbacks: in their stream's order, on a thread of the driver's, without the driver's functions. */
#include "cu.h"
#include <sched.h>

static int ran[8], next_place;
static CUresult inside = -1;
static pthread_t where;

static void note(void *place)
{
    *(int *)place = ++next_place;
    where = pthread_self();
}

static void calls_driver(void *unused)
{
    (void)unused;
    CUdeviceptr p;
    inside = cuMemAlloc_v2(&p, 16);
}

static void callback(CUstream stream, CUresult status, void *out)
{
    *(CUstream *)out = status == SUCCESS ? stream : NULL;
}

static volatile int gate_open;

static void wait_for_gate(void *unused)
{
    (void)unused;
    while (!gate_open) {
        sched_yield();
    }
}

int main(void)
{
    cu_start();
    CUstream s, t;
    CUdeviceptr at;
    volatile uint64_t *stamps = pinned(64, &at);
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuStreamCreate(&t, NON_BLOCKING));
    OK(launch_spin(s, 10000));
    GIVES("host function", SUCCESS, cuLaunchHostFunc(s, note, &ran[0]));
    OK(launch_stamp(s, at));
    OK(cuLaunchHostFunc(s, note, &ran[1]));
    OK(cuStreamSynchronize(s));
    CHECK("in order", ran[0] == 1 && ran[1] == 2 && stamps[0] != 0);
    CHECK("on another thread", !pthread_equal(where, pthread_self()));

    CUstream seen = NULL;
    GIVES("callback", SUCCESS, cuStreamAddCallback(s, callback, &seen, 0));
    OK(cuStreamSynchronize(s));
    CHECK("with its stream", seen == s);

    OK(cuLaunchHostFunc(s, calls_driver, NULL));
    OK(cuStreamSynchronize(s));
    CHECK("the driver refuses calls by a host function", inside == NOT_PERMITTED);

    /* It holds its stream, and only that. */
    stamps[0] = stamps[1] = 0;
    OK(cuLaunchHostFunc(s, wait_for_gate, NULL));
    OK(launch_stamp(s, at));
    OK(launch_stamp(t, at + 8));
    OK(cuStreamSynchronize(t));
    CHECK("a waiting host function holds its stream alone", stamps[0] == 0 && stamps[1] != 0);
    GIVES("which is not ready", NOT_READY, cuStreamQuery(s));
    gate_open = 1;
    GIVES("until it returns", SUCCESS, cuStreamSynchronize(s));
    CHECK("then the stream goes on", stamps[0] >= stamps[1]);

    next_place = 0;
    OK(cuLaunchHostFunc(NULL, note, &ran[2]));
    OK(cuStreamSynchronize(NULL));
    CHECK("in the legacy stream", ran[2] == 1);
    CHECKS_DONE;
}
