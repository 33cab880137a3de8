/* Launches on the CUDA driver by itself, through a runtime as libcudart is, and through a chain of libraries that ends in a
 * vendor's: chain_cuda OWN RUNTIME VENDOR launches, in turns. Without words it does what it is told by lines, "own N",
 * "runtime N", "vendor N", "sync" and "end", each answered. The sum of what the kernels added is checked. */
#include "../cuda/cu.h"

struct launch {
    void *function, **arguments;
};

int stage1(const void *kernel, void *stream);
int runtime_launch(const void *kernel, void *stream);

/* So many launches of each kind, in turns. */
static long turns(struct launch *l, CUstream stream, long own, long runtime, long vendor)
{
    long all = own + runtime + vendor;
    while (own > 0 || runtime > 0 || vendor > 0) {
        if (own-- > 0)
            OK(cuLaunchKernel(axpy, 1, 1, 1, 32, 1, 1, 0, stream, l->arguments, NULL));
        if (runtime-- > 0)
            OK(runtime_launch(l, stream));
        if (vendor-- > 0)
            OK(stage1(l, stream));
    }
    return all;
}

/* As lines tell. */
static long told(struct launch *l, CUstream stream)
{
    char line[64], what[32];
    long n = 0, all = 0;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%31s %ld", what, &n) >= 1 && strcmp(what, "end")) {
        if (!strcmp(what, "sync"))
            OK(cuStreamSynchronize(stream));
        else
            all += turns(l, stream, strcmp(what, "own") ? 0 : n, strcmp(what, "runtime") ? 0 : n,
                         strcmp(what, "vendor") ? 0 : n);
        printf("%s 0\n", what);
        fflush(stdout);
    }
    return all;
}

int main(int argc, char **argv)
{
    if (argc != 1 && argc != 4)
        return 2;
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
    long all = 0;
    if (argc == 4)
        all = turns(&l, stream, atol(argv[1]), atol(argv[2]), atol(argv[3]));
    else
        all = told(&l, stream);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&got, sum, 4));
    CHECK("every launch ran once", got == (float)all);
    CHECKS_DONE;
}
