/* Virtual memory management: ranges of addresses, memory with counted handles, mappings, access, descriptors. */
#include "cu.h"

enum { UNIT = 2 << 20, N = UNIT / 4 };

static size_t free_bytes(void)
{
    size_t unused = 0, total = 0;
    OK(cuMemGetInfo_v2(&unused, &total));
    return unused;
}

static int holds(CUdeviceptr at, float want)
{
    static float text[N];
    OK(cuMemcpyDtoH_v2(text, at, UNIT));
    return text[0] == want && text[N / 2] == want && text[N - 1] == want;
}

int main(void)
{
    cu_start();
    cu_functions();
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    CUmemAccessDesc both = {.location = {1, device}, .flags = 3}, none = {.location = {1, device}, .flags = 0};
    CUmemAllocationProp wrong = properties;
    CUdeviceptr range, odd, base;
    uint64_t a, b, again, flags, imported;
    size_t unit = 0, size;
    int attribute = 0, n = N;
    float value = 3;

    OK(cuDeviceGetAttribute(&attribute, 102, device));
    CHECK("the device has it", attribute == 1);
    OK(cuDeviceGetAttribute(&attribute, 103, device));
    CHECK("and descriptors", attribute == 1);
    GIVES("granularity", SUCCESS, cuMemGetAllocationGranularity(&unit, &properties, 0));
    CHECK("is 2 MiB", unit == UNIT);
    GIVES("the recommended one", SUCCESS, cuMemGetAllocationGranularity(&unit, &properties, 1));

    size_t before = free_bytes();
    GIVES("addresses", SUCCESS, cuMemAddressReserve(&range, 8 * UNIT, 0, 0, 0));
    CHECK("at whole units", range % UNIT == 0);
    CHECK("take no memory", free_bytes() == before);
    GIVES("no addresses", INVALID_VALUE, cuMemAddressReserve(&odd, 0, 0, 0, 0));
    GIVES("with flags", INVALID_VALUE, cuMemAddressReserve(&odd, UNIT, 0, 0, 1));
    GIVES("nothing is there to use", INVALID_VALUE, cuMemcpyHtoD_v2(range, &value, sizeof value));

    GIVES("memory", SUCCESS, cuMemCreate(&a, UNIT, &properties, 0));
    size_t first = before - free_bytes();
    CHECK("is in use", first >= UNIT);
    GIVES("more of it", SUCCESS, cuMemCreate(&b, 2 * UNIT, &properties, 0));
    CHECK("is, too", before - free_bytes() >= 3 * UNIT);
    GIVES("not a whole unit", INVALID_VALUE, cuMemCreate(&again, UNIT + 1, &properties, 0));
    wrong.location.id = 1000;
    CHECK("no such device", cuMemCreate(&again, UNIT, &wrong, 0) != SUCCESS);
    wrong = properties;
    CHECK("properties of a handle",
          cuMemGetAllocationPropertiesFromHandle(&wrong, b) == SUCCESS && wrong.location.id == device && wrong.type == 1);

    GIVES("mapped", SUCCESS, cuMemMap(range, UNIT, 0, a, 0));
    GIVES("in the same place", INVALID_VALUE, cuMemMap(range, 2 * UNIT, 0, b, 0));
    GIVES("outside of the addresses", INVALID_VALUE, cuMemMap(range + 7 * UNIT, 2 * UNIT, 0, b, 0));
    GIVES("behind it", SUCCESS, cuMemMap(range + UNIT, 2 * UNIT, 0, b, 0));
    GIVES("not without access", INVALID_VALUE, cuMemcpyHtoD_v2(range, &value, sizeof value));
    GIVES("access", SUCCESS, cuMemGetAccess(&flags, &both.location, range));
    CHECK("there is none", flags == 0);
    GIVES("access to what is not mapped", INVALID_VALUE, cuMemSetAccess(range, 4 * UNIT, &both, 1));
    GIVES("access to all of it", SUCCESS, cuMemSetAccess(range, 3 * UNIT, &both, 1));
    GIVES("it has", SUCCESS, cuMemGetAccess(&flags, &both.location, range + UNIT));
    CHECK("both rights", flags == 3);

    void *arguments[] = {&n, &value, &range};
    GIVES("a kernel writes there", SUCCESS, cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
    CHECK("and it is so", holds(range, 3));
    GIVES("a copy over both", SUCCESS, cuMemcpyDtoD_v2(range + UNIT, range, UNIT));
    CHECK("is there", holds(range + UNIT, 3));
    GIVES("range of a mapping", SUCCESS, cuMemGetAddressRange_v2(&base, &size, range + UNIT + 5));
    CHECK("is the mapping", base == range + UNIT && size == 2 * UNIT);
    uint64_t told = 0;
    GIVES("start of the addresses", SUCCESS, cuPointerGetAttribute(&told, 11, range + UNIT + 5));
    CHECK("is the reservation's", told == range);
    int capable = 1;
    GIVES("whether a handle of the old kind", SUCCESS, cuPointerGetAttribute(&capable, 10, range));
    CHECK("cannot be had", !capable);

    GIVES("retained by address", SUCCESS, cuMemRetainAllocationHandle(&again, (void *)(range + 5)));
    CHECK("as the same handle", again == a);
    GIVES("released", SUCCESS, cuMemRelease(a));
    GIVES("and again", SUCCESS, cuMemRelease(a));
    CHECK("the mapping keeps it", before - free_bytes() >= 3 * UNIT && holds(range, 3));
    GIVES("a handle that is gone", INVALID_VALUE, cuMemMap(range + 4 * UNIT, UNIT, 0, a, 0));
    GIVES("comes back by address", SUCCESS, cuMemRetainAllocationHandle(&again, (void *)range));
    CHECK("as it was", again == a);
    GIVES("half of a mapping", INVALID_VALUE, cuMemUnmap(range + UNIT, UNIT));
    GIVES("addresses in use", INVALID_VALUE, cuMemAddressFree(range, 8 * UNIT));
    GIVES("unmapped", SUCCESS, cuMemUnmap(range, 3 * UNIT));
    GIVES("is not there", INVALID_VALUE, cuMemcpyHtoD_v2(range, &value, sizeof value));
    CHECK("its memory is in use", before - free_bytes() >= 3 * UNIT);
    GIVES("mapped elsewhere", SUCCESS, cuMemMap(range + 5 * UNIT, UNIT, 0, a, 0));
    GIVES("with access", SUCCESS, cuMemSetAccess(range + 5 * UNIT, UNIT, &both, 1));
    CHECK("what was written is there", holds(range + 5 * UNIT, 3));
    GIVES("access withdrawn", SUCCESS, cuMemSetAccess(range + 5 * UNIT, UNIT, &none, 1));
    GIVES("is withdrawn", INVALID_VALUE, cuMemcpyHtoD_v2(range + 5 * UNIT, &value, sizeof value));

    int fd = -1;
    GIVES("a descriptor", SUCCESS, cuMemExportToShareableHandle(&fd, a, 1, 0));
    size_t shared = free_bytes();
    GIVES("imported", SUCCESS, cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, 1));
    CHECK("is the same memory, counted once", free_bytes() == shared);
    GIVES("mapped a second time", SUCCESS, cuMemMap(range, UNIT, 0, imported, 0));
    GIVES("with access", SUCCESS, cuMemSetAccess(range, UNIT, &both, 1));
    CHECK("with what was written", holds(range, 3));
    close(fd);

    OK(cuMemUnmap(range, UNIT));
    OK(cuMemUnmap(range + 5 * UNIT, UNIT));
    OK(cuMemRelease(imported));
    OK(cuMemRelease(a));
    OK(cuMemRelease(b));
    CHECK("all memory is back", free_bytes() == before);
    GIVES("addresses back", SUCCESS, cuMemAddressFree(range, 8 * UNIT));
    CHECKS_DONE;
}
