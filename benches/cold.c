/* cold N KIB STREAM: N times cuLaunchKernel on the stream of that handle, each after KIB KiB of other data and a quarter as
 * much of other code were touched, as programs do between their launches. With `alloc` in place of STREAM: cuMemAlloc with
 * cuMemFree. Prints TSC cycles of one call or pair, a line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static int by_value(const void *a, const void *b) {
    unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 4) return fputs("usage: cold N KIB STREAM|alloc\n", stderr), 2;
    size_t n = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10) << 10;
    void *stream = (void *)strtoul(argv[3], NULL, 16), *context;
    int allocates = !strcmp(argv[3], "alloc");
    unsigned long long address;
    unsigned long long *cycles = calloc(n, sizeof *cycles);
    volatile char *data = malloc(bytes + 1), sum = 0;
    unsigned char *code = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!cycles || !data || code == MAP_FAILED) return perror("cold"), 3;
    memset((void *)data, 1, bytes);
    memset(code, 0xc3, bytes); /* each byte returns */
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0)) return fputs("cold: no device\n", stderr), 3;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < bytes; k += 64) sum += data[k];
        for (size_t k = 0; k < bytes / 4; k += 64) ((void (*)(void))(code + k))();
        unsigned core;
        unsigned long long begin = __rdtscp(&core);
        _mm_lfence();
        if (allocates) cuMemAlloc_v2(&address, 1024), cuMemFree_v2(address);
        else cuLaunchKernel(&context, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        cycles[i] = __rdtscp(&core) - begin;
    }
    qsort(cycles, n, sizeof *cycles, by_value);
    double mean = 0; /* of the lower nine tenths: the rest is the machine's */
    for (size_t i = 0; i < n * 9 / 10; i++) mean += (double)cycles[i] / (double)(n * 9 / 10);
    printf("{\"p10\":%llu,\"median\":%llu,\"mean\":%.1f}\n", cycles[n / 10], cycles[n / 2], mean);
    return 0;
}
