/* Kernels that note when they ran, by the GPU's own clock, which all programs on it share.
 *
 *   stamp run --us D --steps-per-us N [--base-us B] [--kernels K] [--period-us P] [--secs S]
 *   stamp idle --secs S
 *
 * run gives K kernels of D µs every P µs, for S seconds, and waits for them by a synchronising call. Each block of a kernel notes
 * %globaltimer at its begin and end; what counts is the first begin and the last end. It prints READY, waits for a line, and then
 * prints {"kernels":…,"begin":…,"end":…} (seconds of the monotonic clock) and a line {"spans":[[begin,end],…]} in ns of the GPU's
 * clock: where the kernels of one request follow each other within 2 µs, they are one span. idle launches one kernel and
 * does nothing more. Steps are work, not time, as in flat.c, which finds --steps-per-us. */
#include "gpu.h"

static const char STAMP[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry stamp(.param .u64 record, .param .u64 sums, .param .u32 steps)\n{\n"
    "    .reg .u64 %r, %a, %o, %c;\n    .reg .u32 %n, %x, %i, %b;\n    .reg .pred %p, %q;\n"
    "    ld.param.u64 %r, [record];\n    ld.param.u64 %a, [sums];\n    ld.param.u32 %n, [steps];\n"
    "    mov.u32 %i, %tid.x;\n    setp.ne.u32 %q, %i, 0;\n    @%q bra work;\n"
    /* The least time is the greatest complement, so that a record begins as zeros. */
    "    mov.u64 %c, %globaltimer;\n    not.b64 %c, %c;\n    red.global.max.u64 [%r], %c;\n"
    "work:\n    mov.u32 %x, 1;\n    setp.eq.u32 %p, %n, 0;\n    @%p bra end;\n"
    "loop:\n    mad.lo.u32 %x, %x, 1664525, 1013904223;\n    sub.u32 %n, %n, 1;\n"
    "    setp.ne.u32 %p, %n, 0;\n    @%p bra loop;\n"
    "end:\n    bar.sync 0;\n    @%q ret;\n"
    "    mov.u32 %b, %ctaid.x;\n    mul.wide.u32 %o, %b, 4;\n    add.u64 %a, %a, %o;\n"
    "    red.global.add.u32 [%a], %x;\n"
    "    mov.u64 %c, %globaltimer;\n    red.global.max.u64 [%r+8], %c;\n    ret;\n}\n";

enum { APART_NS = 2000 };

static int by_begin(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void tell(uint64_t *spans, unsigned long count) {
    for (unsigned long i = 0; i < count; i++) spans[2 * i] = ~spans[2 * i];
    qsort(spans, count, 2 * sizeof *spans, by_begin);
    const char *comma = "";
    printf("{\"spans\":[");
    for (unsigned long i = 0; i < count;) {
        uint64_t begin = spans[2 * i], end = spans[2 * i + 1];
        for (i++; i < count && spans[2 * i] <= end + APART_NS; i++)
            if (spans[2 * i + 1] > end) end = spans[2 * i + 1];
        printf("%s[%llu,%llu]", comma, (unsigned long long)begin, (unsigned long long)end);
        comma = ",";
    }
    printf("]}\n");
}

static int run(int argc, char **argv, CUfunction stamp, CUstream stream) {
    uint32_t steps = steps_for(argc, argv, option(argc, argv, "--us", 1000));
    double period = option(argc, argv, "--period-us", 20000) / 1e6, secs = option(argc, argv, "--secs", 10);
    unsigned long kernels = (unsigned long)option(argc, argv, "--kernels", 4), count = 0;
    unsigned long room = (unsigned long)(secs / period + 2) * kernels;
    CUdeviceptr records;
    CHECK(cuMemAlloc_v2(&records, room * 2 * sizeof(uint64_t)));
    CHECK(cuMemsetD32_v2(records, 0, room * 4));
    CHECK(cuCtxSynchronize());
    char line[16];
    printf("READY\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 0;
    double begin = now_s(), next = begin;
    while (next < begin + secs && count + kernels <= room) {
        sleep_until(next);
        for (unsigned long k = 0; k < kernels; k++, count++) {
            CUdeviceptr record = records + count * 2 * sizeof(uint64_t);
            void *parameters[] = {&record, &gpu.sums, &steps};
            CHECK(cuLaunchKernel(stamp, gpu.blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters, NULL));
        }
        CHECK(cuStreamSynchronize(stream));
        next += period;
        if (next < now_s()) next = now_s(); /* it cannot keep up: back to back */
    }
    double end = now_s();
    uint64_t *spans = malloc((count + 1) * 2 * sizeof *spans);
    if (!spans) fail("memory", "there is none");
    CHECK(cuMemcpyDtoH_v2(spans, records, count * 2 * sizeof *spans));
    printf("{\"kernels\":%lu,\"begin\":%.6f,\"end\":%.6f}\n", count, begin, end);
    tell(spans, count);
    free(spans);
    return 0;
}

int main(int argc, char **argv) {
    static const char *const RUN[] = {"--us=", "--steps-per-us=", "--base-us=", "--kernels=", "--period-us=", "--secs=", NULL};
    static const char *const IDLE[] = {"--secs=", NULL};
    int idles = argc > 1 && !strcmp(argv[1], "idle");
    if (!idles && (argc < 2 || strcmp(argv[1], "run"))) {
        fprintf(stderr, "stamp: use run or idle\n");
        return 2;
    }
    known_options(argc, argv, idles ? IDLE : RUN);
    if (!idles) steps_for(argc, argv, 1); /* a mistake is told without a device */
    gpu_open("stamp");
    CUmodule module;
    CUfunction stamp;
    CUstream stream;
    CHECK(cuModuleLoadData(&module, STAMP));
    CHECK(cuModuleGetFunction(&stamp, module, "stamp"));
    CHECK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    spin(stream, 1);
    CHECK(cuStreamSynchronize(stream));
    if (!idles) return run(argc, argv, stamp, stream);
    printf("READY\n");
    fflush(stdout);
    sleep_until(now_s() + option(argc, argv, "--secs", 10));
    return 0;
}
