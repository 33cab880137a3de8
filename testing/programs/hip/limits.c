/* Memory in pieces of 8 MiB, in each way until it is refused or 16 are there: "ok WAY: N pieces, error E", and what is told. */
#include "hip.h"

hipError_t hipMemGetInfo(size_t *, size_t *);
hipError_t hipDeviceTotalMem(size_t *, int);
hipError_t hipGetDevicePropertiesR0600(void *, int);

enum { MIB = 1 << 20, PIECE = 8 * MIB, MOST = 16 };

static hipStream_t stream;

static hipError_t take(int way, hipPitchedPtr *piece)
{
    hipExtent box = {4096, 256, 8};
    switch (way) {
    case 0: return hipMalloc(&piece->ptr, PIECE);
    case 1: return hipMallocManaged(&piece->ptr, PIECE, 1);
    case 2: return hipMallocPitch(&piece->ptr, &piece->pitch, 4096, 2048);
    case 3: return hipMalloc3D(piece, box);
    default: return hipMallocAsync(&piece->ptr, PIECE, stream);
    }
}

static size_t left(void)
{
    size_t unused, total;
    OK(hipDeviceSynchronize());
    OK(hipMemGetInfo(&unused, &total));
    return unused / MIB;
}

int main(void)
{
    static const char *const ways[] = {"plain", "managed", "rows", "box", "ordered"};
    static size_t properties[1 << 10];
    size_t total, unused, whole;
    void *pinned;
    need_device();
    OK(hipMemGetInfo(&unused, &total));
    OK(hipDeviceTotalMem(&whole, 0));
    OK(hipGetDevicePropertiesR0600(properties, 0));
    printf("ok told: %zu %zu %zu MiB\n", total / MIB, whole / MIB, properties[288 / sizeof(size_t)] / MIB);
    OK(hipStreamCreate(&stream));
    for (int way = 0; way < 5; way++) {
        hipPitchedPtr pieces[MOST] = {0};
        hipError_t got = SUCCESS;
        size_t before = left();
        int held = 0;
        while (held < MOST && !(got = take(way, &pieces[held])))
            held++;
        printf("ok %s: %d pieces, error %d\n", ways[way], held, got);
        CHECK(ways[way], left() + 8 * held <= before + 2);
        for (int n = 0; n < held; n++)
            OK(way == 4 ? hipFreeAsync(pieces[n].ptr, stream) : hipFree(pieces[n].ptr));
        OK(hipStreamSynchronize(stream));
        CHECK("all of it is free again", left() == before);
    }
    OK(hipHostMalloc(&pinned, 2 * PIECE, 0));
    OK(hipHostFree(pinned));
    OK(hipMalloc(&pinned, PIECE));
    OK(hipDeviceReset());
    CHECKS_DONE;
}
