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

    enum { W = 6, H = 4, D = 3 };
    char box[D][H][W], inside[2][2][3], filled[D][H][W];
    for (int i = 0; i < W * H * D; i++) {
        ((char *)box)[i] = i;
    }
    hipExtent all = {W, H, D}, part = {3, 2, 2};
    hipPitchedPtr volume = {0};
    hipStream_t side = 0;
    OK(hipStreamCreate(&side));
    GIVES("a box of memory", SUCCESS, hipMalloc3D(&volume, all));
    CHECK("has rows and planes", volume.ptr && volume.pitch >= W && volume.ysize == H);
    hipMemcpy3DParms in = {.srcPtr = {box, W, W, H}, .dstPtr = volume, .extent = all, .kind = HOST_TO_DEVICE};
    GIVES("filled", SUCCESS, hipMemcpy3D(&in));
    hipMemcpy3DParms from = {.srcPtr = volume, .srcPos = {2, 1, 1}, .dstPtr = {inside, 3, 3, 2}, .extent = part,
                             .kind = DEVICE_TO_HOST};
    GIVES("a part of it is read", SUCCESS, hipMemcpy3DAsync(&from, side));
    OK(hipStreamSynchronize(side));
    right = 1;
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 2; y++)
            right &= !memcmp(inside[z][y], &box[z + 1][y + 1][2], 3);
    CHECK("the right one", right);
    GIVES("a part of it is set", SUCCESS, hipMemset3DAsync(volume, 0x55, part, side));
    OK(hipStreamSynchronize(side));
    hipMemcpy3DParms back3 = {.srcPtr = volume, .dstPtr = {filled, W, W, H}, .extent = all, .kind = DEVICE_TO_HOST};
    OK(hipMemcpy3D(&back3));
    right = 1;
    for (int z = 0; z < D; z++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                right &= filled[z][y][x] == (z < 2 && y < 2 && x < 3 ? 0x55 : box[z][y][x]);
    CHECK("and nothing else", right);
    from.srcPtr.pitch = 4;
    GIVES("rows that are too short", INVALID_PITCH, hipMemcpy3D(&from));
    OK(hipStreamDestroy(side));
    OK(hipFree(volume.ptr));

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

    /* Code that is unloaded takes its variables along, also where other code has one in the same place. */
    static int place[16];
    for (size_t n = 4; n <= 16; n += 12) {
        void **other = __hipRegisterFatBinary(&fat_binary);
        __hipRegisterVar(other, place, "other", "other", 0, n * sizeof *place, 0, 0);
        memset(back, 0xff, 64);
        OK(hipMemcpyFromSymbol(back, place, n * sizeof *place, 0, DEVICE_TO_HOST));
        CHECK("a variable begins with zeros", back[0] == 0 && back[1] == 0 && back[n - 1] == 0);
        OK(hipMemcpyToSymbol(place, host, n * sizeof *place, 0, HOST_TO_DEVICE));
        OK(hipGetSymbolAddress(&address, place));
        __hipUnregisterFatBinary(other);
        GIVES("and is gone with its code", INVALID_VALUE, hipMemPtrGetInfo(address, &size));
    }

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
