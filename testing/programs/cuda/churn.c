/* Random allocations: churn SEED. A line "go N" is answered, after N bursts of allocations and frees of all kinds, by "used BYTES",
 * the memory that this program is told to have. "take MIB" is answered by "took RESULT", "pairs N" by "paired" after N
 * allocations of 64 KiB in the order of a stream, each freed. "share" takes 4 MiB plainly and 2 MiB
 * behind a handle, exports both, and pins 1 MiB. "end" ends the program, with what it has. As `churn device`, "used BYTES" is that of
 * the device at each line. */
#include "cu.h"

enum { MIB = 1 << 20, MOST = 48 };

static CUstream stream;
static uint64_t state;

static unsigned below(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % n;
}

static struct piece {
    int kind; /* 0 = none, 1 = plain, 2 = in a stream's order, 3 = handle, 4 = mapped, 5 = array, 6 = pinned */
    size_t bytes;
    uint64_t at, handle;
} pieces[MOST];

/* A size by which memory is taken from the device: a multiple of 512 bytes below 1 MiB, of 2 MiB above. */
static size_t size(void) { return below(2) ? (1 + below(1024)) * 512ul : (1 + below(2)) * 2ul * MIB; }

static void take(struct piece *piece)
{
    CUmemAllocationProp properties = {.type = 1, .location = {1, device}};
    CUDA_ARRAY_DESCRIPTOR array = {128, 1 + below(2048), 0x20, 1};
    CUresult got = 1;
    piece->kind = 1 + below(6);
    piece->bytes = piece->kind == 3 || piece->kind == 4 ? 2 * MIB * (1 + below(2)) : size();
    switch (piece->kind) {
    case 1: got = cuMemAlloc_v2(&piece->at, piece->bytes); break;
    case 2: got = cuMemAllocAsync(&piece->at, piece->bytes, stream); break;
    case 3: got = cuMemCreate(&piece->handle, piece->bytes, &properties, 0); break;
    case 4:
        got = cuMemCreate(&piece->handle, piece->bytes, &properties, 0);
        if (got)
            break;
        if (cuMemAddressReserve(&piece->at, piece->bytes, 0, 0, 0)) {
            piece->kind = 3;
            break;
        }
        OK(cuMemMap(piece->at, piece->bytes, 0, piece->handle, 0));
        if (below(2)) {
            OK(cuMemRelease(piece->handle));
            OK(cuMemRetainAllocationHandle(&piece->handle, (void *)piece->at));
        }
        OK(cuMemRelease(piece->handle));
        break;
    case 5: got = cuArrayCreate_v2((CUarray *)&piece->handle, &array); break;
    case 6: got = cuMemHostAlloc((void **)&piece->at, piece->bytes, 0); break;
    }
    if (got)
        piece->kind = 0;
}

static void give(struct piece *piece)
{
    switch (piece->kind) {
    case 1: OK(below(4) ? cuMemFree_v2(piece->at) : cuMemFreeAsync(piece->at, stream)); break;
    case 2: OK(below(4) ? cuMemFreeAsync(piece->at, stream) : cuMemFree_v2(piece->at)); break;
    case 3: OK(cuMemRelease(piece->handle)); break;
    case 4:
        OK(cuMemUnmap(piece->at, piece->bytes));
        OK(cuMemAddressFree(piece->at, piece->bytes));
        break;
    case 5: OK(cuArrayDestroy((CUarray)piece->handle)); break;
    case 6: OK(cuMemFreeHost((void *)piece->at)); break;
    }
    piece->kind = 0;
}

static void share(void)
{
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    CUresult (*ipc)(void *, CUdeviceptr);
    uint64_t handle, bytes[8];
    CUdeviceptr p;
    void *pinned;
    int file;
    OK(cuGetProcAddress("cuIpcGetMemHandle", (void **)&ipc, 12000, 0));
    OK(cuMemAlloc_v2(&p, 4 * MIB));
    OK(ipc(bytes, p + 4096));
    OK(ipc(bytes, p));
    OK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    OK(cuMemExportToShareableHandle(&file, handle, 1, 0));
    OK(cuMemHostAlloc(&pinned, MIB, 0));
    /* As another process would: it counts here already. */
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, 1));
}

int main(int argc, char **argv)
{
    int whole = argc > 1 && !strcmp(argv[1], "device");
    char line[64];
    state = argc > 1 ? strtoull(argv[1], NULL, 10) * 2654435761u + 88172645463325252u : 1;
    cu_start();
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        CUdeviceptr taken;
        if (!strncmp(line, "take ", 5)) {
            printf("took %d\n", cuMemAlloc_v2(&taken, strtoul(line + 5, NULL, 10) * MIB));
            fflush(stdout);
            continue;
        }
        if (!strncmp(line, "pairs ", 6)) {
            for (unsigned long n = strtoul(line + 6, NULL, 10); n > 0; n--) {
                OK(cuMemAllocAsync(&taken, 64 << 10, stream));
                OK(cuMemFreeAsync(taken, stream));
            }
            puts("paired");
            fflush(stdout);
            continue;
        }
        if (!strncmp(line, "share", 5))
            share();
        unsigned long bursts = strncmp(line, "go ", 3) ? 0 : strtoul(line + 3, NULL, 10);
        size_t unused, total;
        for (unsigned long n = 0; n < bursts && !whole; n++) {
            for (int steps = 1 + below(6); steps > 0; steps--) {
                struct piece *piece = &pieces[below(MOST)];
                piece->kind ? give(piece) : take(piece);
            }
        }
        OK(cuCtxSynchronize());
        OK(cuMemGetInfo_v2(&unused, &total));
        printf("used %zu\n", total - unused);
        fflush(stdout);
    }
    return checks_failed;
}
