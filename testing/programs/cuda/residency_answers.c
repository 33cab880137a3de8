/* Prints what the driver answers about memory that may move, of each kind: return codes, attributes, sizes. Addresses are printed as
 * distances from the beginning of their memory, numbers of buffers as equal or not to the first answer. The same program prints the same
 * whether memory moves or not. Arguments: how often each question is asked (3), and any second one has it also make calls that no correct
 * program makes: a driver of NVIDIA's hangs or crashes. */
#include "cu.h"

enum { MIB = 1 << 20, UNIT = 2 * MIB };

#define MORE(F)                                                                                                        \
    F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                         \
    F(cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr))                                                 \
    F(cuPointerSetAttribute, (const void *, int, CUdeviceptr))                                                         \
    F(cuMemGetHandleForAddressRange, (void *, CUdeviceptr, size_t, int, uint64_t))
MORE(CU_DECLARE)

static int times = 3;
static const char *of;

static void say(const char *what, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("%s: %s: ", of, what);
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

/* Bytes of an attribute's value, and how it is printed: a number, a distance, the context, or a number of a buffer. */
static const struct {
    int which;
    const char *name;
    enum { NUMBER, DISTANCE, CONTEXT, BUFFER } kind;
} ATTRIBUTES[] = {
    {1, "context", CONTEXT},       {2, "memory type", NUMBER},  {3, "device pointer", DISTANCE}, {4, "host pointer", DISTANCE},
    {6, "sync memops", NUMBER},    {7, "buffer", BUFFER},       {8, "managed", NUMBER},          {9, "device", NUMBER},
    {10, "legacy IPC", NUMBER},    {11, "start", DISTANCE},     {12, "size", NUMBER},            {13, "mapped", NUMBER},
    {14, "handle types", NUMBER},  {15, "RDMA", NUMBER},        {16, "access", NUMBER},          {17, "pool", NUMBER},
    {18, "mapping's size", NUMBER}, {19, "mapping's start", DISTANCE}, {20, "block", BUFFER},    {21, "decompress", NUMBER},
};
enum { N = sizeof ATTRIBUTES / sizeof *ATTRIBUTES };

static uint64_t pool_handle;
static int is_pooled;

static void put(int i, const char *how, CUresult rc, uint64_t value, CUdeviceptr base, uint64_t *buffers)
{
    const char *name = ATTRIBUTES[i].name;
    char what[64];
    snprintf(what, sizeof what, "%s%s", name, how);
    if (rc != SUCCESS) {
        say(what, "rc %d", rc);
        return;
    }
    /* How a pool packs its blocks is the driver's affair. */
    if (is_pooled && ATTRIBUTES[i].which == 18) value = value >= 2 * MIB;
    if (is_pooled && ATTRIBUTES[i].which == 19) {
        say(what, "%s", value && value <= base ? "at the base or before" : "amiss");
        return;
    }
    switch (ATTRIBUTES[i].kind) {
    case DISTANCE:
        if (value) say(what, "base %+lld", (long long)(value - base));
        else say(what, "none");
        break;
    case CONTEXT: say(what, "%s", value == (uintptr_t)context ? "ours" : value ? "another" : "none"); break;
    case BUFFER:
        if (!*buffers) *buffers = value;
        say(what, "%s", !value ? "none" : value == *buffers ? "as before" : "another");
        break;
    default:
        if (ATTRIBUTES[i].which == 17) say(what, "%s", !value ? "none" : value == pool_handle ? "the pool" : "another");
        else say(what, "%llu", (unsigned long long)value);
    }
}

/* Asks all about memory, at an address inside of it. */
static void ask(const char *kind, CUdeviceptr base, size_t inside)
{
    CUdeviceptr at = base + inside;
    uint64_t buffers[2] = {0, 0};
    of = kind;
    for (int round = 0; round < times; round++) {
        uint64_t values[N];
        void *places[N];
        int which[N];
        for (int i = 0; i < N; i++) {
            uint64_t value = 0;
            CUresult rc = cuPointerGetAttribute(&value, ATTRIBUTES[i].which, at);
            put(i, "", rc, value, base, &buffers[ATTRIBUTES[i].which == 20]);
            values[i] = 0;
            places[i] = &values[i];
            which[i] = ATTRIBUTES[i].which;
        }
        /* All that this driver knows: the first 14 by all. */
        CUresult rc = cuPointerGetAttributes(12, which, places, at);
        say("several", "rc %d", rc);
        for (int i = 0; i < 12; i++) put(i, " (several)", rc, values[i], base, &buffers[0]);
        CUdeviceptr begin = 0;
        size_t size = 0;
        rc = cuMemGetAddressRange_v2(&begin, &size, at);
        say("range", "rc %d, base %+lld, %zu bytes", rc, rc == SUCCESS ? (long long)(begin - base) : 0, size);
        rc = cuMemGetAddressRange_v2(NULL, NULL, at);
        say("no range", "rc %d", rc);
        say("no place", "rc %d", cuPointerGetAttribute(NULL, 2, at));
        say("no attribute", "rc %d", cuPointerGetAttribute(&begin, 1000, at));
        /* Moves have time. */
        OK(cuCtxSynchronize());
        usleep(2000);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) times = atoi(argv[1]);
    int wrong = argc > 2;
    /* A run that does not end shows where. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    CUdeviceptr plain, small, odd, rows, range, none = 0;
    CUstream stream;
    cu_start();
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    MORE(CU_LOAD)
    OK(cuStreamCreate(&stream, NON_BLOCKING));

    OK(cuMemAlloc_v2(&plain, 4 * MIB));
    ask("plain", plain, 3 * MIB);
    OK(cuMemAlloc_v2(&odd, 5 * MIB + 1024));
    ask("odd size", odd, 5 * MIB + 3);
    OK(cuMemAlloc_v2(&small, 4096));
    ask("small", small, 5);
    size_t pitch = 0;
    of = "rows";
    say("no width", "rc %d", cuMemAllocPitch_v2(&rows, &pitch, 0, 10, 4));
    say("element of 5", "rc %d", cuMemAllocPitch_v2(&rows, &pitch, 3000, 1000, 5));
    say("made", "rc %d, distance %zu", cuMemAllocPitch_v2(&rows, &pitch, 3001, 1000, 4), pitch);
    ask("rows", rows, 2 * MIB);
    ask("nothing", none, 0);
    of = "plain";
    say("freed inside", "rc %d", cuMemFree_v2(plain + UNIT));
    for (int i = 0; i < times; i++) {
        unsigned on = 1, is = 7;
        say("set a pool", "rc %d", cuPointerSetAttribute(&on, 17, plain));
        say("is synchronous", "rc %d, %u", cuPointerGetAttribute(&is, 6, plain), is & 0xff);
    }
    say("exported to nothing", "rc %d", cuMemGetHandleForAddressRange(NULL, plain, 4 * MIB, 1, 0));

    CUmemoryPool pool, own;
    OK(cuDeviceGetDefaultMemPool(&own, device));
    pool = own;
    for (int i = 0; i < 2; i++) {
        CUdeviceptr p, q;
        if (i == 1) {
            CUmemPoolProps properties = {.allocType = 1, .location = {1, device}};
            OK(cuMemPoolCreate(&pool, &properties));
            uint64_t most = UINT64_MAX;
            OK(cuMemPoolSetAttribute(pool, 4, &most));
        }
        pool_handle = (uintptr_t)pool;
        const char *name = i ? "pool" : "the device's pool";
        OK(i ? cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, stream) : cuMemAllocAsync(&p, 4 * MIB, stream));
        is_pooled = 1;
        ask(name, p, 3 * MIB);
        OK(cuMemAllocFromPoolAsync(&q, 1024, pool, stream));
        ask(i ? "small of a pool" : "small of the device's", q, 10);
        is_pooled = 0;
        of = name;
        for (int which = 1; which <= 8; which++) {
            uint64_t value = 0;
            CUresult rc = cuMemPoolGetAttribute(pool, which, &value);
            /* How much it reserves is the driver's affair. */
            if (which == 5 || which == 6) value = value >= 4 * MIB;
            else if (which == 7 || which == 8) value = value >= 4 * MIB + 1024 && value <= 4 * MIB + 4096;
            say("attribute", "%d: rc %d, %llu", which, rc, (unsigned long long)value);
        }
        say("freed inside", "rc %d", cuMemFreeAsync(p + MIB, stream));
        say("freed", "rc %d", cuMemFreeAsync(q, stream));
        say("and again", "rc %d", cuMemFreeAsync(q, stream));
        say("freed at once", "rc %d", cuMemFree_v2(p));
        say("synchronised", "rc %d", cuStreamSynchronize(stream));
        uint64_t used = 7, kept = 7;
        say("used", "rc %d, %llu", cuMemPoolGetAttribute(pool, 7, &used), (unsigned long long)used);
        OK(cuMemPoolGetAttribute(pool, 5, &kept));
        say("kept", "%d", kept > 0);
        if (i == 1) say("destroyed", "rc %d", cuMemPoolDestroy(pool));
    }
    of = "plain";
    say("freed in order", "rc %d", cuMemFreeAsync(odd, stream));
    if (wrong) say("and again", "rc %d", cuMemFreeAsync(odd, stream));
    say("synchronised", "rc %d", cuStreamSynchronize(stream));

    CUmemAllocationProp properties = {.type = 1, .location = {1, device}}, found;
    CUmemAccessDesc both = {.location = {1, device}, .flags = 3};
    uint64_t handle, again = 0, flags = 0;
    of = "mapped";
    OK(cuMemAddressReserve(&range, 4 * UNIT, 0, 0, 0));
    ask("reserved", range, 0);
    OK(cuMemCreate(&handle, 2 * UNIT, &properties, 0));
    OK(cuMemMap(range, 2 * UNIT, 0, handle, 0));
    OK(cuMemSetAccess(range, 2 * UNIT, &both, 1));
    ask("mapped", range, UNIT + 5);
    for (int i = 0; i < times; i++) {
        memset(&found, 0, sizeof found);
        CUresult rc = cuMemGetAllocationPropertiesFromHandle(&found, handle);
        say("properties", "rc %d, %d %d %d", rc, found.type, found.requestedHandleTypes, found.location.id);
        rc = cuMemRetainAllocationHandle(&again, (void *)(range + 5));
        say("retained", "rc %d, %s", rc, again == handle ? "as before" : "another");
        rc = cuMemGetAccess(&flags, &both.location, range + UNIT);
        say("access", "rc %d, %d", rc, (int)flags);
        say("released", "rc %d", cuMemRelease(again));
        say("addresses freed in use", "rc %d", cuMemAddressFree(range, 4 * UNIT));
        say("freed plainly", "rc %d", cuMemFree_v2(range));
        say("half unmapped", "rc %d", cuMemUnmap(range, UNIT));
        usleep(2000);
    }
    say("unmapped", "rc %d", cuMemUnmap(range, 2 * UNIT));
    say("released", "rc %d", cuMemRelease(handle));
    if (wrong) say("and again", "rc %d", cuMemRelease(handle));
    if (wrong) say("mapped after that", "rc %d", cuMemMap(range, 2 * UNIT, 0, handle, 0));
    say("addresses freed", "rc %d", cuMemAddressFree(range, 4 * UNIT));
    say("freed", "rc %d", cuMemFree_v2(plain));
    say("freed", "rc %d", cuMemFree_v2(rows));
    say("freed", "rc %d", cuMemFree_v2(small));
    ask("freed", plain, 0);
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    return 0;
}
