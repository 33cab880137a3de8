/* Launches on the CUDA driver by itself, through a runtime as libcudart is, and through a chain of libraries that ends in a
 * vendor's: chain_cuda OWN RUNTIME VENDOR launches, in turns. The sum of what the kernels added is checked. */
#include "../cuda/c/cu.h"

struct launch {
    void *function, **arguments;
};

int stage1(const void *kernel, void *stream);
int runtime_launch(const void *kernel, void *stream);

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long own = atol(argv[1]), runtime = atol(argv[2]), vendor = atol(argv[3]);
    cu_start();
    CUstream stream;
    CUdeviceptr one, sum;
    float first = 1, got = 0;
    unsigned n = 1;
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    OK(cuMemAlloc_v2(&one, 4));
    OK(cuMemAlloc_v2(&sum, 4));
    OK(cuMemcpyHtoD_v2(one, &first, 4));
    OK(cuMemcpyHtoD_v2(sum, &got, 4));
    void *arguments[] = { &n, &first, &one, &sum };
    struct launch l = { axpy, arguments };
    long all = own + runtime + vendor;
    while (own > 0 || runtime > 0 || vendor > 0) {
        if (own-- > 0)
            OK(cuLaunchKernel(axpy, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
        if (runtime-- > 0)
            OK(runtime_launch(&l, stream));
        if (vendor-- > 0)
            OK(stage1(&l, stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&got, sum, 4));
    CHECK("every launch ran once", got == (float)all);
    CHECKS_DONE;
}
