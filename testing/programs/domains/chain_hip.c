/* Launches on HIP by itself and through a chain of libraries that ends in a vendor's, as its words say, each answered by a
 * line: own=N, vendor=N, on=N (by the vendor on the stream that it made), init, init_plain, reset, stream, domain,
 * vendor_domain, set=D, push=D, pop, wait (for a line on stdin). The sum of what the kernels added is checked. */
#include "../hip/hip.h"
#define XSCHED_WEAK
#include "xsched/domain.h"

struct launch {
    void *function, **arguments;
};

int stage1(const void *kernel, void *stream);
int vendor_init(void);
int vendor_init_plain(void);
int vendor_reset(void);
int vendor_domain(void);
int vendor_stream(void **stream);

static struct launch l;
static hipStream_t own_stream, made;
static long all;

static long several(long n, int by_vendor, hipStream_t stream)
{
    for (long i = 0; i < n; i++) {
        OK(by_vendor ? stage1(&l, stream) : launch_as_compiled(l.function, 1, 32, stream, l.arguments));
    }
    OK(hipStreamSynchronize(stream));
    all += n;
    return 0;
}

static long answer(const char *word, long n)
{
    XSchedulingDomain domain;
    char line[32];
    if (!strcmp(word, "own"))
        return several(n, 0, own_stream);
    if (!strcmp(word, "vendor"))
        return several(n, 1, own_stream);
    if (!strcmp(word, "on"))
        return several(n, 1, made);
    if (!strcmp(word, "init"))
        return vendor_init();
    if (!strcmp(word, "init_plain"))
        return vendor_init_plain();
    if (!strcmp(word, "reset"))
        return vendor_reset();
    if (!strcmp(word, "stream"))
        return vendor_stream((void **)&made);
    if (!strcmp(word, "domain"))
        return XGetSchedulingDomain(&domain) == 0 ? (long)domain : -1;
    if (!strcmp(word, "vendor_domain"))
        return vendor_domain();
    if (!strcmp(word, "set"))
        return XSetSchedulingDomain((XSchedulingDomain)n);
    if (!strcmp(word, "push"))
        return XPushSchedulingDomain((XSchedulingDomain)n);
    if (!strcmp(word, "pop"))
        return XPopSchedulingDomain();
    if (!strcmp(word, "wait"))
        return fgets(line, sizeof line, stdin) ? 0 : 1;
    exit(2);
}

int main(int argc, char **argv)
{
    need_device();
    float *one, *sum, first = 1, got = 0;
    unsigned n = 1;
    OK(hipStreamCreateWithFlags(&own_stream, 1));
    OK(hipMalloc(&one, sizeof *one));
    OK(hipMalloc(&sum, sizeof *sum));
    OK(hipMemcpy(one, &first, sizeof *one, HOST_TO_DEVICE));
    OK(hipMemcpy(sum, &got, sizeof *sum, HOST_TO_DEVICE));
    l = (struct launch){ &axpy, ARGS(&n, &first, &one, &sum) };
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value)
            *value++ = 0;
        printf("%s %ld\n", argv[i], answer(argv[i], value ? atol(value) : 0));
        fflush(stdout);
    }
    OK(hipMemcpy(&got, sum, sizeof got, DEVICE_TO_HOST));
    CHECK("every launch ran once", got == (float)all);
    CHECKS_DONE;
}
