// What the device launches itself: kernels by kernels (dynamic parallelism), and a graph by a kernel of another graph.
// Prints one line a check; the counts are known.
#include <cstdio>
#include <cuda_runtime.h>

#define OK(call) \
    do { \
        cudaError_t result = (call); \
        if (result != cudaSuccess) { \
            printf("%s gave %d %s\n", #call, result, cudaGetErrorName(result)); \
            return 1; \
        } \
    } while (0)

enum { ROUNDS = 200, PARENTS = 4, CHILDREN = 2, THREADS = 32 };

__global__ void count(int *cell) { atomicAdd(cell, 1); }

__global__ void launches(int *cell) {
    for (int child = 0; child < CHILDREN; child++)
        count<<<1, THREADS>>>(cell);
}

__global__ void launches_graph(cudaGraphExec_t graph) { cudaGraphLaunch(graph, cudaStreamGraphFireAndForget); }

static int read(int *cell) {
    int value = -1;
    cudaMemcpy(&value, cell, sizeof value, cudaMemcpyDeviceToHost);
    cudaMemset(cell, 0, sizeof value);
    return value;
}

static int by_kernels(int *cell) {
    for (int round = 0; round < ROUNDS; round++)
        launches<<<PARENTS, 1>>>(cell);
    OK(cudaDeviceSynchronize());
    printf("by kernels %d of %d\n", read(cell), ROUNDS * PARENTS * CHILDREN * THREADS);
    return 0;
}

static int by_graphs(int *cell) {
    cudaStream_t stream;
    cudaGraph_t inner, outer;
    cudaGraphExec_t device, host;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    count<<<1, THREADS, 0, stream>>>(cell);
    OK(cudaStreamEndCapture(stream, &inner));
    OK(cudaGraphInstantiate(&device, inner, cudaGraphInstantiateFlagDeviceLaunch));
    OK(cudaGraphUpload(device, stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launches_graph<<<1, 1, 0, stream>>>(device);
    OK(cudaStreamEndCapture(stream, &outer));
    OK(cudaGraphInstantiate(&host, outer, 0));
    for (int round = 0; round < ROUNDS; round++) {
        OK(cudaGraphLaunch(host, stream));
        OK(cudaStreamSynchronize(stream));
    }
    printf("by graphs %d of %d\n", read(cell), ROUNDS * THREADS);
    return 0;
}

int main() {
    int *cell;
    OK(cudaMalloc(&cell, sizeof *cell));
    OK(cudaMemset(cell, 0, sizeof *cell));
    return by_kernels(cell) | by_graphs(cell);
}
