/* Facts about memory that moves between device and host behind fixed addresses (docs/internals/memory.md).
 *
 *   residency PART        measures one part; each result is a line of JSON. Parts:
 *     facts               attributes of device and driver, granularities, cost of host chunks, their place in the accounts
 *     host                kernels through addresses backed by host memory: bandwidth, atomics, bulk copies
 *     cpu                 the processor's access to such addresses
 *     graph               a graph captured before memory moves, launched before, while and after it is away
 *     copies              copies and memsets through such addresses
 *     attributes          what cuPointerGetAttribute answers for each kind of memory
 *     spin, gate          calls that wait for a running kernel, or for a stream that is held at a device gate
 *     beneath             memory moved beneath commands that are held at a device gate
 *     cost [MIB]          cost of each call, and of moving MIB (2048) out, in and both at once
 *     fault CASE          an access to unmapped memory: kernel, copy, memset or noaccess
 *
 * A part ends with 0 once it has measured, with 3 if the driver refuses what it needs. Commands that are held are let go
 * by a thread, 1 s after a call began to wait for them. At most 5 GiB of device memory and of host memory are taken. */
#include "gpu.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>

typedef unsigned long long CUhandle;

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    int type, handle_types;
    CUmemLocation location;
    void *windows;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

enum { PINNED = 1, HANDLE_NONE = 0, HANDLE_FD = 1, READ_WRITE = 3 };
enum { AT_DEVICE = 1, AT_HOST = 2, AT_NUMA = 3 };
enum { NOT_READY = 600, CAPTURE_GLOBAL = 0, WAIT_EQ = 1, REGISTER_MAPPED = 3 };
enum { ATTRIBUTE_HOST_NUMA_ID = 134 };

#define MORE(f)                                                                                                        \
    f(cuDriverGetVersion, (int *))                                                                                     \
    f(cuDeviceGetName, (char *, int, CUdevice))                                                                        \
    f(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                           \
    f(cuMemAddressFree, (CUdeviceptr, size_t))                                                                         \
    f(cuMemCreate, (CUhandle *, size_t, const CUmemAllocationProp *, unsigned long long))                              \
    f(cuMemRelease, (CUhandle))                                                                                        \
    f(cuMemMap, (CUdeviceptr, size_t, size_t, CUhandle, unsigned long long))                                           \
    f(cuMemUnmap, (CUdeviceptr, size_t))                                                                               \
    f(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                                          \
    f(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, int))                                     \
    f(cuMemRetainAllocationHandle, (CUhandle *, void *))                                                               \
    f(cuMemFree_v2, (CUdeviceptr))                                                                                     \
    f(cuMemFreeHost, (void *))                                                                                         \
    f(cuMemHostRegister_v2, (void *, size_t, unsigned))                                                                \
    f(cuMemHostUnregister, (void *))                                                                                   \
    f(cuMemGetInfo_v2, (size_t *, size_t *))                                                                           \
    f(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                                                 \
    f(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                                               \
    f(cuPointerSetAttribute, (const void *, int, CUdeviceptr))                                                         \
    f(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                            \
    f(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                   \
    f(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                             \
    f(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                              \
    f(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                                                     \
    f(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                 \
    f(cuStreamQuery, (CUstream))                                                                                       \
    f(cuStreamDestroy_v2, (CUstream))                                                                                  \
    f(cuEventQuery, (CUevent))                                                                                         \
    f(cuEventDestroy_v2, (CUevent))

#define DECLARE(name, parameters) static CUresult(*name) parameters;
MORE(DECLARE)
#undef DECLARE


#define HEAD(target) ".version 6.4\n.target " target "\n.address_size 64\n"
/* A thread's number in %i, the number of all threads in %s; the loop over %n things begins. */
#define EACH                                                                                                           \
    "    .reg .pred %p, %q;\n    .reg .b32 %b, %t, %w;\n    .reg .b64 %i, %s, %n, %o, %x;\n"                           \
    "    mov.u32 %b, %ctaid.x;\n    mov.u32 %t, %ntid.x;\n    mov.u32 %w, %tid.x;\n"                                   \
    "    mad.lo.u32 %b, %b, %t, %w;\n    cvt.u64.u32 %i, %b;\n"                                                        \
    "    mov.u32 %b, %nctaid.x;\n    mul.wide.u32 %s, %b, %t;\n"
#define LOOP "loop:\n    setp.ge.u64 %p, %i, %n;\n    @%p bra end;\n"
#define NEXT "    add.u64 %i, %i, %s;\n    bra loop;\nend:\n"

static const char MOVING[] =
    HEAD("sm_70")
    /* Writes 16 bytes for each of `count`. */
    ".visible .entry put(.param .u64 at, .param .u64 count, .param .u32 value)\n{\n" EACH
    "    .reg .b64 %a;\n    .reg .b32 %v;\n"
    "    ld.param.u64 %a, [at];\n    ld.param.u64 %n, [count];\n    ld.param.u32 %v, [value];\n" LOOP
    "    shl.b64 %o, %i, 4;\n    add.u64 %o, %a, %o;\n    st.global.v4.u32 [%o], {%v, %v, %v, %v};\n" NEXT
    "    ret;\n}\n"
    /* Reads 16 bytes for each of `count`; each thread adds the sum of what it read to *out. */
    ".visible .entry get(.param .u64 at, .param .u64 count, .param .u64 out)\n{\n" EACH
    "    .reg .b64 %a, %u;\n    .reg .b32 %v<4>, %z;\n"
    "    ld.param.u64 %a, [at];\n    ld.param.u64 %n, [count];\n    ld.param.u64 %u, [out];\n    mov.u32 %z, 0;\n" LOOP
    "    shl.b64 %o, %i, 4;\n    add.u64 %o, %a, %o;\n    ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%o];\n"
    "    add.u32 %z, %z, %v0;\n    add.u32 %z, %z, %v1;\n    add.u32 %z, %z, %v2;\n    add.u32 %z, %z, %v3;\n" NEXT
    "    red.global.add.u32 [%u], %z;\n    ret;\n}\n"
    /* at[i] = at[i] * 1664525 + i for `count` words of 32 bits. */
    ".visible .entry step(.param .u64 at, .param .u64 count)\n{\n" EACH "    .reg .b64 %a;\n    .reg .b32 %v, %k;\n"
    "    ld.param.u64 %a, [at];\n    ld.param.u64 %n, [count];\n" LOOP
    "    shl.b64 %o, %i, 2;\n    add.u64 %o, %a, %o;\n    ld.global.u32 %v, [%o];\n    cvt.u32.u64 %k, %i;\n"
    "    mad.lo.u32 %v, %v, 1664525, %k;\n    st.global.u32 [%o], %v;\n" NEXT "    ret;\n}\n"
    /* Each of `count` adds 1 to a counter of each kind: tables of 1024 words of 8 bytes, one after the other. */
    ".visible .entry tally(.param .u64 at, .param .u64 count)\n{\n" EACH
    "    .reg .b64 %a, %e, %f;\n    .reg .b32 %v, %u, %g;\n"
    "    ld.param.u64 %a, [at];\n    ld.param.u64 %n, [count];\n" LOOP
    "    and.b64 %o, %i, 1023;\n    shl.b64 %o, %o, 3;\n    add.u64 %o, %a, %o;\n"
    "    red.global.add.u32 [%o], 1;\n"
    "    atom.global.add.u64 %e, [%o + 8192], 1;\n"
    "    red.global.add.f32 [%o + 16384], 0f3F800000;\n"
    "    atom.global.sys.add.u32 %v, [%o + 24576], 1;\n"
    "    ld.volatile.global.u64 %e, [%o + 32768];\n"
    "again:\n    add.u64 %f, %e, 1;\n    atom.global.cas.b64 %f, [%o + 32768], %e, %f;\n"
    "    setp.eq.u64 %q, %e, %f;\n    mov.u64 %e, %f;\n    @!%q bra again;\n"
    "    cvt.u32.u64 %g, %i;\n    red.global.max.u32 [%o + 40960], %g;\n"
    "    atom.global.exch.b32 %v, [%o + 49152], %g;\n" NEXT "    ret;\n}\n"
    /* Runs for so many ns. */
    ".visible .entry spin(.param .u64 ns)\n{\n    .reg .b64 %a, %n, %e;\n    .reg .pred %p;\n"
    "    ld.param.u64 %n, [ns];\n    mov.u64 %a, %globaltimer;\n"
    "loop:\n    mov.u64 %e, %globaltimer;\n    sub.u64 %e, %e, %a;\n    setp.lt.u64 %p, %e, %n;\n    @%p bra loop;\n"
    "    ret;\n}\n";

/* Hopper's bulk copies: a block of one thread brings 4 KiB into shared memory and writes them elsewhere. */
static const char BULK[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry bulk(.param .u64 from, .param .u64 to)\n{\n"
    "    .shared .align 128 .b8 kept[4096];\n    .shared .align 8 .b64 arrived;\n"
    "    .reg .b64 %f, %t, %o, %s;\n    .reg .b32 %k, %a, %b;\n    .reg .pred %p;\n"
    "    ld.param.u64 %f, [from];\n    ld.param.u64 %t, [to];\n"
    "    mov.u32 %b, %ctaid.x;\n    mul.wide.u32 %o, %b, 4096;\n    add.u64 %f, %f, %o;\n    add.u64 %t, %t, %o;\n"
    "    mov.u32 %k, kept;\n    mov.u32 %a, arrived;\n"
    "    mbarrier.init.shared::cta.b64 [%a], 1;\n    fence.proxy.async;\n"
    "    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%a], 4096;\n"
    "    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%k], [%f], 4096, [%a];\n"
    "wait:\n    mbarrier.try_wait.parity.shared::cta.b64 %p, [%a], 0;\n    @!%p bra wait;\n"
    "    cp.async.bulk.global.shared::cta.bulk_group [%t], [%k], 4096;\n"
    "    cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group 0;\n    ret;\n}\n";

enum { MIB = 1 << 20 };
static const char *part = "?";
static CUfunction put, get, step, tally, last;
static CUstream stream; /* blocks for no other one */
static CUmemLocation host_place;

/* ---- results ---------------------------------------------------------------------------------------------------- */

/* Prints one result: the members that `format` gives. */
__attribute__((format(printf, 1, 2))) static void result(const char *format, ...) {
    va_list values;
    va_start(values, format);
    printf("{\"part\":\"%s\",", part);
    vprintf(format, values);
    puts("}");
    fflush(stdout);
    va_end(values);
}

/* Name of an error, for a result. */
static const char *name_of(CUresult code) {
    const char *name = NULL;
    if (cuGetErrorName(code, &name) || !name) name = "unknown";
    return name;
}

static double gib_s(double bytes, double seconds) {
    return bytes / seconds / (1 << 30);
}

static int larger(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, larger);
    return n ? values[n / 2] : 0;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static CUmemLocation device_place(void) {
    return (CUmemLocation){AT_DEVICE, gpu.device};
}

static CUresult try_create(CUhandle *handle, size_t size, CUmemLocation place, int handle_types) {
    CUmemAllocationProp wanted = {.type = PINNED, .handle_types = handle_types, .location = place};
    return cuMemCreate(handle, size, &wanted, 0);
}

static CUhandle create(size_t size, CUmemLocation place) {
    CUhandle handle;
    check(try_create(&handle, size, place, HANDLE_NONE), place.type == AT_DEVICE ? "device chunk" : "host chunk");
    return handle;
}

static CUdeviceptr reserve(size_t size) {
    CUdeviceptr at;
    CHECK(cuMemAddressReserve(&at, size, 2 * MIB, 0, 0));
    return at;
}

static void allow(CUdeviceptr at, size_t size) {
    CUmemAccessDesc access = {device_place(), READ_WRITE};
    CHECK(cuMemSetAccess(at, size, &access, 1));
}

static void map(CUdeviceptr at, size_t size, CUhandle handle) {
    CHECK(cuMemMap(at, size, 0, handle, 0));
    allow(at, size);
}

static void unmap(CUdeviceptr at, size_t size) {
    CHECK(cuMemUnmap(at, size));
}

static void *pinned(size_t size) {
    void *memory;
    CHECK(cuMemHostAlloc(&memory, size, HOST_ALLOC_MAPPED));
    return memory;
}

/* Backs [at, at + size) by other memory with the same contents, and releases what was there. */
static CUhandle move(CUdeviceptr at, size_t size, CUhandle from, CUmemLocation to) {
    CUdeviceptr beside = reserve(size);
    CUhandle other = create(size, to);
    map(beside, size, other);
    CHECK(cuMemcpyDtoDAsync_v2(beside, at, size, stream));
    CHECK(cuStreamSynchronize(stream));
    unmap(beside, size);
    unmap(at, size);
    CHECK(cuMemRelease(from));
    map(at, size, other);
    CHECK(cuMemAddressFree(beside, size));
    return other;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static CUresult start(CUfunction function, void **parameters) {
    return cuLaunchKernel(function, gpu.blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters, NULL);
}

static void start_put(CUdeviceptr at, size_t bytes, uint32_t value) {
    uint64_t n = bytes / 16;
    if (!put) {
        CHECK(cuMemsetD32Async(at, value, bytes / 4, stream));
        return;
    }
    CHECK(start(put, (void *[]){&at, &n, &value}));
}

static void start_get(CUdeviceptr at, size_t bytes, CUdeviceptr out) {
    uint64_t n = bytes / 16;
    if (!get) {
        static uint32_t words[2 * MIB / 4];
        uint32_t sum;
        CHECK(cuMemcpyDtoHAsync_v2(&sum, out, 4, stream));
        for (size_t done = 0; done < bytes; done += sizeof words) {
            CHECK(cuMemcpyDtoHAsync_v2(words, at + done, sizeof words, stream));
            CHECK(cuStreamSynchronize(stream));
            for (size_t i = 0; i < sizeof words / 4; i++) sum += words[i];
        }
        CHECK(cuMemsetD32Async(out, sum, 1, stream));
        return;
    }
    CHECK(start(get, (void *[]){&at, &n, &out}));
}

static void start_step(CUdeviceptr at, size_t bytes) {
    uint64_t n = bytes / 4;
    if (step) CHECK(start(step, (void *[]){&at, &n}));
}

static void finish(void) {
    CHECK(cuStreamSynchronize(stream));
}

static void start_last(CUstream where, uint64_t ns) {
    CHECK(cuLaunchKernel(last, 1, 1, 1, 1, 1, 1, 0, where, (void *[]){&ns}, NULL));
}

static void open_all(void) {
    (void)gpu_open; /* wants kernels that are not needed here */
    program = "residency";
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) fail("no CUDA driver", dlerror());
#define RESOLVE(name, parameters) name = (CUresult(*) parameters)driver_function(library, #name);
    FUNCTIONS(RESOLVE)
    MORE(RESOLVE)
#undef RESOLVE
    int sms = 0, threads = 0;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&gpu.device, 0));
    CHECK(cuDeviceGetAttribute(&sms, ATTRIBUTE_SMS, gpu.device));
    CHECK(cuDeviceGetAttribute(&threads, ATTRIBUTE_THREADS_PER_SM, gpu.device));
    CHECK(cuDevicePrimaryCtxRetain(&gpu.context, gpu.device));
    CHECK(cuCtxSetCurrent(gpu.context));
    gpu.blocks = (unsigned)sms * (unsigned)(threads / BLOCK);
    CHECK(cuModuleLoadData(&module, MOVING));
    CHECK(cuModuleGetFunction(&last, module, "spin"));
    if (cuModuleGetFunction(&put, module, "put") || cuModuleGetFunction(&get, module, "get") ||
        cuModuleGetFunction(&step, module, "step") || cuModuleGetFunction(&tally, module, "tally")) {
        /* A driver that runs kernels by their names: what needs these is left out, and the rest uses memsets. */
        put = get = step = tally = NULL;
        result("\"what\":\"no kernels but spin\"");
    }
    CHECK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));

    /* The driver names the node next to the device, or -1 on machines without nodes. */
    int node = 0;
    CUhandle handle;
    cuDeviceGetAttribute(&node, ATTRIBUTE_HOST_NUMA_ID, gpu.device);
    CUmemLocation places[] = {{AT_NUMA, node < 0 ? 0 : node}, {AT_HOST, 0}};
    for (int i = 0; i < 2; i++) {
        CUresult code = try_create(&handle, 2 * MIB, places[i], HANDLE_NONE);
        if (!code) {
            CHECK(cuMemRelease(handle));
            host_place = places[i];
            return;
        }
        result("\"what\":\"no host memory\",\"location\":[%d,%d],\"answer\":\"%s\"", places[i].type, places[i].id,
               name_of(code));
    }
    /* The cost of calls and their waits can be measured without it. */
    if (!strcmp(part, "host") || !strcmp(part, "cpu")) exit(3);
    host_place = device_place();
    result("\"what\":\"device memory stands for host chunks\"");
}

/* ---- facts ------------------------------------------------------------------------------------------------------ */

/* A number in a file of /proc that begins with `key`, in KiB; -1 if there is none. */
static long kib(const char *path, const char *key) {
    char line[256];
    long value = -1;
    FILE *file = fopen(path, "r");
    while (file && value < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) sscanf(line + strlen(key), "%ld", &value);
    if (file) fclose(file);
    return value;
}

static void facts(void) {
    static const struct {
        int number;
        const char *name;
    } known[] = {{86, "host_native_atomics"},      {102, "vmm"},
                 {103, "vmm_fd"},                  {116, "rdma"},
                 {133, "mps"},                     {134, "host_numa_id"},
                 {141, "host_numa_vmm"},           {142, "host_numa_pools"},
                 {145, "host_vmm"},                {88, "pageable_access"},
                 {100, "pageable_by_page_tables"}, {89, "concurrent_managed"}};
    char device[128] = "?";
    int driver = 0;
    size_t free_bytes = 0, total = 0;
    cuDeviceGetName(device, sizeof device, gpu.device);
    cuDriverGetVersion(&driver);
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    result("\"what\":\"device\",\"name\":\"%s\",\"driver_api\":%d,\"free_mib\":%zu,\"total_mib\":%zu", device, driver,
           free_bytes / MIB, total / MIB);
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        int value = -1;
        CUresult code = cuDeviceGetAttribute(&value, known[i].number, gpu.device);
        result("\"what\":\"attribute\",\"name\":\"%s\",\"value\":%d,\"answer\":\"%s\"", known[i].name, value,
               name_of(code));
    }
    result("\"what\":\"host location in use\",\"type\":%d,\"id\":%d", host_place.type, host_place.id);
    for (int i = 0; i < 2; i++) {
        CUmemAllocationProp wanted = {.type = PINNED, .location = i ? host_place : device_place()};
        size_t least = 0, best = 0;
        CUresult code = cuMemGetAllocationGranularity(&least, &wanted, 0);
        cuMemGetAllocationGranularity(&best, &wanted, 1);
        result("\"what\":\"granularity\",\"of\":\"%s\",\"least\":%zu,\"recommended\":%zu,\"answer\":\"%s\"",
               i ? "host" : "device", least, best, name_of(code));
    }
    for (int fd = 0; fd < 2; fd++) {
        CUhandle handle;
        CUresult code = try_create(&handle, 2 * MIB, host_place, fd ? HANDLE_FD : HANDLE_NONE);
        if (!code) cuMemRelease(handle);
        result("\"what\":\"host chunk\",\"exportable\":%s,\"answer\":\"%s\"", fd ? "true" : "false", name_of(code));
    }
    /* Memory of the device is used while a chunk is on the host? And who is charged for the host's? */
    size_t before_free = 0, after_free = 0;
    long rss = kib("/proc/self/status", "VmRSS:"), free_kib = kib("/proc/meminfo", "MemAvailable:");
    CHECK(cuMemGetInfo_v2(&before_free, &total));
    CUhandle handle = create(1024l * MIB, host_place);
    CHECK(cuMemGetInfo_v2(&after_free, &total));
    result("\"what\":\"1 GiB of host chunks\",\"device_mib\":%ld,\"rss_mib\":%ld,\"available_mib\":%ld",
           ((long)before_free - (long)after_free) / MIB, (kib("/proc/self/status", "VmRSS:") - rss) / 1024,
           (kib("/proc/meminfo", "MemAvailable:") - free_kib) / 1024);
    CHECK(cuMemRelease(handle));
    for (int pass = 0; pass < 2; pass++)
        for (size_t mib = 2; mib <= 128; mib *= 4) {
            double begun = now_s();
            CUhandle kept[8];
            for (int i = 0; i < 8; i++) kept[i] = create(mib * MIB, host_place);
            double made = now_s();
            for (int i = 0; i < 8; i++) CHECK(cuMemRelease(kept[i]));
            result("\"what\":\"host chunks made\",\"pass\":%d,\"mib\":%zu,\"create_gib_s\":%.2f,\"release_gib_s\":%.2f",
                   pass, mib, gib_s(8. * mib * MIB, made - begun), gib_s(8. * mib * MIB, now_s() - made));
        }
}

/* ---- kernels through host memory -------------------------------------------------------------------------------- */

enum { TABLES = 64 * 1024, KINDS = 7 };

/* Runs `tally` over tables at this address and says which are not as they must be. */
static void atomics(CUdeviceptr at, const char *place) {
    static const char *const kinds[KINDS] = {"red.add.u32", "atom.add.u64",  "red.add.f32", "atom.sys.add.u32",
                                             "atom.cas.b64", "red.max.u32", "atom.exch.b32"};
    static uint64_t seen[TABLES / 8];
    uint64_t n = 1 << 16, each = n / 1024;
    CHECK(cuMemsetD32Async(at, 0, TABLES / 4, stream));
    finish();
    double begun = now_s();
    CHECK(start(tally, (void *[]){&at, &n}));
    finish();
    double took = now_s() - begun;
    CHECK(cuMemcpyDtoHAsync_v2(seen, at, TABLES, stream));
    finish();
    for (int kind = 0; kind < KINDS; kind++) {
        int wrong = 0;
        for (uint64_t i = 0; i < 1024; i++) {
            uint64_t value = seen[kind * 1024 + (int)i];
            float real;
            memcpy(&real, &value, sizeof real);
            wrong += kind == 2   ? real != (float)each
                     : kind == 5 ? value != n - 1024 + i
                     : kind == 6 ? (value & 1023) != i || value >= n
                                 : value != each;
        }
        result("\"what\":\"atomics\",\"memory\":\"%s\",\"kind\":\"%s\",\"wrong\":%d,\"of\":1024", place, kinds[kind],
               wrong);
    }
    result("\"what\":\"atomics' time\",\"memory\":\"%s\",\"millions_a_second\":%.2f", place,
           (double)n * KINDS / took / 1e6);
}

static void bulk(CUdeviceptr at, size_t size, CUdeviceptr to, const char *place) {
    CUmodule module;
    CUfunction function;
    CUresult code = cuModuleLoadData(&module, BULK);
    if (!code) code = cuModuleGetFunction(&function, module, "bulk");
    if (code) {
        result("\"what\":\"bulk copies\",\"memory\":\"%s\",\"answer\":\"%s\"", place, name_of(code));
        return;
    }
    uint32_t *back = malloc(size);
    if (!back) fail("malloc", strerror(errno));
    start_put(at, size, 0x51ce5);
    start_step(at, size);
    CHECK(cuMemsetD32Async(to, 0, size / 4, stream));
    finish();
    double begun = now_s();
    CHECK(cuLaunchKernel(function, (unsigned)(size / 4096), 1, 1, 1, 1, 1, 0, stream, (void *[]){&at, &to}, NULL));
    code = cuStreamSynchronize(stream);
    double took = now_s() - begun;
    size_t wrong = 0;
    if (!code) {
        CHECK(cuMemcpyDtoHAsync_v2(back, to, size, stream));
        finish();
        for (size_t i = 0; i < size / 4; i++) wrong += back[i] != 0x51ce5u * 1664525u + (uint32_t)i;
    }
    result("\"what\":\"bulk copies\",\"memory\":\"%s\",\"answer\":\"%s\",\"wrong\":%zu,\"gib_s\":%.2f", place,
           name_of(code), wrong, gib_s((double)size, took));
    free(back);
}

static void host(void) {
    size_t size = 512l * MIB;
    CUdeviceptr out, plain;
    CHECK(cuMemAlloc_v2(&out, 4096));
    CHECK(cuMemAlloc_v2(&plain, 64l * MIB));
    for (int away = 0; away < 2; away++) {
        const char *place = away ? "host" : "device";
        CUdeviceptr at = reserve(size);
        CUhandle handle = create(size, away ? host_place : device_place());
        map(at, size, handle);
        start_put(at, size, 1);
        finish();
        double writing[5], reading[5], both[5];
        uint32_t sum = 0;
        for (int i = 0; i < 5; i++) {
            double begun = now_s();
            start_put(at, size, (uint32_t)i + 2);
            finish();
            writing[i] = now_s() - begun;
            CHECK(cuMemsetD32Async(out, 0, 1, stream));
            finish();
            begun = now_s();
            start_get(at, size, out);
            finish();
            reading[i] = now_s() - begun;
            CHECK(cuMemcpyDtoHAsync_v2(&sum, out, 4, stream));
            finish();
            if (sum != (uint32_t)(size / 4 * ((unsigned)i + 2)))
                result("\"what\":\"wrong sum\",\"memory\":\"%s\",\"sum\":%u", place, sum);
            begun = now_s();
            start_step(at, size);
            finish();
            both[i] = now_s() - begun;
        }
        if (!step) goto done;
        result("\"what\":\"kernels\",\"memory\":\"%s\",\"write_gib_s\":%.2f,\"read_gib_s\":%.2f,\"update_gib_s\":%.2f",
               place, gib_s((double)size, median(writing, 5)), gib_s((double)size, median(reading, 5)),
               gib_s(2. * (double)size, median(both, 5)));
        atomics(at, place);
        bulk(at, 64l * MIB, plain, place);
    done:
        unmap(at, size);
        CHECK(cuMemRelease(handle));
        CHECK(cuMemAddressFree(at, size));
    }
}

static void cpu(void) {
    static const CUmemLocation places[] = {{AT_HOST, 0}, {AT_NUMA, 0}};
    size_t size = 2 * MIB;
    for (int i = 0; i < 2; i++) {
        CUdeviceptr at = reserve(size);
        CUhandle handle = create(size, host_place);
        map(at, size, handle);
        start_put(at, size, 77);
        finish();
        CUmemAccessDesc access = {i ? host_place : places[0], READ_WRITE};
        CUresult code = cuMemSetAccess(at, size, &access, 1);
        result("\"what\":\"access for the processor\",\"location\":%d,\"answer\":\"%s\"", access.location.type,
               name_of(code));
        if (!code) {
            volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)at;
            uint32_t read = word[5];
            word[5] = 78;
            uint32_t back = 0;
            CHECK(cuMemcpyDtoHAsync_v2(&back, at + 20, 4, stream));
            finish();
            result("\"what\":\"processor\",\"location\":%d,\"reads\":%s,\"writes\":%s", access.location.type,
                   read == 77 ? "true" : "false", back == 78 ? "true" : "false");
        }
        unmap(at, size);
        CHECK(cuMemRelease(handle));
        CHECK(cuMemAddressFree(at, size));
    }
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

enum { CHUNKS = 8 };
static const size_t CHUNK = 2 * MIB, WHOLE = CHUNKS * 2l * MIB;

/* Two arrays of CHUNKS chunks each, or plain allocations. */
struct arrays {
    CUdeviceptr a, b;
    CUhandle handles[2 * CHUNKS];
    uint32_t *in, *out; /* pinned, 1 MiB each */
    CUgraphExec graph;
};

static void record(struct arrays *of) {
    CUgraph graph;
    CHECK(cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL));
    start_step(of->a, WHOLE);
    CHECK(cuMemcpyDtoDAsync_v2(of->b + 3 * MIB, of->a + 1 * MIB, 6 * MIB, stream));
    start_step(of->b, WHOLE);
    CHECK(cuMemsetD32Async(of->a + 5 * MIB, 9, MIB / 4, stream));
    CHECK(cuMemcpyDtoHAsync_v2(of->out, of->b + 2 * MIB, MIB, stream));
    CHECK(cuMemcpyHtoDAsync_v2(of->a + 11 * MIB, of->in, MIB, stream));
    start_step(of->a, WHOLE);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&of->graph, graph, 0));
}

/* Moves the arrays' chunks: all, or every second one. */
static void move_arrays(struct arrays *of, CUmemLocation to, int every) {
    for (int i = 0; i < 2 * CHUNKS; i += every) {
        CUdeviceptr at = (i < CHUNKS ? of->a : of->b) + (size_t)(i % CHUNKS) * CHUNK;
        of->handles[i] = move(at, CHUNK, of->handles[i], to);
    }
}

static void prepare(struct arrays *of) {
    of->in = pinned(MIB);
    of->out = pinned(MIB);
    for (int i = 0; i < MIB / 4; i++) of->in[i] = (uint32_t)i * 77u;
    start_step(of->a, WHOLE); /* loads the kernel, which a capture must not */
    CHECK(cuMemsetD32Async(of->a, 3, WHOLE / 4, stream));
    CHECK(cuMemsetD32Async(of->b, 4, WHOLE / 4, stream));
    finish();
}

static void launch_twice(struct arrays *of) {
    CHECK(cuGraphLaunch(of->graph, stream));
    CHECK(cuGraphLaunch(of->graph, stream));
    finish();
}

/* True: both have the same contents. */
static int equal(struct arrays *x, struct arrays *y) {
    char *one = malloc(WHOLE), *two = malloc(WHOLE);
    int same = one && two && !memcmp(x->out, y->out, MIB);
    for (int i = 0; i < 2; i++) {
        CHECK(cuMemcpyDtoHAsync_v2(one, i ? x->b : x->a, WHOLE, stream));
        CHECK(cuMemcpyDtoHAsync_v2(two, i ? y->b : y->a, WHOLE, stream));
        finish();
        same &= !memcmp(one, two, WHOLE);
    }
    free(one);
    free(two);
    return same;
}

static void graph(void) {
    static struct arrays plain, moved;
    CHECK(cuMemAlloc_v2(&plain.a, WHOLE));
    CHECK(cuMemAlloc_v2(&plain.b, WHOLE));
    moved.a = reserve(WHOLE);
    moved.b = reserve(WHOLE);
    for (int i = 0; i < 2 * CHUNKS; i++) {
        moved.handles[i] = create(CHUNK, device_place());
        map((i < CHUNKS ? moved.a : moved.b) + (size_t)(i % CHUNKS) * CHUNK, CHUNK, moved.handles[i]);
    }
    prepare(&plain);
    prepare(&moved);
    record(&plain);
    record(&moved);
    static const struct {
        const char *name;
        int away, every;
    } stages[] = {{"on the device, as captured", 0, 0}, {"on the host", 1, 1}, {"on the device again", 0, 1},
                  {"every second chunk on the host", 1, 2}, {"on the device once more", 0, 2}};
    for (unsigned i = 0; i < sizeof stages / sizeof *stages; i++) {
        if (stages[i].every) move_arrays(&moved, stages[i].away ? host_place : device_place(), stages[i].every);
        int kept = equal(&plain, &moved);
        double begun = now_s();
        launch_twice(&plain);
        double without = now_s() - begun;
        begun = now_s();
        launch_twice(&moved);
        double with = now_s() - begun;
        result("\"what\":\"graph\",\"memory\":\"%s\",\"contents_kept\":%s,\"equal\":%s,\"us\":%.0f,\"plain_us\":%.0f",
               stages[i].name, kept ? "true" : "false", equal(&plain, &moved) ? "true" : "false", with * 5e5,
               without * 5e5);
    }
    move_arrays(&moved, host_place, 1);
    record(&moved);
    launch_twice(&moved);
    launch_twice(&plain);
    int on_host = equal(&plain, &moved);
    move_arrays(&moved, device_place(), 1);
    launch_twice(&moved);
    launch_twice(&plain);
    result("\"what\":\"graph captured on the host\",\"equal\":%s,\"equal_on_device\":%s", on_host ? "true" : "false",
           equal(&plain, &moved) ? "true" : "false");
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

enum { TO_PINNED, FROM_PINNED, FROM_DEVICE, TO_DEVICE, WITHIN, SET_8, SET_32, HOW };

static void enqueue_copy(int how, CUdeviceptr at, CUdeviceptr plain, void *memory, size_t size) {
    switch (how) {
    case TO_PINNED: CHECK(cuMemcpyDtoHAsync_v2(memory, at, size, stream)); break;
    case FROM_PINNED: CHECK(cuMemcpyHtoDAsync_v2(at, memory, size, stream)); break;
    case FROM_DEVICE: CHECK(cuMemcpyDtoDAsync_v2(at, plain, size, stream)); break;
    case TO_DEVICE: CHECK(cuMemcpyDtoDAsync_v2(plain, at, size, stream)); break;
    case WITHIN: CHECK(cuMemcpyDtoDAsync_v2(at, at + size / 2, size / 2, stream)); break;
    case SET_8: CHECK(cuMemsetD8Async(at, 7, size, stream)); break;
    default: CHECK(cuMemsetD32Async(at, 0x12345678, size / 4, stream)); break;
    }
}

static void copies(void) {
    static const char *const names[HOW] = {"to pinned", "from pinned", "from device memory", "to device memory",
                                           "within",    "memset 8",    "memset 32"};
    size_t size = 512l * MIB;
    CUdeviceptr plain, out;
    CHECK(cuMemAlloc_v2(&plain, size));
    CHECK(cuMemAlloc_v2(&out, 4096));
    uint32_t *memory = pinned(size);
    for (int away = 0; away < 2; away++) {
        CUdeviceptr at = reserve(size);
        CUhandle handle = create(size, away ? host_place : device_place());
        map(at, size, handle);
        for (int how = 0; how < HOW; how++) {
            double took[3], asked[3];
            start_put(plain, size, 5);
            start_put(at, size, 6);
            memset(memory, 8, size);
            finish();
            for (int i = 0; i < 3; i++) {
                double begun = now_s();
                enqueue_copy(how, at, plain, memory, size);
                asked[i] = now_s() - begun;
                finish();
                took[i] = now_s() - begun;
            }
            uint32_t sum = 0, wanted, n = (uint32_t)(size / 4);
            CUdeviceptr looked = how == TO_DEVICE ? plain : at;
            CHECK(cuMemsetD32Async(out, 0, 1, stream));
            start_get(looked, size, out);
            CHECK(cuMemcpyDtoHAsync_v2(&sum, out, 4, stream));
            finish();
            wanted = n * (how == FROM_PINNED   ? 0x08080808u
                          : how == FROM_DEVICE ? 5u
                          : how == SET_8       ? 0x07070707u
                          : how == SET_32      ? 0x12345678u
                                               : 6u);
            int right = sum == wanted && (how != TO_PINNED || (memory[0] == 6 && memory[n - 1] == 6));
            result("\"what\":\"%s\",\"memory\":\"%s\",\"right\":%s,\"gib_s\":%.2f,\"enqueue_us\":%.0f", names[how],
                   away ? "host" : "device", right ? "true" : "false", gib_s((double)size, median(took, 3)),
                   median(asked, 3) * 1e6);
        }
        unmap(at, size);
        CHECK(cuMemRelease(handle));
        CHECK(cuMemAddressFree(at, size));
    }
    CHECK(cuMemFreeHost(memory));
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */

static void attributes_of(CUdeviceptr at, CUdeviceptr base, const char *of) {
    static const struct {
        int number, bytes;
        const char *name;
    } known[] = {{1, 8, "CONTEXT"},
                 {2, 4, "MEMORY_TYPE"},
                 {3, 8, "DEVICE_POINTER"},
                 {4, 8, "HOST_POINTER"},
                 {6, 4, "SYNC_MEMOPS"},
                 {7, 8, "BUFFER_ID"},
                 {8, 4, "IS_MANAGED"},
                 {9, 4, "DEVICE_ORDINAL"},
                 {10, 4, "LEGACY_IPC_CAPABLE"},
                 {11, 8, "RANGE_START"},
                 {12, 8, "RANGE_SIZE"},
                 {13, 4, "MAPPED"},
                 {14, 8, "ALLOWED_HANDLE_TYPES"},
                 {15, 4, "RDMA_CAPABLE"},
                 {17, 8, "MEMPOOL"},
                 {18, 8, "MAPPING_SIZE"},
                 {19, 8, "MAPPING_BASE"},
                 {20, 8, "MEMORY_BLOCK_ID"},
                 {21, 4, "HW_DECOMPRESS_CAPABLE"}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t value = 0;
        CUresult code = cuPointerGetAttribute(&value, known[i].number, at);
        const char *name = known[i].name;
        /* Addresses differ from run to run: they are told as distances, and the context as whether it is ours. */
        if (!code && (known[i].number == 3 || known[i].number == 11 || known[i].number == 19))
            result("\"of\":\"%s\",\"name\":\"%s\",\"from_base\":%" PRId64 ",\"answer\":\"%s\"", of, name,
                   (int64_t)(value - base), name_of(code));
        else if (known[i].number == 1)
            result("\"of\":\"%s\",\"name\":\"%s\",\"ours\":%s,\"null\":%s,\"answer\":\"%s\"", of, name,
                   (CUcontext)(uintptr_t)value == gpu.context ? "true" : "false", value ? "false" : "true",
                   name_of(code));
        else
            result("\"of\":\"%s\",\"name\":\"%s\",\"value\":%" PRIu64 ",\"answer\":\"%s\"", of, name, value,
                   name_of(code));
    }
    unsigned on = 1;
    CUresult code = cuPointerSetAttribute(&on, 6, at);
    result("\"of\":\"%s\",\"name\":\"SYNC_MEMOPS set\",\"answer\":\"%s\"", of, name_of(code));
    CUdeviceptr begin = 0;
    size_t length = 0;
    code = cuMemGetAddressRange_v2(&begin, &length, at);
    result("\"of\":\"%s\",\"name\":\"cuMemGetAddressRange\",\"from_base\":%" PRId64 ",\"size\":%zu,\"answer\":\"%s\"",
           of, code ? 0 : (int64_t)(begin - base), length, name_of(code));
}

static void attributes(void) {
    CUdeviceptr plain, at = reserve(8 * MIB);
    CUhandle handle[2], same;
    CHECK(cuMemAlloc_v2(&plain, 5 * MIB));
    attributes_of(plain + 3 * MIB, plain, "cuMemAlloc, 5 MiB");
    attributes_of(at + 3 * MIB, at, "reserved, not mapped");
    for (int i = 0; i < 2; i++) {
        handle[i] = create(2 * MIB, device_place());
        map(at + (size_t)i * 2 * MIB, 2 * MIB, handle[i]);
    }
    attributes_of(at + 3 * MIB, at, "device chunks, 2 of 4");
    CHECK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(at + 3 * MIB)));
    result("\"what\":\"retained handle\",\"same\":%s", same == handle[1] ? "true" : "false");
    CHECK(cuMemRelease(same));
    handle[1] = move(at + 2 * MIB, 2 * MIB, handle[1], host_place);
    attributes_of(at + 3 * MIB, at, "host chunk in the same place");
    handle[1] = move(at + 2 * MIB, 2 * MIB, handle[1], device_place());
    attributes_of(at + 3 * MIB, at, "device chunk again");
    unmap(at, 4 * MIB); /* one call for both mappings */
    for (int i = 0; i < 2; i++) CHECK(cuMemRelease(handle[i]));
    CHECK(cuMemAddressFree(at, 8 * MIB));
}

/* ---- calls that wait -------------------------------------------------------------------------------------------- */

static struct {
    volatile uint32_t *word; /* the gate: open at 1 */
    CUdeviceptr at;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int armed; /* number of the hold that is to end, 0 = none */
    double due;
    int fired; /* the last hold that the thread has ended */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

__attribute__((noreturn)) static void *let_go(void *unused) {
    (void)unused;
    pthread_mutex_lock(&gate.lock);
    for (;;) {
        if (!gate.armed) {
            pthread_cond_wait(&gate.changed, &gate.lock);
        } else if (now_s() >= gate.due) {
            *gate.word = 1;
            gate.fired = gate.armed;
            gate.armed = 0;
        } else {
            pthread_mutex_unlock(&gate.lock);
            sleep_until(now_s() + 0.005);
            pthread_mutex_lock(&gate.lock);
        }
    }
}

static void arm(int hold) {
    pthread_mutex_lock(&gate.lock);
    gate.armed = hold;
    gate.due = now_s() + 1;
    pthread_cond_signal(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Ends a hold. Returns whether the thread had to. */
static int disarm(int hold) {
    pthread_mutex_lock(&gate.lock);
    gate.armed = 0;
    *gate.word = 1;
    int fired = gate.fired == hold;
    pthread_mutex_unlock(&gate.lock);
    return fired;
}

static void open_gate(void) {
    pthread_t thread;
    void *page = pinned(4096);
    gate.word = page;
    *gate.word = 0;
    CHECK(cuMemHostGetDevicePointer_v2(&gate.at, page, 0));
    if (pthread_create(&thread, NULL, let_go, NULL)) fail("pthread_create", "no thread");
}

static struct {
    CUdeviceptr at, other, plain;
    CUhandle mapped, host, unused;
    void *pinned, *pages;
    CUevent event;
    CUstream made;
} site;

enum { SITE = 32 * MIB };

static CUresult op_create(void) { return try_create(&site.unused, SITE, device_place(), HANDLE_NONE); }
static CUresult op_create_host(void) {
    CUhandle handle;
    CUresult code = try_create(&handle, SITE, host_place, HANDLE_NONE);
    return code ? code : cuMemRelease(handle);
}
static CUresult op_map(void) { return cuMemMap(site.other, SITE, 0, site.unused, 0); }
static CUresult op_access(void) {
    CUmemAccessDesc access = {device_place(), READ_WRITE};
    return cuMemSetAccess(site.other, SITE, &access, 1);
}
static CUresult op_unmap(void) { return cuMemUnmap(site.other, SITE); }
static CUresult op_release(void) { return cuMemRelease(site.unused); }
static CUresult op_copy_out(void) {
    CUresult code = cuMemcpyDtoHAsync_v2(site.pinned, site.at, SITE, stream);
    return code ? code : cuStreamSynchronize(stream);
}
static CUresult op_copy_in(void) {
    CUresult code = cuMemcpyHtoDAsync_v2(site.at, site.pinned, SITE, stream);
    return code ? code : cuStreamSynchronize(stream);
}
static CUresult op_event(void) {
    CUresult code = cuEventRecord(site.event, stream);
    return code ? code : cuEventSynchronize(site.event);
}
static CUresult op_remap_host(void) {
    CUmemAccessDesc access = {device_place(), READ_WRITE};
    CUresult code = cuMemUnmap(site.at, SITE);
    if (!code) code = cuMemMap(site.at, SITE, 0, site.host, 0);
    return code ? code : cuMemSetAccess(site.at, SITE, &access, 1);
}
static CUresult op_remap_device(void) {
    CUmemAccessDesc access = {device_place(), READ_WRITE};
    CUresult code = cuMemUnmap(site.at, SITE);
    if (!code) code = cuMemMap(site.at, SITE, 0, site.mapped, 0);
    return code ? code : cuMemSetAccess(site.at, SITE, &access, 1);
}
static CUresult op_reserve(void) {
    CUdeviceptr at;
    CUresult code = cuMemAddressReserve(&at, SITE, 2 * MIB, 0, 0);
    return code ? code : cuMemAddressFree(at, SITE);
}
static CUresult op_stream(void) {
    CUresult code = cuStreamCreate(&site.made, STREAM_NON_BLOCKING);
    return code ? code : cuStreamDestroy_v2(site.made);
}
static CUresult op_alloc(void) { return cuMemAlloc_v2(&site.plain, SITE); }
static CUresult op_free(void) { return cuMemFree_v2(site.plain); }
static CUresult op_register(void) { return cuMemHostRegister_v2(site.pages, SITE, REGISTER_MAPPED); }
static CUresult op_unregister(void) { return cuMemHostUnregister(site.pages); }
static CUresult op_info(void) {
    size_t a, b;
    return cuMemGetInfo_v2(&a, &b);
}

/* Times each call while another stream of the context is busy: with a kernel, or at a closed gate. */
static void waits(int at_gate) {
    static const struct {
        const char *name;
        CUresult (*call)(void);
    } calls[] = {{"create", op_create},
                 {"create on host, release", op_create_host},
                 {"map", op_map},
                 {"set access", op_access},
                 {"unmap", op_unmap},
                 {"release", op_release},
                 {"copy to pinned", op_copy_out},
                 {"copy from pinned", op_copy_in},
                 {"event", op_event},
                 {"unmap, map host, set access", op_remap_host},
                 {"copy through host", op_copy_out},
                 {"unmap, map device, set access", op_remap_device},
                 {"reserve, free addresses", op_reserve},
                 {"make and destroy a stream", op_stream},
                 {"cuMemGetInfo", op_info},
                 {"cuMemAlloc", op_alloc},
                 {"cuMemFree", op_free},
                 {"cuMemHostRegister", op_register},
                 {"cuMemHostUnregister", op_unregister}};
    CUstream busy;
    CHECK(cuStreamCreate(&busy, STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&site.event, EVENT_DISABLE_TIMING));
    open_gate();
    site.at = reserve(SITE);
    site.other = reserve(SITE);
    site.mapped = create(SITE, device_place());
    site.host = create(SITE, host_place);
    map(site.at, SITE, site.mapped);
    site.pinned = pinned(SITE);
    site.pages = mmap(NULL, SITE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (site.pages == MAP_FAILED) fail("mmap", strerror(errno));
    start_last(busy, 1000000); /* loads the kernels */
    start_step(site.at, SITE);
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        int hold = (int)i + 1;
        *gate.word = 0;
        if (at_gate) {
            CHECK(cuStreamWaitValue32_v2(busy, gate.at, 1, WAIT_EQ));
            start_last(busy, 1000);
            sleep_until(now_s() + 0.02);
            arm(hold);
        } else {
            start_last(busy, 200000000);
            sleep_until(now_s() + 0.02);
        }
        double begun = now_s();
        CUresult code = calls[i].call();
        double took = now_s() - begun;
        int running = cuStreamQuery(busy) == NOT_READY;
        int fired = disarm(hold);
        CHECK(cuStreamSynchronize(busy));
        result("\"call\":\"%s\",\"answer\":\"%s\",\"us\":%.0f,\"waited\":%s,\"hung_until_let_go\":%s", calls[i].name,
               name_of(code), took * 1e6, running ? "false" : "true", fired ? "true" : "false");
    }
}

/* Commands that are held at a device gate, and memory that moves beneath them meanwhile. */
static void beneath(void) {
    CUdeviceptr at = reserve(SITE), beside = reserve(SITE);
    CUhandle on_device = create(SITE, device_place()), on_host = create(SITE, host_place);
    CUstream mover;
    uint32_t *back = malloc(SITE);
    if (!back) fail("malloc", strerror(errno));
    CHECK(cuStreamCreate(&mover, STREAM_NON_BLOCKING));
    open_gate();
    map(at, SITE, on_device);
    map(beside, SITE, on_host);
    start_put(at, SITE, 5);
    start_step(at, SITE);
    finish();
    for (int way = 0; way < 2; way++) {
        int hold = way + 1;
        *gate.word = 0;
        CHECK(cuStreamWaitValue32_v2(stream, gate.at, 1, WAIT_EQ));
        start_step(at, SITE);
        sleep_until(now_s() + 0.02);
        arm(hold);
        double begun = now_s();
        CHECK(cuMemcpyDtoDAsync_v2(beside, at, SITE, mover));
        CHECK(cuStreamSynchronize(mover));
        unmap(at, SITE);
        unmap(beside, SITE);
        map(at, SITE, way ? on_device : on_host);
        double took = now_s() - begun;
        int held = cuStreamQuery(stream) == NOT_READY;
        int fired = disarm(hold);
        CUresult code = cuStreamSynchronize(stream);
        size_t wrong = 0;
        if (!code) {
            CHECK(cuMemcpyDtoHAsync_v2(back, at, SITE, stream));
            finish();
            for (size_t i = 0; step && i < SITE / 4; i++) {
                uint32_t value = 5;
                for (int steps = 0; steps < way + 2; steps++) value = value * 1664525u + (uint32_t)i;
                wrong += back[i] != value;
            }
        }
        result("\"what\":\"moved beneath held commands\",\"to\":\"%s\",\"answer\":\"%s\",\"wrong\":%zu,\"us\":%.0f,"
               "\"still_held\":%s,\"hung_until_let_go\":%s",
               way ? "device" : "host", name_of(code), wrong, took * 1e6, held ? "true" : "false",
               fired ? "true" : "false");
        if (code) exit(0);
        map(beside, SITE, way ? on_host : on_device);
    }
}

/* ---- cost ------------------------------------------------------------------------------------------------------- */

enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, CALLS };
static double *spent[CALLS];
static int spent_n[CALLS];

static void note(int call, double begun) {
    spent[call][spent_n[call]++] = (now_s() - begun) * 1e6;
}

/* Gives a chunk of the device back. */
static void drop(CUdeviceptr at, size_t size, CUhandle handle) {
    double begun = now_s();
    CHECK(cuMemUnmap(at, size));
    note(UNMAP, begun);
    begun = now_s();
    CHECK(cuMemRelease(handle));
    note(RELEASE, begun);
}

/* Backs a chunk by new device memory. */
static CUhandle take(CUdeviceptr at, size_t size) {
    double begun = now_s();
    CUhandle handle = create(size, device_place());
    note(CREATE, begun);
    begun = now_s();
    CHECK(cuMemMap(at, size, 0, handle, 0));
    note(MAP, begun);
    begun = now_s();
    allow(at, size);
    note(ACCESS, begun);
    return handle;
}

static void copy_to_store(CUdeviceptr at, size_t size, char *store, CUdeviceptr host_at, CUstream where) {
    if (store) CHECK(cuMemcpyDtoHAsync_v2(store, at, size, where));
    else CHECK(cuMemcpyDtoDAsync_v2(host_at, at, size, where));
}

static void copy_from_store(CUdeviceptr at, size_t size, char *store, CUdeviceptr host_at, CUstream where) {
    if (store) CHECK(cuMemcpyHtoDAsync_v2(at, store, size, where));
    else CHECK(cuMemcpyDtoDAsync_v2(at, host_at, size, where));
}

/* Moves n chunks out of `a`, n chunks into `a`, then others into `b` while those of `a` go out; the store is pinned
 * memory, or host chunks at addresses of their own. Times include every call; the addresses stay reserved. */
static void moving(size_t chunk, size_t whole, char *store, CUdeviceptr host_at) {
    int n = (int)(whole / chunk);
    CUdeviceptr a = reserve(whole), b = reserve(whole);
    CUhandle *of_a = calloc((size_t)n, sizeof *of_a), *of_b = calloc((size_t)n, sizeof *of_b);
    CUevent *events = calloc((size_t)n, sizeof *events);
    CUstream in;
    CHECK(cuStreamCreate(&in, STREAM_NON_BLOCKING));
    if (!of_a || !of_b || !events) fail("calloc", strerror(errno));
    for (int c = 0; c < CALLS; c++) {
        free(spent[c]);
        spent[c] = calloc(8 * (size_t)n, sizeof(double));
        spent_n[c] = 0;
        if (!spent[c]) fail("calloc", strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        CHECK(cuEventCreate(&events[i], EVENT_DISABLE_TIMING));
        of_a[i] = take(a + (size_t)i * chunk, chunk);
    }
    start_put(a, whole, 3);
    start_step(a, whole);
    finish();
    const char *kind = store ? "pinned" : "host chunks";
    for (int round = 0; round < 2; round++) {
        /* out: each chunk is dropped once it is copied, while the next ones are on their way */
        double begun = now_s();
        for (int i = 0; i < n; i++) {
            size_t o = (size_t)i * chunk;
            copy_to_store(a + o, chunk, store ? store + o : NULL, host_at + o, stream);
            CHECK(cuEventRecord(events[i], stream));
        }
        for (int i = 0; i < n; i++) {
            CHECK(cuEventSynchronize(events[i]));
            drop(a + (size_t)i * chunk, chunk, of_a[i]);
        }
        double out = now_s() - begun;
        /* in */
        begun = now_s();
        for (int i = 0; i < n; i++) {
            size_t o = (size_t)i * chunk;
            of_a[i] = take(a + o, chunk);
            copy_from_store(a + o, chunk, store ? store + o : NULL, host_at + o, in);
        }
        CHECK(cuStreamSynchronize(in));
        double into = now_s() - begun;
        /* both at once: the room that a chunk of `a` leaves is taken by one of `b`; the second half of the store
         * receives what goes out, and the first half is what comes in */
        begun = now_s();
        for (int i = 0; i < n; i++) {
            size_t o = (size_t)i * chunk;
            copy_to_store(a + o, chunk, store ? store + whole + o : NULL, host_at + whole + o, stream);
            CHECK(cuEventRecord(events[i], stream));
        }
        for (int i = 0; i < n; i++) {
            size_t o = (size_t)i * chunk;
            CHECK(cuEventSynchronize(events[i]));
            drop(a + o, chunk, of_a[i]);
            of_b[i] = take(b + o, chunk);
            copy_from_store(b + o, chunk, store ? store + o : NULL, host_at + o, in);
        }
        CHECK(cuStreamSynchronize(in));
        double both = now_s() - begun;
        /* Contents: what came in is what went out. */
        uint32_t sum[2] = {0, 0};
        CUdeviceptr sums;
        CHECK(cuMemAlloc_v2(&sums, 8));
        CHECK(cuMemsetD32Async(sums, 0, 2, stream));
        start_get(b, whole, sums);
        for (int i = 0; i < n; i++) of_a[i] = take(a + (size_t)i * chunk, chunk);
        start_put(a, whole, 3);
        start_step(a, whole);
        start_get(a, whole, sums + 4);
        CHECK(cuMemcpyDtoHAsync_v2(sum, sums, 8, stream));
        finish();
        CHECK(cuMemFree_v2(sums));
        for (int i = 0; i < n; i++) drop(b + (size_t)i * chunk, chunk, of_b[i]);
        result("\"what\":\"moving\",\"store\":\"%s\",\"chunk_mib\":%zu,\"mib\":%zu,\"round\":%d,\"right\":%s,"
               "\"out_gib_s\":%.2f,\"in_gib_s\":%.2f,\"both_gib_s\":%.2f",
               kind, chunk / MIB, whole / MIB, round, sum[0] == sum[1] ? "true" : "false", gib_s((double)whole, out),
               gib_s((double)whole, into), gib_s(2. * (double)whole, both));
    }
    result("\"what\":\"calls\",\"store\":\"%s\",\"chunk_mib\":%zu,\"create_us\":%.1f,\"map_us\":%.1f,"
           "\"access_us\":%.1f,\"unmap_us\":%.1f,\"release_us\":%.1f",
           kind, chunk / MIB, median(spent[CREATE], spent_n[CREATE]), median(spent[MAP], spent_n[MAP]),
           median(spent[ACCESS], spent_n[ACCESS]), median(spent[UNMAP], spent_n[UNMAP]),
           median(spent[RELEASE], spent_n[RELEASE]));
    /* One call for all mappings of a range. */
    double begun = now_s();
    allow(a, whole);
    double access = now_s() - begun;
    begun = now_s();
    unmap(a, whole);
    double at_once = now_s() - begun;
    result("\"what\":\"one call for all\",\"chunk_mib\":%zu,\"chunks\":%d,\"access_us\":%.0f,\"unmap_us\":%.0f",
           chunk / MIB, n, access * 1e6, at_once * 1e6);
    for (int i = 0; i < n; i++) {
        CHECK(cuMemRelease(of_a[i]));
        CHECK(cuEventDestroy_v2(events[i]));
    }
    CHECK(cuStreamDestroy_v2(in));
    CHECK(cuMemAddressFree(a, whole));
    CHECK(cuMemAddressFree(b, whole));
    free(of_a);
    free(of_b);
    free(events);
}

static void cost(size_t mib) {
    static const size_t chunks[] = {2, 32, 128};
    size_t whole = mib * MIB, step_size = mib < 128 ? whole : 128l * MIB;
    double begun = now_s();
    char *store = pinned(2 * whole);
    result("\"what\":\"store\",\"kind\":\"pinned\",\"make_gib_s\":%.2f", gib_s(2. * (double)whole, now_s() - begun));
    for (int i = 0; i < 3; i++)
        if (chunks[i] <= mib) moving(chunks[i] * MIB, whole, store, 0);
    CHECK(cuMemFreeHost(store));
    CUdeviceptr host_at = reserve(2 * whole);
    size_t n = 2 * whole / step_size;
    CUhandle *handles = calloc(n, sizeof *handles);
    if (!handles) fail("calloc", strerror(errno));
    begun = now_s();
    for (size_t i = 0; i < n; i++) {
        handles[i] = create(step_size, host_place);
        map(host_at + i * step_size, step_size, handles[i]);
    }
    result("\"what\":\"store\",\"kind\":\"host chunks\",\"make_gib_s\":%.2f",
           gib_s(2. * (double)whole, now_s() - begun));
    for (int i = 0; i < 3; i++)
        if (chunks[i] <= mib) moving(chunks[i] * MIB, whole, NULL, host_at);
    for (size_t i = 0; i < n; i++) {
        unmap(host_at + i * step_size, step_size);
        CHECK(cuMemRelease(handles[i]));
    }
    CHECK(cuMemAddressFree(host_at, 2 * whole));
}

/* ---- faults ----------------------------------------------------------------------------------------------------- */

static void fault(const char *kind) {
    CUdeviceptr at = reserve(2 * MIB), plain;
    CUhandle handle = create(2 * MIB, device_place());
    static uint32_t words[1024];
    CHECK(cuMemAlloc_v2(&plain, 4096));
    map(at, 2 * MIB, handle);
    start_put(at, 2 * MIB, 5);
    finish();
    unmap(at, 2 * MIB);
    if (!strcmp(kind, "noaccess")) CHECK(cuMemMap(at, 2 * MIB, 0, handle, 0));
    CUresult asked, seen;
    uint64_t n = 2 * MIB / 4;
    if (!strcmp(kind, "copy")) asked = cuMemcpyDtoHAsync_v2(words, at, sizeof words, stream);
    else if (!strcmp(kind, "memset")) asked = cuMemsetD32Async(at, 1, 1024, stream);
    else if (step) asked = start(step, (void *[]){&at, &n});
    else return;
    seen = cuStreamSynchronize(stream);
    result("\"case\":\"%s\",\"call\":\"%s\",\"synchronise\":\"%s\"", kind, name_of(asked), name_of(seen));
    uint64_t few = 1024;
    CUresult launched = step ? start(step, (void *[]){&plain, &few}) : 0, finished = cuStreamSynchronize(stream);
    CUdeviceptr more;
    CUresult allocated = cuMemAlloc_v2(&more, 4096), copied = cuMemcpyDtoH_v2(words, plain, sizeof words);
    CUresult mapped = cuMemMap(at, 2 * MIB, 0, handle, 0), unmapped = cuMemUnmap(at, 2 * MIB);
    result("\"case\":\"%s\",\"after\":true,\"launch\":\"%s\",\"synchronise\":\"%s\",\"alloc\":\"%s\",\"copy\":\"%s\","
           "\"map\":\"%s\",\"unmap\":\"%s\"",
           kind, name_of(launched), name_of(finished), name_of(allocated), name_of(copied), name_of(mapped),
           name_of(unmapped));
}

int main(int argc, char **argv) {
    static const char *const parts[] = {"facts", "host", "cpu", "graph", "copies", "attributes",
                                        "spin",  "gate", "beneath", "cost", "fault", NULL};
    for (int i = 0; argc > 1 && parts[i]; i++)
        if (!strcmp(parts[i], argv[1])) part = parts[i];
    if (*part == '?') {
        fputs("usage: residency PART (the head of residency.c lists them)\n", stderr);
        return 2;
    }
    const char *word = argc > 2 ? argv[2] : "";
    open_all();
    if (!strcmp(part, "facts")) facts();
    else if (!strcmp(part, "host")) host();
    else if (!strcmp(part, "cpu")) cpu();
    else if (!strcmp(part, "graph")) graph();
    else if (!strcmp(part, "copies")) copies();
    else if (!strcmp(part, "attributes")) attributes();
    else if (!strcmp(part, "spin")) waits(0);
    else if (!strcmp(part, "gate")) waits(1);
    else if (!strcmp(part, "beneath")) beneath();
    else if (!strcmp(part, "cost")) cost(*word ? (size_t)number("residency", "MIB", word) : 2048);
    else fault(*word ? word : "kernel");
    return 0;
}
