/* Memory with known contents, which a test has leave the device and come back. Reads commands from its standard input, one in a line,
 * and answers each with a line. Arguments: MiB (32), number of pieces of 2 MiB beside it (0), MiB of other memory that nothing uses but
 * "idle" (0).
 *
 * add: kernels add 1 to its ends.        check: reads them back.           free: frees it.
 * many: 200 times "add"; names the times that this reached memory of the host (software driver).
 * idle: reads the other memory.
 * signals: SIGUSR1 is handled.            fork: a child ends, with 7.
 * end: exits, with functions at exit that free it.
 * room: free memory of the device, in MiB.
 *
 * These use memory such that it must stay on the device, each in a way:
 * managed, variable, library: managed memory, a managed variable of a module, of a library.
 * share: CUDA IPC.                       export: a descriptor of memory that is mapped here.
 * multicast, range: an object has such memory, or a range of the plain one.
 * dma-buf, tokens, all-tokens, synchronous: as before other hardware uses it.
 * open PATH, close: a file is open. */
#include "cu.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

static CUdeviceptr memory, idle;
static size_t count, idle_count;
static volatile sig_atomic_t handled;

enum { WINDOW = 4096, UNIT = 2 << 20, P2P_TOKENS = 5, SYNC_MEMOPS = 6, DMA_BUF = 1 };

typedef struct { char bytes[64]; } CUipcMemHandle;
typedef struct { unsigned devices; size_t bytes; uint64_t handles, flags; } CUmulticastObjectProp;

#define MORE(F)                                                                                                        \
    F(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))                                                              \
    F(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                                               \
    F(cuPointerGetAttributes, (unsigned, const int *, void **, CUdeviceptr))                                           \
    F(cuPointerSetAttribute, (const void *, int, CUdeviceptr))                                                         \
    F(cuMemGetHandleForAddressRange, (void *, CUdeviceptr, size_t, int, uint64_t))                                     \
    F(cuMulticastCreate, (uint64_t *, const CUmulticastObjectProp *))                                                  \
    F(cuMulticastAddDevice, (uint64_t, CUdevice))                                                                      \
    F(cuMulticastBindMem, (uint64_t, size_t, uint64_t, size_t, size_t, uint64_t))                                      \
    F(cuMulticastBindAddr, (uint64_t, size_t, CUdeviceptr, size_t, uint64_t))                                          \
    F(cuModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *))                                         \
    F(cuLibraryGetManaged, (CUdeviceptr *, size_t *, CUlibrary, const char *))
MORE(CU_DECLARE)

static const char VARIABLE[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                               ".visible .global .attribute(.managed) .align 8 .b8 counters[4096];\n";

/* A multicast object for memory of one device. */
static uint64_t object(void)
{
    CUmulticastObjectProp properties = {.devices = 1, .bytes = UNIT};
    uint64_t made;
    OK(cuMulticastCreate(&made, &properties));
    OK(cuMulticastAddDevice(made, device));
    return made;
}

/* Memory that is mapped here, with its handle. */
static uint64_t mapped(CUdeviceptr *at)
{
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    CUmemAccessDesc both = {.location = {1, device}, .flags = 3};
    uint64_t made;
    OK(cuMemAddressReserve(at, UNIT, 0, 0, 0));
    OK(cuMemCreate(&made, UNIT, &properties, 0));
    OK(cuMemMap(*at, UNIT, 0, made, 0));
    OK(cuMemSetAccess(*at, UNIT, &both, 1));
    return made;
}

/* Uses memory such that it must stay. */
static int keeps(const char *how)
{
    static int opened = -1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    MORE(CU_LOAD)
    CUdeviceptr at;
    CUipcMemHandle handle;
    CUmodule code;
    CUlibrary codes;
    size_t bytes;
    char tokens[16];
    int fd, list[] = {P2P_TOKENS};
    unsigned on = 1;
    void *places[] = {tokens};
    if (!strcmp(how, "managed")) {
        OK(cuMemAllocManaged(&at, 1 << 20, 1));
    } else if (!strcmp(how, "variable")) {
        OK(cuModuleLoadData(&code, VARIABLE));
        OK(cuModuleGetGlobal_v2(&at, &bytes, code, "counters"));
    } else if (!strcmp(how, "library")) {
        OK(cuLibraryLoadData(&codes, VARIABLE, NULL, NULL, 0, NULL, NULL, 0));
        for (int i = 0; i < 2; i++) OK(cuLibraryGetManaged(&at, &bytes, codes, "counters"));
    } else if (!strcmp(how, "share")) {
        OK(cuIpcGetMemHandle(&handle, memory));
    } else if (!strcmp(how, "export")) {
        OK(cuMemExportToShareableHandle(&fd, mapped(&at), 1, 0));
    } else if (!strcmp(how, "multicast")) {
        OK(cuMulticastBindMem(object(), 0, mapped(&at), 0, UNIT, 0));
    } else if (!strcmp(how, "range")) {
        OK(cuMulticastBindAddr(object(), 0, memory, UNIT, 0));
    } else if (!strcmp(how, "dma-buf")) {
        OK(cuMemGetHandleForAddressRange(&fd, memory, UNIT, DMA_BUF, 0));
    } else if (!strcmp(how, "tokens")) {
        (void)cuPointerGetAttribute(tokens, P2P_TOKENS, memory);
    } else if (!strcmp(how, "all-tokens")) {
        OK(cuPointerGetAttributes(1, list, places, memory));
    } else if (!strcmp(how, "synchronous")) {
        /* The driver refuses it for memory in chunks; it stays none the less. */
        (void)cuPointerSetAttribute(&on, SYNC_MEMOPS, memory);
    } else if (!strncmp(how, "open ", 5)) {
        opened = open(how + 5, O_RDWR);
        if (opened < 0) return 0;
    } else if (!strcmp(how, "close")) {
        close(opened);
    } else {
        return 0;
    }
    printf("kept\n");
    return 1;
}

enum { PIECES_MAX = 4 };
static CUdeviceptr pieces[PIECES_MAX];
static int n_pieces;

/* The first and the last elements of it get a value, and the first ones of each piece. */
static void set(float value)
{
    for (int i = 0; i < n_pieces; i++) OK(launch_fill(NULL, pieces[i], WINDOW, value));
    OK(launch_fill(NULL, memory, WINDOW, value));
    OK(launch_fill(NULL, memory + (count - WINDOW) * sizeof(float), WINDOW, value));
    OK(cuCtxSynchronize());
}

/* Times that commands reached memory of the host: the counter before the last one. */
static unsigned long long host_ranges(void)
{
    unsigned long long values[64];
    size_t (*counters)(unsigned long long *, size_t);
    *(void **)&counters = dlsym(RTLD_DEFAULT, "fakeGetCounters");
    return counters ? values[counters(values, 64) - 2] : 0;
}

static int is(float value)
{
    for (int i = 0; i < n_pieces; i++) {
        if (!all_are(pieces[i], WINDOW, value)) return 0;
    }
    return all_are(memory, WINDOW, value) && all_are(memory + (count - WINDOW) * sizeof(float), WINDOW, value);
}

static void handle(int number)
{
    (void)number;
    handled++;
}

static int frees_at_exit;

static void free_at_exit(void)
{
    if (!frees_at_exit) return;
    printf("free at exit %d\n", (int)cuMemFree_v2(memory));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[512];
    float value = 1;
    count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 32) * (1 << 20) / sizeof(float);
    atexit(free_at_exit);
    idle_count = (argc > 3 ? strtoul(argv[3], NULL, 10) : 0) * (1 << 20) / sizeof(float);
    cu_start();
    if (idle_count) {
        OK(cuMemAlloc_v2(&idle, idle_count * sizeof(float)));
        OK(launch_fill(NULL, idle, WINDOW, 7));
    }
    OK(cuMemAlloc_v2(&memory, count * sizeof(float)));
    n_pieces = argc > 2 ? atoi(argv[2]) : 0;
    if (n_pieces > PIECES_MAX) return 2;
    for (int i = 0; i < n_pieces; i++) OK(cuMemAlloc_v2(&pieces[i], UNIT));
    set(value);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "add")) {
            set(++value);
            printf("added\n");
        } else if (!strcmp(line, "many")) {
            unsigned long long before = host_ranges();
            for (int i = 0; i < 200; i++) set(++value);
            printf("%llu\n", host_ranges() - before);
        } else if (!strcmp(line, "idle")) {
            printf("%s\n", all_are(idle, WINDOW, 7) ? "right" : "wrong");
        } else if (!strcmp(line, "check")) {
            printf("%s\n", is(value) ? "right" : "wrong");
        } else if (!strcmp(line, "free")) {
            OK(cuMemFree_v2(memory));
            printf("freed\n");
        } else if (!strcmp(line, "signals")) {
            struct sigaction action = {.sa_handler = handle};
            sigaction(SIGUSR1, &action, NULL);
            printf("handles\n");
        } else if (!strcmp(line, "fork")) {
            int status = 0;
            pid_t child = fork();
            if (child == 0) _exit(7);
            waitpid(child, &status, 0);
            printf("child %d\n", WEXITSTATUS(status));
        } else if (!strcmp(line, "room")) {
            size_t free, total;
            OK(cuMemGetInfo_v2(&free, &total));
            printf("%zu\n", free >> 20);
        } else if (!strcmp(line, "end")) {
            frees_at_exit = 1;
            exit(0);
        } else if (!keeps(line)) {
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
