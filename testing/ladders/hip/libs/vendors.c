/* The last of the seven: does the jobs as vendors' libraries do, with handles, workspaces, helper streams and events. */
#include "../../../programs/hip/hip.h"
#include "chain.h"

#define M 256

struct handle;
int fakeblas_create(struct handle **);
int fakeblas_set_stream(struct handle *, void *);
int fakeblas_sgemm(struct handle *, unsigned, unsigned, unsigned, float *, float *, float *);
int fakeblas_destroy(struct handle *);

static __thread float host[M * M];

/* Ones times ones: 256.0 each. */
static int blas(hipStream_t stream)
{
    struct handle *handle = 0;
    float *a = 0, *b = 0, *c = 0;
    OK(fakeblas_create(&handle));
    OK(fakeblas_set_stream(handle, stream));
    OK(hipMalloc(&a, sizeof host));
    OK(hipMalloc(&b, sizeof host));
    OK(hipMalloc(&c, sizeof host));
    OK(run_fill(a, M * M, 1, stream));
    OK(run_fill(b, M * M, 1, stream));
    OK(fakeblas_sgemm(handle, M, M, M, a, b, c));
    OK(hipMemcpyAsync(host, c, sizeof host, DEVICE_TO_HOST, stream));
    OK(hipStreamSynchronize(stream));
    OK(fakeblas_destroy(handle));
    CHECK("BLAS-like: 256.0 everywhere", all_are(host, M * M, 256));
    OK(hipFree(a));
    OK(hipFree(b));
    OK(hipFree(c));
    return 0;
}

/* A filter of ones over ones, tried twice with a time for each, as one that looks for the fastest way does. */
static int convolution(hipStream_t stream)
{
    unsigned size = 64, filter = 5, out = size - filter + 1;
    float *x = 0, *w = 0, *y = 0, ms = -1;
    hipEvent_t start = 0, stop = 0;
    OK(hipMalloc(&x, size * size * sizeof *x));
    OK(hipMalloc(&w, filter * filter * sizeof *w));
    OK(hipMalloc(&y, out * out * sizeof *y));
    OK(hipEventCreate(&start));
    OK(hipEventCreate(&stop));
    OK(run_fill(x, size * size, 1, stream));
    OK(run_fill(w, filter * filter, 2, stream));
    for (int i = 0; i < 2; i++) {
        OK(hipEventRecord(start, stream));
        OK(launch_as_compiled(&conv2d, BLOCKS(out * out), 256, stream, ARGS(&size, &size, &filter, &filter, &x, &w, &y)));
        OK(hipEventRecord(stop, stream));
        OK(hipEventSynchronize(stop));
        OK(hipEventElapsedTime(&ms, start, stop));
    }
    OK(hipMemcpy(host, y, out * out * sizeof *y, DEVICE_TO_HOST));
    CHECK("convolution-like: 50.0 everywhere", ms > 0 && all_are(host, out * out, 50));
    OK(hipEventDestroy(start));
    OK(hipEventDestroy(stop));
    OK(hipFree(x));
    OK(hipFree(w));
    OK(hipFree(y));
    return 0;
}

/* Many small steps over two buffers, half of them captured into a graph. */
static int transform(hipStream_t stream)
{
    unsigned n = 1024;
    float *x = 0, *y = 0;
    hipStream_t own = 0;
    hipGraph_t graph = 0;
    hipGraphExec_t exec = 0;
    OK(hipMalloc(&x, n * sizeof *x));
    OK(hipMalloc(&y, n * sizeof *y));
    OK(hipStreamCreateWithFlags(&own, 1));
    OK(run_fill(x, n, 1, stream));
    OK(run_fill(y, n, 1, stream));
    OK(hipStreamSynchronize(stream));
    for (int i = 0; i < 4; i++) { /* 1 1, 2 1, 2 3, 5 3, 5 8 */
        OK(i % 2 ? run_axpy(1, x, y, n, stream) : run_axpy(1, y, x, n, stream));
    }
    OK(hipStreamSynchronize(stream));
    OK(hipStreamBeginCapture(own, 1));
    OK(run_axpy(1, y, x, n, own));
    OK(run_axpy(1, x, y, n, own));
    OK(hipStreamEndCapture(own, &graph));
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    OK(hipGraphLaunch(exec, stream)); /* 13 21 */
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, y, n * sizeof *y, DEVICE_TO_HOST));
    CHECK("FFT-like: 21.0 everywhere", all_are(host, n, 21));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
    OK(hipStreamDestroy(own));
    OK(hipFree(x));
    OK(hipFree(y));
    return 0;
}

/* A ring of four ranks on streams of high priority, each step waiting for its neighbour's by an event. */
static int collective(hipStream_t stream)
{
    enum { RANKS = 4 };
    unsigned n = 512;
    float *part[RANKS];
    hipStream_t own[RANKS];
    hipEvent_t done[RANKS], ready = 0;
    OK(hipEventCreateWithFlags(&ready, 2));
    for (int i = 0; i < RANKS; i++) {
        OK(hipMalloc(&part[i], n * sizeof *part[i]));
        OK(hipStreamCreateWithPriority(&own[i], 1, -1));
        OK(hipEventCreateWithFlags(&done[i], 2));
        OK(run_fill(part[i], n, 1 << i, stream));
    }
    OK(hipEventRecord(ready, stream));
    for (int i = 0; i < RANKS; i++) {
        OK(hipStreamWaitEvent(own[i], i ? done[i - 1] : ready, 0));
        if (i) {
            OK(run_axpy(1, part[i - 1], part[i], n, own[i]));
        }
        OK(hipEventRecord(done[i], own[i]));
    }
    for (int i = 0; i < RANKS - 1; i++) {
        OK(hipStreamWaitEvent(own[i], done[RANKS - 1], 0));
        OK(hipMemcpyAsync(part[i], part[RANKS - 1], n * sizeof *part[i], DEVICE_TO_DEVICE, own[i]));
        OK(hipEventRecord(done[i], own[i]));
        OK(hipStreamWaitEvent(stream, done[i], 0));
    }
    OK(hipStreamSynchronize(stream));
    int right = 1;
    for (int i = 0; i < RANKS; i++) {
        OK(hipMemcpy(host, part[i], n * sizeof *host, DEVICE_TO_HOST));
        right &= all_are(host, n, 15);
        OK(hipEventDestroy(done[i]));
        OK(hipStreamDestroy(own[i]));
        OK(hipFree(part[i]));
    }
    CHECK("collective-like: the sum of all at each", right);
    OK(hipEventDestroy(ready));
    return 0;
}

int vendors(enum job job, void *stream)
{
    int result = 0;
    switch (job) {
    case BLAS: result = blas(stream); break;
    case CONVOLUTION: result = convolution(stream); break;
    case TRANSFORM: result = transform(stream); break;
    case COLLECTIVE: result = collective(stream); break;
    }
    return result ? result : checks_failed;
}
