/* Stream memory operations: streams held by words in memory that the host, or another stream, writes. */
#include "cu.h"

static CUdeviceptr words, at;
static volatile uint64_t *page, *stamps;
static CUstream a, b;

static volatile uint32_t *word32(int i) { return (volatile uint32_t *)(page + i); }
static CUdeviceptr address(int i) { return words + 8u * (unsigned)i; }

/* A stream held by this wait stays so, and goes on once `release` is stored. */
static void holds32(const char *what, uint32_t held, uint32_t value, unsigned how, uint32_t release)
{
    *word32(0) = held;
    stamps[0] = 0;
    __sync_synchronize();
    OK(cuStreamWaitValue32_v2(a, address(0), value, how));
    OK(launch_stamp(a, at));
    /* What another stream does meanwhile shows that time goes by. */
    OK(launch_spin(b, 5000));
    OK(cuStreamSynchronize(b));
    int was_held = cuStreamQuery(a) == NOT_READY && stamps[0] == 0;
    *word32(0) = release;
    __sync_synchronize();
    check_that(was_held && cuStreamSynchronize(a) == SUCCESS && stamps[0] != 0, "%s", what);
}

static void passes32(const char *what, uint32_t word, uint32_t value, unsigned how)
{
    *word32(0) = word;
    __sync_synchronize();
    OK(cuStreamWaitValue32_v2(a, address(0), value, how));
    check_that(cuStreamSynchronize(a) == SUCCESS, "%s", what);
}

int main(void)
{
    cu_start();
    page = shared_page(&words);
    stamps = pinned(64, &at);
    OK(cuStreamCreate(&a, NON_BLOCKING));
    OK(cuStreamCreate(&b, NON_BLOCKING));
    OK(launch_stamp(a, at));
    OK(launch_spin(b, 1));
    OK(cuCtxSynchronize());

    holds32("equal", 1, 2, WAIT_EQ, 2);
    holds32("greater or equal", 4, 5, WAIT_GEQ, 6);
    holds32("greater or equal is cyclic", 0xfffffff0, 0x10, WAIT_GEQ, 0x10);
    holds32("and", 0x10, 0x101, WAIT_AND, 0x100);
    holds32("nor", 0xfffffffe, 1, WAIT_NOR, 0);
    passes32("equal at once", 7, 7, WAIT_EQ);
    passes32("greater or equal at once", 0x80000010, 0x7fffffff, WAIT_GEQ);

    page[1] = 1;
    OK(cuStreamWaitValue64_v2(a, address(1), 1ull << 40, WAIT_GEQ));
    OK(launch_spin(b, 5000));
    OK(cuStreamSynchronize(b));
    GIVES("64 bits: held", NOT_READY, cuStreamQuery(a));
    page[1] = 1ull << 40;
    GIVES("64 bits: released", SUCCESS, cuStreamSynchronize(a));

    OK(cuStreamWriteValue32_v2(a, address(2), 0xabcd, 0));
    OK(cuStreamWriteValue64_v2(a, address(3), 0x123456789abcull, 0));
    OK(cuStreamSynchronize(a));
    CHECK("writes", *word32(2) == 0xabcd && page[3] == 0x123456789abcull);

    /* One stream lets another go. */
    *word32(4) = 0;
    stamps[0] = stamps[1] = 0;
    OK(cuStreamWaitValue32_v2(a, address(4), 1, WAIT_EQ));
    OK(launch_stamp(a, at));
    OK(launch_spin(b, 5000));
    OK(launch_stamp(b, at + 8));
    OK(cuStreamWriteValue32_v2(b, address(4), 1, 0));
    OK(cuStreamSynchronize(a));
    CHECK("one stream releases another", stamps[1] != 0 && stamps[0] >= stamps[1]);

    CUstreamBatchMemOpParams batch[4] = {
        { .operation = 2, .address = address(5), .value = 5 },
        { .operation = 1, .address = address(5), .value = 5, .flags = WAIT_EQ },
        { .operation = 5, .address = address(6), .value = 6ull << 32 },
        { .operation = 4, .address = address(6), .value = 6ull << 32, .flags = WAIT_EQ },
    };
    GIVES("a batch", SUCCESS, cuStreamBatchMemOp_v2(a, 4, batch, 0));
    OK(cuStreamSynchronize(a));
    CHECK("all of it", *word32(5) == 5 && page[6] == 6ull << 32);

    /* A gate in front of each of many kernels, opened and closed by the host. */
    *word32(7) = 1;
    for (int i = 0; i < 200; i++) {
        if (i == 100) {
            *word32(7) = 0;
        }
        OK(cuStreamWaitValue32_v2(a, address(7), 1, WAIT_AND));
        OK(launch_stamp(a, at));
        if (i == 150) {
            *word32(7) = 1;
        }
    }
    GIVES("gates in front of many kernels", SUCCESS, cuStreamSynchronize(a));

    GIVES("a comparison that there is not", INVALID_VALUE, cuStreamWaitValue32_v2(a, address(0), 0, 9));
    GIVES("an address that is not aligned", INVALID_VALUE, cuStreamWaitValue32_v2(a, address(0) + 2, 0, 0));
    GIVES("register twice", ALREADY_REGISTERED, cuMemHostRegister_v2((void *)page, 4096, REGISTER_PORTABLE));
    GIVES("unregister", SUCCESS, cuMemHostUnregister((void *)page));
    GIVES("unregister twice", NOT_REGISTERED, cuMemHostUnregister((void *)page));
    CHECKS_DONE;
}
