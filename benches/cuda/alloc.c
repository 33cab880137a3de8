/* Costs of allocations, and memory taken in ways that frameworks do not use.
 *
 *   alloc cost [--rounds N]     a line of JSON a round: ns of an allocation with its free, by way and size; ms of the start
 *   alloc pairs [--count N]     "ready", then for each line that it reads a line of JSON as `cost` has it, in some ms
 *   alloc within [--rounds N]   a line of JSON: ns of commands through the functions that the linker finds, which are a preloaded
 *                               library's if there is one, and through the driver's own, by turns of some 0.1 ms in one thread
 *   alloc steps                 takes memory, a way at a time: "step NAME BYTES TOLD" is answered by a line, then it is freed.
 *                               TOLD is the memory that the program is told to have
 *   alloc hold                  takes 1 GiB plainly and 1 GiB from a pool, and stays: a line of JSON
 *   alloc fill WAY              takes pieces of 256 MiB (plain, vmm, pool) until it is refused: a line of JSON
 *
 * As a shared library it is an allocator for PyTorch (torch_allocate, torch_free), whose way torch_switch changes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct graph *CUgraph;
typedef struct exec *CUgraphExec;

enum { STREAM_NON_BLOCKING = 1 };

typedef struct { int type, id; } location_t;
typedef struct { int type, handles; location_t location; void *windows; unsigned char flags[8]; } prop_t;
typedef struct { location_t location; int flags; } access_t;
typedef struct { size_t width, height; int format; unsigned channels; } array_t;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } array3_t;
typedef struct { int kind, handles; location_t location; uint64_t rest[9]; const void *access; size_t count, bytes; CUdeviceptr at; } node_t;

#define MORE(f)                                                                                                        \
    f(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                          \
    f(cuMemFree_v2, (CUdeviceptr))                                                                                     \
    f(cuMemGetInfo_v2, (size_t *, size_t *))                                                                           \
    f(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                       \
    f(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                                              \
    f(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                         \
    f(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                 \
    f(cuDeviceGetDefaultMemPool, (void **, CUdevice))                                                                  \
    f(cuMemPoolSetAttribute, (void *, int, void *))                                                                    \
    f(cuMemPoolTrimTo, (void *, size_t))                                                                               \
    f(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                                            \
    f(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                         \
    f(cuMemCreate, (uint64_t *, size_t, const prop_t *, uint64_t))                                                     \
    f(cuMemRelease, (uint64_t))                                                                                        \
    f(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t))                                     \
    f(cuMemAddressFree, (CUdeviceptr, size_t))                                                                         \
    f(cuMemMap, (CUdeviceptr, size_t, size_t, uint64_t, uint64_t))                                                     \
    f(cuMemSetAccess, (CUdeviceptr, size_t, const access_t *, size_t))                                                 \
    f(cuMemUnmap, (CUdeviceptr, size_t))                                                                               \
    f(cuArrayCreate_v2, (void **, const array_t *))                                                                    \
    f(cuArrayDestroy, (void *))                                                                                        \
    f(cuMipmappedArrayCreate, (void **, const array3_t *, unsigned))                                                   \
    f(cuMipmappedArrayDestroy, (void *))                                                                               \
    f(cuGraphCreate, (CUgraph *, unsigned))                                                                            \
    f(cuGraphAddMemAllocNode, (void **, CUgraph, const void *, size_t, node_t *))                                      \
    f(cuGraphAddMemFreeNode, (void **, CUgraph, void **, size_t, CUdeviceptr))                                         \
    f(cuGraphDestroy, (CUgraph))                                                                                       \
    f(cuGraphLaunch, (CUgraphExec, CUstream))                                                                          \
    f(cuGraphExecDestroy, (CUgraphExec))                                                                               \
    f(cuDeviceGraphMemTrim, (CUdevice))

#define DECLARE(name, arguments) static CUresult(*more_##name) arguments;
MORE(DECLARE)
#define M(name, ...) more_##name(__VA_ARGS__)

static CUdevice device;
static CUcontext context;
static CUstream stream;
static double start_ms;

static void must(CUresult got, const char *what) {
    if (got) {
        fprintf(stderr, "alloc: %s gave %d\n", what, got);
        exit(3);
    }
}
#define MUST(call) must(call, #call)

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void *find_all(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "alloc: no libcuda.so.1\n");
        exit(3);
    }
#define FIND(name, arguments) *(void **)&more_##name = dlsym(library, #name);
    MORE(FIND)
    return library;
}

static void begin(void) {
    void *library = find_all();
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(library, "cuInit");
    CUresult (*get)(CUdevice *, int) = (CUresult(*)(CUdevice *, int))dlsym(library, "cuDeviceGet");
    CUresult (*retain)(CUcontext *, CUdevice) = (CUresult(*)(CUcontext *, CUdevice))dlsym(library, "cuDevicePrimaryCtxRetain");
    CUresult (*current)(CUcontext) = (CUresult(*)(CUcontext))dlsym(library, "cuCtxSetCurrent");
    CUresult (*make)(CUstream *, unsigned) = (CUresult(*)(CUstream *, unsigned))dlsym(library, "cuStreamCreate");
    double from = seconds();
    MUST(init(0));
    MUST(get(&device, 0));
    MUST(retain(&context, device));
    start_ms = (seconds() - from) * 1e3;
    MUST(current(context));
    MUST(make(&stream, STREAM_NON_BLOCKING));
}

static CUresult (*wait_for)(CUstream);
static void *find(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }

static size_t told(void) {
    size_t unused, total;
    MUST(M(cuMemGetInfo_v2, &unused, &total));
    return total - unused;
}

/* ---- costs ------------------------------------------------------------------------------------------------------ */

static double plain(size_t bytes, int count) {
    CUdeviceptr p;
    double from = seconds();
    for (int i = 0; i < count; i++) {
        MUST(M(cuMemAlloc_v2, &p, bytes));
        MUST(M(cuMemFree_v2, p));
    }
    return (seconds() - from) * 1e9 / count;
}

/* Allocations that stay a while, as a framework's do: 64 at a time. */
static double batch(size_t bytes, int count) {
    CUdeviceptr p[64];
    double from = seconds();
    for (int i = 0; i < count; i += 64) {
        for (int n = 0; n < 64; n++) MUST(M(cuMemAlloc_v2, &p[n], bytes));
        for (int n = 0; n < 64; n++) MUST(M(cuMemFree_v2, p[n]));
    }
    return (seconds() - from) * 1e9 / count;
}

static double ordered(size_t bytes, int count) {
    CUdeviceptr p;
    double from = seconds();
    for (int i = 0; i < count; i++) {
        MUST(M(cuMemAllocAsync, &p, bytes, stream));
        MUST(M(cuMemFreeAsync, p, stream));
    }
    MUST(wait_for(stream));
    return (seconds() - from) * 1e9 / count;
}

static const prop_t *pinned(void) {
    static prop_t prop = {.type = 1};
    prop.location = (location_t){1, device};
    return &prop;
}

static void map(CUdeviceptr at, size_t bytes) {
    uint64_t handle;
    access_t access = {{1, device}, 3};
    MUST(M(cuMemCreate, &handle, bytes, pinned(), 0));
    MUST(M(cuMemMap, at, bytes, 0, handle, 0));
    MUST(M(cuMemRelease, handle));
    MUST(M(cuMemSetAccess, at, bytes, &access, 1));
}

static double mapped(size_t bytes, int count) {
    CUdeviceptr at;
    MUST(M(cuMemAddressReserve, &at, bytes, 0, 0, 0));
    double from = seconds();
    for (int i = 0; i < count; i++) {
        map(at, bytes);
        MUST(M(cuMemUnmap, at, bytes));
    }
    double took = (seconds() - from) * 1e9 / count;
    MUST(M(cuMemAddressFree, at, bytes));
    return took;
}

static void cost(int rounds) {
    void *pool;
    uint64_t keep = UINT64_MAX;
    MUST(M(cuDeviceGetDefaultMemPool, &pool, device));
    MUST(M(cuMemPoolSetAttribute, pool, 4, &keep));
    ordered(1 << 20, 100), plain(1 << 16, 100), mapped(2 << 20, 10);
    for (int r = 0; r < rounds; r++)
        printf("{\"start_ms\":%.1f,\"plain_64K\":%.1f,\"plain_4M\":%.1f,\"batch_64K\":%.1f,\"batch_2M\":%.1f,\"async_64K\":%.1f,"
               "\"async_4M\":%.1f,\"vmm_2M\":%.1f}\n",
               start_ms, plain(1 << 16, 4000), plain(4 << 20, 1000), batch(1 << 16, 4096), batch(2 << 20, 1024),
               ordered(1 << 16, 20000), ordered(4 << 20, 20000), mapped(2 << 20, 500));
}

/* Rounds as short as possible, so that those of several programs can take turns. */
static void pairs(int count) {
    char line[16];
    void *pool;
    uint64_t keep = UINT64_MAX;
    printf("{\"start_ms\":%.1f}\n", start_ms);
    fflush(stdout);
    MUST(M(cuDeviceGetDefaultMemPool, &pool, device));
    MUST(M(cuMemPoolSetAttribute, pool, 4, &keep));
    ordered(1 << 20, 100), plain(1 << 16, 100);
    while (fgets(line, sizeof line, stdin)) {
        printf("{\"async_64K\":%.1f,\"async_4M\":%.1f,\"plain_64K\":%.1f,\"batch_64K\":%.1f}\n", ordered(1 << 16, count),
               ordered(4 << 20, count), plain(1 << 16, count / 20), batch(1 << 16, count / 20 / 64 * 64));
        fflush(stdout);
    }
}

/* ---- the driver's own functions beside those that the linker finds ---------------------------------------------- */

/* A function of the driver, from the library's own table: `dlsym` may be a preloaded library's. */
static int look(struct dl_phdr_info *info, size_t size, void *data) {
    void **wanted = data;
    (void)size;
    if (!strstr(info->dlpi_name, "libcuda.so")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const ElfW(Sym) *symbols = NULL;
        const char *names = NULL;
        for (const ElfW(Dyn) *entry = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); entry->d_tag; entry++) {
            if (entry->d_tag == DT_SYMTAB) symbols = (void *)entry->d_un.d_ptr;
            if (entry->d_tag == DT_STRTAB) names = (void *)entry->d_un.d_ptr;
        }
        /* The table of names follows that of symbols. */
        for (const ElfW(Sym) *symbol = symbols; symbol && (const char *)symbol < names; symbol++)
            if (symbol->st_value && !strcmp(names + symbol->st_name, wanted[0])) {
                wanted[1] = (void *)(info->dlpi_addr + symbol->st_value);
                return 1;
            }
    }
    return 0;
}

static void *own(const char *name) {
    void *wanted[2] = {(void *)name, NULL};
    dl_iterate_phdr(look, wanted);
    if (!wanted[1]) fprintf(stderr, "alloc: the driver's own %s was not found\n", name), exit(3);
    return wanted[1];
}

enum { ALLOCATE, FREE, PLAIN, MEMSET, TIMES };
static const char *const TIME_NAMES[TIMES] = {"allocate_async", "free_async", "plain_pair", "memset"};
static CUdeviceptr block;

static void turn(double *ns) {
    CUdeviceptr p[64];
    double from = seconds();
    for (int n = 0; n < 64; n++) MUST(M(cuMemAllocAsync, &p[n], 1 << 16, stream));
    double then = seconds();
    for (int n = 0; n < 64; n++) MUST(M(cuMemFreeAsync, p[n], stream));
    double end = seconds();
    ns[ALLOCATE] = (then - from) * 1e9 / 64, ns[FREE] = (end - then) * 1e9 / 64;
    MUST(wait_for(stream));
    ns[PLAIN] = plain(1 << 10, 8);
    from = seconds();
    for (int n = 0; n < 64; n++) MUST(M(cuMemsetD8Async, block, 0, 4, stream));
    ns[MEMSET] = (seconds() - from) * 1e9 / 64;
    MUST(wait_for(stream));
}

static int by_size(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

static void within(int rounds) {
    enum { MOST = 100000 };
    static double found[2][TIMES][MOST], beyond[TIMES][MOST];
    void *pool;
    uint64_t keep = UINT64_MAX;
    rounds = rounds > MOST ? MOST : rounds;
    MUST(M(cuDeviceGetDefaultMemPool, &pool, device));
    MUST(M(cuMemPoolSetAttribute, pool, 4, &keep));
    MUST(M(cuMemAlloc_v2, &block, 4096));
#define PAIR(name) void *name[2] = {own(#name), (void *)more_##name};
    PAIR(cuMemAllocAsync) PAIR(cuMemFreeAsync) PAIR(cuMemAlloc_v2) PAIR(cuMemFree_v2) PAIR(cuMemsetD8Async)
    for (int r = -20; r < rounds; r++)
        for (int k = 0; k < 2; k++) {
            int which = (r + k) & 1;
            double ns[TIMES];
#define USE(name) *(void **)&more_##name = name[which];
            USE(cuMemAllocAsync) USE(cuMemFreeAsync) USE(cuMemAlloc_v2) USE(cuMemFree_v2) USE(cuMemsetD8Async)
            turn(ns);
            for (int t = 0; t < TIMES && r >= 0; t++) found[which][t][r] = ns[t];
        }
    printf("{");
    for (int t = 0; t < TIMES; t++) {
        for (int r = 0; r < rounds; r++) beyond[t][r] = found[1][t][r] - found[0][t][r];
        double more = median(beyond[t], rounds), bare = median(found[0][t], rounds), here = median(found[1][t], rounds);
        printf("%s\"%s\":{\"own\":%.1f,\"found\":%.1f,\"beyond\":%.1f}", t ? "," : "", TIME_NAMES[t], bare, here, more);
    }
    printf("}\n");
}

/* ---- an allocator for PyTorch ----------------------------------------------------------------------------------- */

static int is_plain;
static __thread int has_context;
static CUresult (*set_current)(CUcontext);
/* Seconds in calls that allocate and in those that free, and the number of the former. One thread at a time works in such a program. */
static double spent[3];

void torch_spent(double *found) {
    memcpy(found, spent, sizeof spent);
    memset(spent, 0, sizeof spent);
}

/* Has memory taken and given back by the functions that the linker finds (1) or by the driver's own (0), plainly or from the pool. */
void torch_switch(int which, int plain) {
    static void *ways[2][4];
    void *pool;
    uint64_t keep = UINT64_MAX;
    if (!ways[0][0]) {
        find_all();
#define BOTH(n, name) ways[0][n] = own(#name), ways[1][n] = (void *)more_##name;
        BOTH(0, cuMemAlloc_v2) BOTH(1, cuMemFree_v2) BOTH(2, cuMemAllocAsync) BOTH(3, cuMemFreeAsync)
        MUST(M(cuDeviceGetDefaultMemPool, &pool, 0));
        MUST(M(cuMemPoolSetAttribute, pool, 4, &keep));
        CUresult (*retain)(CUcontext *, CUdevice) = (CUresult(*)(CUcontext *, CUdevice))find("cuDevicePrimaryCtxRetain");
        MUST(retain(&context, 0));
        set_current = (CUresult(*)(CUcontext))find("cuCtxSetCurrent");
    }
    *(void **)&more_cuMemAlloc_v2 = ways[which][0], *(void **)&more_cuMemFree_v2 = ways[which][1];
    *(void **)&more_cuMemAllocAsync = ways[which][2], *(void **)&more_cuMemFreeAsync = ways[which][3];
    is_plain = plain;
}

void *torch_allocate(ssize_t size, int gpu, CUstream on) {
    CUdeviceptr p = 0;
    (void)gpu;
    /* PyTorch may not have used its device in this thread. */
    if (!has_context) MUST(set_current(context)), has_context = 1;
    double from = seconds();
    if (size) MUST(is_plain ? M(cuMemAlloc_v2, &p, size) : M(cuMemAllocAsync, &p, size, on));
    spent[0] += seconds() - from, spent[2]++;
    return (void *)p;
}

void torch_free(void *p, ssize_t size, int gpu, CUstream on) {
    (void)size, (void)gpu;
    double from = seconds();
    if (p) MUST(is_plain ? M(cuMemFree_v2, (CUdeviceptr)p) : M(cuMemFreeAsync, (CUdeviceptr)p, on));
    spent[1] += seconds() - from;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static void step(const char *name, size_t bytes) {
    char line[16];
    printf("step %s %zu %zu\n", name, bytes, told());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(3);
}

static void pieces(const char *name, size_t bytes, int count) {
    static CUdeviceptr p[4096];
    for (int n = 0; n < count; n++) MUST(M(cuMemAlloc_v2, &p[n], bytes));
    step(name, bytes * count);
    for (int n = 0; n < count; n++) MUST(M(cuMemFree_v2, p[n]));
}

static void steps(void) {
    size_t MIB = 1 << 20, pitch;
    CUdeviceptr p;
    step("start", 0);
    step("nothing", 0);
    pieces("512_B_x_4096", 512, 4096);
    pieces("4_KiB_x_4096", 4096, 4096);
    pieces("64_KiB_x_2048", 65536, 2048);
    pieces("512_KiB_x_512", MIB / 2, 512);
    pieces("1_MiB-512_x_256", MIB - 512, 256);
    pieces("1_MiB_x_256", MIB, 256);
    pieces("1.5_MiB_x_256", MIB * 3 / 2, 256);
    pieces("2_MiB_x_256", 2 * MIB, 256);
    pieces("3_MiB_x_256", 3 * MIB, 256);
    pieces("1_GiB_x_4", 1024 * MIB, 4);
    MUST(M(cuMemAllocPitch_v2, &p, &pitch, 10000, 100000, 4));
    step("pitch", pitch * 100000);
    MUST(M(cuMemFree_v2, p));
    if (!M(cuMemAllocManaged, &p, 1024 * MIB, 1)) {
        CUresult (*set)(CUdeviceptr, unsigned, size_t) = (CUresult(*)(CUdeviceptr, unsigned, size_t))find("cuMemsetD32_v2");
        MUST(set(p, 0, 256 * MIB));
        step("managed,_touched", 1024 * MIB);
        MUST(M(cuMemFree_v2, p));
    }
    MUST(M(cuMemAllocAsync, &p, 1024 * MIB + 4096, stream));
    MUST(wait_for(stream));
    step("async", 1024 * MIB + 4096);
    MUST(M(cuMemFreeAsync, p, stream));
    MUST(wait_for(stream));
    step("async,_freed", 0);
    void *array;
    array_t flat = {16384, 8192, 0x20, 4};
    if (!M(cuArrayCreate_v2, &array, &flat)) {
        step("array", 16384ul * 8192 * 16);
        MUST(M(cuArrayDestroy, array));
    }
    array_t odd = {1000, 1000, 0x20, 1};
    void *arrays[64];
    int made = 0;
    while (made < 64 && !M(cuArrayCreate_v2, &arrays[made], &odd)) made++;
    step("64_odd_arrays", 64 * 4000000ul);
    while (made) MUST(M(cuArrayDestroy, arrays[--made]));
    array3_t pyramid = {8192, 8192, 0, 0x20, 4, 0};
    if (!M(cuMipmappedArrayCreate, &array, &pyramid, 8)) {
        step("mipmapped_array", 8192ul * 8192 * 16 * 4 / 3);
        MUST(M(cuMipmappedArrayDestroy, array));
    }
    CUgraph graph;
    CUgraphExec exec;
    void *node, *end;
    node_t params = {.kind = 1, .location = {1, device}, .bytes = 512 * MIB};
    CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long) =
        (CUresult(*)(CUgraphExec *, CUgraph, unsigned long long))find("cuGraphInstantiateWithFlags");
    MUST(M(cuGraphCreate, &graph, 0));
    if (!M(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params)) {
        MUST(M(cuGraphAddMemFreeNode, &end, graph, &node, 1, params.at));
        MUST(instantiate(&exec, graph, 0));
        MUST(M(cuGraphLaunch, exec, stream));
        MUST(wait_for(stream));
        step("graph", 512 * MIB);
        MUST(M(cuGraphExecDestroy, exec));
        MUST(M(cuDeviceGraphMemTrim, device));
        step("graph,_trimmed", 0);
    }
    MUST(M(cuGraphDestroy, graph));
    step("nothing_again", 0);
}

/* ---- all there is ----------------------------------------------------------------------------------------------- */

static void fill(const char *way) {
    enum { PIECE = 256 << 20 };
    size_t unused, total, whole, held = 0;
    CUresult got = 0;
    CUdeviceptr p;
    MUST(M(cuMemGetInfo_v2, &unused, &total));
    MUST(M(cuDeviceTotalMem_v2, &whole, device));
    size_t before = unused;
    while (!got && held < 300ul << 30) {
        if (!strcmp(way, "plain")) {
            got = M(cuMemAlloc_v2, &p, PIECE);
        } else if (!strcmp(way, "pool")) {
            got = M(cuMemAllocAsync, &p, PIECE, stream);
        } else {
            uint64_t handle;
            got = M(cuMemCreate, &handle, PIECE, pinned(), 0);
            if (!got) {
                access_t access = {{1, device}, 3};
                if (M(cuMemAddressReserve, &p, PIECE, 0, 0, 0)) break;
                MUST(M(cuMemMap, p, PIECE, 0, handle, 0));
                MUST(M(cuMemSetAccess, p, PIECE, &access, 1));
            }
        }
        held += got ? 0 : PIECE;
    }
    MUST(M(cuMemGetInfo_v2, &unused, &total));
    printf("{\"held\":%zu,\"error\":%d,\"told_used\":%zu,\"free_before\":%zu,\"free\":%zu,\"total\":%zu,\"total_mem\":%zu}\n", held, got, total - unused, before,
           unused, total, whole);
    step("full", held);
}

static void hold(void) {
    CUdeviceptr p;
    MUST(M(cuMemAlloc_v2, &p, 1ul << 30));
    MUST(M(cuMemAllocAsync, &p, 1ul << 30, stream));
    MUST(wait_for(stream));
    printf("{\"held\":%lu,\"start_ms\":%.1f,\"told_used\":%zu}\n", 2ul << 30, start_ms, told());
    step("held", 2ul << 30);
}

int main(int argc, char **argv) {
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    begin();
    wait_for = (CUresult(*)(CUstream))find("cuStreamSynchronize");
    if (argc > 1 && !strcmp(argv[1], "cost")) cost(rounds);
    else if (argc > 1 && !strcmp(argv[1], "pairs")) pairs(argc > 3 ? rounds : 10000);
    else if (argc > 1 && !strcmp(argv[1], "within")) within(argc > 3 ? rounds : 2000);
    else if (argc > 1 && !strcmp(argv[1], "steps")) steps();
    else if (argc > 1 && !strcmp(argv[1], "hold")) hold();
    else if (argc > 2 && !strcmp(argv[1], "fill")) fill(argv[2]);
    else return fprintf(stderr, "usage: alloc cost [--rounds N] | pairs [--count N] | within [--rounds N] | steps | hold | fill plain|vmm|pool\n"), 2;
    return 0;
}
