/* Memory that may leave the device at any time: several allocations, streams, threads and a graph, with contents that are
 * known. Prints the same whether memory moves or not. Arguments: rounds (60). */
#include "cu.h"

enum { MIB = 1 << 20, THREADS = 3, WINDOW = 4096, LARGE = 34 * MIB, MIDDLE = 4 * MIB };

/* First elements of the windows in a thread's array: its ends, and where two chunks meet in the first thread's, at 32 MiB. */
static size_t place(int self, int which)
{
    size_t end = (self ? MIDDLE : LARGE) / 4;
    return which == 0 ? 0 : which == 1 ? end - MIB / 2 - WINDOW / 2 : end - WINDOW;
}

static int rounds = 60;
static int wrong[THREADS];

/* One window of the thread's array gets a value by a kernel, by a copy from the host, or by a copy from another window;
 * each window is read back and compared with what it must hold. */
static void *work(void *argument)
{
    int self = (int)(intptr_t)argument;
    CUstream stream;
    CUdeviceptr array;
    float held[3] = {0, 0, 0}, *memory = malloc(WINDOW * sizeof *memory);
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    OK(cuMemAlloc_v2(&array, self ? MIDDLE : LARGE));
    for (int i = 0; i < 3; i++) {
        OK(launch_fill(stream, array + 4 * place(self, i), WINDOW, 0));
    }
    for (int round = 0; round < rounds; round++) {
        int which = (round + self) % 3, other = (which + 1) % 3;
        CUdeviceptr at = array + 4 * place(self, which), from = array + 4 * place(self, other);
        float value = (float)(round * THREADS + self);
        switch (round % 4) {
        case 0:
            OK(launch_fill(stream, at, WINDOW, value));
            held[which] = value;
            break;
        case 1:
            for (int i = 0; i < WINDOW; i++) memory[i] = value;
            OK(cuMemcpyHtoDAsync_v2(at, memory, WINDOW * 4, stream));
            OK(cuStreamSynchronize(stream));
            held[which] = value;
            break;
        case 2:
            OK(cuMemcpyDtoDAsync_v2(at, from, WINDOW * 4, stream));
            held[which] = held[other];
            break;
        default:
            OK(launch_axpy(stream, at, from, WINDOW, 2));
            held[which] += 2 * held[other];
            break;
        }
        OK(cuStreamSynchronize(stream));
        for (int i = 0; i < 3; i++) wrong[self] += !all_are(array + 4 * place(self, i), WINDOW, held[i]);
        /* Chunks come and go meanwhile. */
        CUdeviceptr passing;
        OK(cuMemAlloc_v2(&passing, MIDDLE));
        OK(launch_fill(stream, passing + MIDDLE - WINDOW * 4, WINDOW, value));
        OK(cuStreamSynchronize(stream));
        wrong[self] += !all_are(passing + MIDDLE - WINDOW * 4, WINDOW, value);
        OK(cuMemFree_v2(passing));
    }
    OK(cuMemFree_v2(array));
    OK(cuStreamDestroy_v2(stream));
    free(memory);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr a, b, none;
    if (argc > 1) rounds = atoi(argv[1]);
    cu_start();
    GIVES("no memory at all", INVALID_VALUE, cuMemAlloc_v2(&none, 0));
    GIVES("too much", OUT_OF_MEMORY, cuMemAlloc_v2(&none, (size_t)1 << 50));
    GIVES("memory", SUCCESS, cuMemAlloc_v2(&a, MIDDLE));
    GIVES("more of it", SUCCESS, cuMemAlloc_v2(&b, 2 * MIB));
    GIVES("free inside of it", INVALID_VALUE, cuMemFree_v2(a + MIB));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    OK(launch_fill(stream, a, WINDOW, 1));
    OK(launch_fill(stream, b, WINDOW, 1));
    OK(cuStreamSynchronize(stream));
    /* None of many captures may meet the wait for the device that precedes a move. */
    for (int i = 0; i < 10 * rounds; i++) {
        OK(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
        OK(launch_axpy(stream, a, b, WINDOW, 1));
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    OK(launch_axpy(stream, a, b, WINDOW, 1));
    OK(cuMemcpyDtoDAsync_v2(a + 2 * MIB, a, WINDOW * 4, stream));
    OK(cuStreamEndCapture(stream, &graph));
    GIVES("a graph", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
    int launched = 0, kept = 1;
    for (; launched < rounds; launched++) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        kept &= all_are(a, WINDOW, (float)launched + 2) && all_are(a + 2 * MIB, WINDOW, (float)launched + 2);
    }
    CHECK("the graph's contents", kept);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK("a thread's contents", wrong[i] == 0);
    CHECK("the graph's contents at the end", all_are(a, WINDOW, (float)rounds + 1));
    GIVES("free", SUCCESS, cuMemFree_v2(a));
    GIVES("free it again", INVALID_VALUE, cuMemFree_v2(a));
    GIVES("the other", SUCCESS, cuMemFree_v2(b));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    CHECK("the context is released", 1);
    CHECKS_DONE;
}
