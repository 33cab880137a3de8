/* Memory of all kinds, copies in all directions, rectangles, variables. */
#include "hip.h"

#define N 4096

static int variable[16];

int main(void)
{
    need_device();
    static int host[N], back[N], many[N];
    int *device = 0, *pinned = 0, *mapped = 0, *managed = 0;
    for (int i = 0; i < N; i++) {
        host[i] = i + 1;
    }
    OK(hipMalloc(&device, sizeof host));
    GIVES("pinned memory", SUCCESS, hipHostMalloc(&pinned, sizeof host, 0));
    memcpy(pinned, host, sizeof host);
    GIVES("copied from", SUCCESS, hipMemcpyAsync(device, pinned, sizeof host, HOST_TO_DEVICE, 0));
    OK(hipMemset(pinned, 0, sizeof host));
    GIVES("by address", SUCCESS, hipMemcpyWithStream(back, device, sizeof host, BY_ADDRESS, 0));
    CHECK("is the same", !memcmp(host, back, sizeof host));
    GIVES("registered memory", SUCCESS, hipHostRegister(many, sizeof many, 0));
    OK(hipHostGetDevicePointer(&mapped, many, 0));
    OK(hipMemcpyDtoH(many, device, sizeof many));
    CHECK("is copied to", mapped && !memcmp(host, many, sizeof host));
    GIVES("and given back", SUCCESS, hipHostUnregister(many));
    GIVES("managed memory", SUCCESS, hipMallocManaged(&managed, sizeof host, 1));
    memcpy(managed, host, sizeof host);
    OK(hipMemcpyDtoD(device, managed, sizeof host));
    OK(hipMemcpyDtoH(back, device, sizeof host));
    CHECK("is known to both sides", !memcmp(host, back, sizeof host));

    size_t pitch = 0;
    char *rows = 0, small[40], again[40];
    for (int i = 0; i < 40; i++) {
        small[i] = i * 3;
    }
    OK(hipMallocPitch(&rows, &pitch, 5, 8));
    CHECK("rows have a pitch", pitch >= 5);
    OK(hipMemcpy2D(rows, pitch, small, 5, 5, 8, HOST_TO_DEVICE));
    OK(hipMemset2D(rows, pitch, 9, 2, 8));
    OK(hipMemcpy2D(again, 5, rows, pitch, 5, 8, DEVICE_TO_HOST));
    int right = 1;
    for (int i = 0; i < 40; i++) {
        right &= again[i] == (i % 5 < 2 ? 9 : small[i]);
    }
    CHECK("rectangles", right);

    __hipRegisterVar(fat_handle, variable, "variable", "variable", 0, sizeof variable, 0, 0);
    size_t size = 0;
    void *address = 0;
    OK(hipGetSymbolSize(&size, variable));
    CHECK("a variable's size", size == sizeof variable);
    GIVES("to a variable", SUCCESS, hipMemcpyToSymbol(variable, host, 16, 8, HOST_TO_DEVICE));
    memset(back, 0xff, 64);
    GIVES("from a variable", SUCCESS, hipMemcpyFromSymbol(back, variable, 64, 0, DEVICE_TO_HOST));
    CHECK("it began with zeros", back[0] == 0 && back[1] == 0 && back[2] == 1 && back[5] == 4 && back[6] == 0);
    OK(hipGetSymbolAddress(&address, variable));
    OK(hipMemcpyDtoH(back, address, 64));
    CHECK("and has an address", back[2] == 1);
    GIVES("past its end", INVALID_VALUE, hipMemcpyToSymbol(variable, host, 64, 4, HOST_TO_DEVICE));

    hipStream_t stream = 0;
    int *pooled = 0;
    OK(hipStreamCreate(&stream));
    GIVES("memory in a stream's order", SUCCESS, hipMallocAsync(&pooled, 64, stream));
    OK(hipMemsetD32Async(pooled, 5, 16, stream));
    OK(hipMemcpyAsync(back, pooled, 64, DEVICE_TO_HOST, stream));
    GIVES("given back", SUCCESS, hipFreeAsync(pooled, stream));
    OK(hipStreamSynchronize(stream));
    CHECK("in its order", back[0] == 5 && back[15] == 5);
    OK(hipHostFree(pinned));
    OK(hipFree(managed));
    OK(hipFree(rows));
    OK(hipFree(device));
    CHECKS_DONE;
}
