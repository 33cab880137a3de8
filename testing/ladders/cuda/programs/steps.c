/* A small program for tools to look at: a chain of dependent kernels, copies both ways, one line of output.
 *
 *   steps [CHAIN]       how many kernels; 20 if not given */

#include "cuda_driver.h"

enum { WORDS = 4096 };

int main(int argc, char **argv) {
    char *end = "";
    long chain = argc > 1 ? strtol(argv[1], &end, 10) : 20;
    if (argc > 2 || *end || chain < 1 || chain > 1000000) {
        fprintf(stderr, "usage: steps [CHAIN]    1 to 1000000 kernels\n");
        return 2;
    }
    begin();
    DRIVER(cuMemAlloc_v2, device_ptr *, size_t);
    DRIVER(cuMemFree_v2, device_ptr);
    DRIVER(cuMemcpyHtoD_v2, device_ptr, const void *, size_t);
    DRIVER(cuMemcpyDtoH_v2, void *, device_ptr, size_t);
    DRIVER(cuStreamCreate, void **, unsigned);
    DRIVER(cuStreamSynchronize, void *);
    DRIVER(cuStreamDestroy_v2, void *);
    launch_fn *launch = (launch_fn *)driver_function("cuLaunchKernel");
    void *kernel = load_kernel(STEP_PTX, "step"), *stream;
    static uint32_t words[WORDS];
    device_ptr data;
    unsigned count = WORDS;
    MUST(cuMemAlloc_v2(&data, sizeof words));
    MUST(cuMemcpyHtoD_v2(data, words, sizeof words));
    MUST(cuStreamCreate(&stream, 1));
    for (unsigned factor = 1; factor <= (unsigned)chain; factor++) {
        void *parameters[] = {&data, &count, &factor};
        MUST(launch(kernel, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(words, data, sizeof words));
    int wrong = 0;
    for (unsigned i = 0; i < WORDS; i++)
        wrong += words[i] != stepped(i, 1, (uint32_t)chain);
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuMemFree_v2(data));
    printf("steps %ld %s\n", chain, wrong ? "WRONG" : "right");
    return wrong != 0;
}
