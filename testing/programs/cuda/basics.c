/* Devices, memory, copies, sets, kernels with checked results. */
#include "cu.h"

enum { N = 4096 };

static void queries(void)
{
    char name[64] = "", bus[16] = "";
    unsigned char uuid[16];
    int version = 0, value = 0, count = 0;
    size_t total = 0, unused = 0;
    CUdevice same = -1;
    GIVES("driver version", SUCCESS, cuDriverGetVersion(&version));
    CHECK("version is of CUDA 12 or later", version >= 12000);
    OK(cuDeviceGetCount(&count));
    GIVES("a device that is not there", INVALID_DEVICE, cuDeviceGet(&same, count));
    OK(cuDeviceGetName(name, sizeof name, device));
    CHECK("the device has a name", strlen(name) > 3);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    OK(cuDeviceGetByPCIBusId(&same, bus));
    CHECK("the device is found by its address", same == device);
    GIVES("uuid", SUCCESS, cuDeviceGetUuid_v2(uuid, device));
    OK(cuDeviceTotalMem_v2(&total, device));
    OK(cuMemGetInfo_v2(&unused, &total));
    CHECK("there is memory", total >= 1 << 20 && unused <= total && unused > 0);
    OK(cuDeviceGetAttribute(&value, 122, device));
    CHECK("64-bit stream memory operations", value == 1);
    OK(cuDeviceGetAttribute(&value, 123, device));
    CHECK("NOR stream memory operations", value == 1);
    GIVES("an attribute that there is not", INVALID_VALUE, cuDeviceGetAttribute(&value, 100000, device));
}

static void copies(void)
{
    CUdeviceptr a, b, base;
    size_t size;
    unsigned char host[N], back[N];
    OK(cuMemAlloc_v2(&a, N));
    OK(cuMemAlloc_v2(&b, N));
    for (int i = 0; i < N; i++) {
        host[i] = (unsigned char)(i * 7);
    }
    GIVES("host to device", SUCCESS, cuMemcpyHtoD_v2(a, host, N));
    GIVES("device to device", SUCCESS, cuMemcpyDtoD_v2(b, a, N));
    memset(back, 0, N);
    GIVES("device to host", SUCCESS, cuMemcpyDtoH_v2(back, b, N));
    CHECK("it came through", memcmp(host, back, N) == 0);

    OK(cuMemsetD8_v2(a, 0x11, N));
    OK(cuMemsetD16_v2(a + 16, 0x2233, 8));
    OK(cuMemsetD32_v2(a + 64, 0x44556677, 4));
    OK(cuMemcpyDtoH_v2(back, a, N));
    uint32_t word;
    uint16_t half;
    memcpy(&word, back + 76, 4);
    memcpy(&half, back + 30, 2);
    CHECK("sets of 8, 16 and 32 bits", back[15] == 0x11 && half == 0x2233 && back[32] == 0x11 && word == 0x44556677 &&
                                           back[80] == 0x11 && back[N - 1] == 0x11);

    OK(cuMemGetAddressRange_v2(&base, &size, a + 100));
    CHECK("an address knows its block", base == a && size >= N);
    GIVES("an address that there is not", INVALID_VALUE, cuMemcpyDtoH_v2(back, 256, 16));
    GIVES("free", SUCCESS, cuMemFree_v2(a));
    GIVES("free null", SUCCESS, cuMemFree_v2(0));
    OK(cuMemFree_v2(b));
}

static void rectangles(void)
{
    enum { WIDTH = 100, ROWS = 17 };
    CUdeviceptr p;
    size_t pitch;
    unsigned char host[WIDTH * ROWS], back[WIDTH * ROWS];
    OK(cuMemAllocPitch_v2(&p, &pitch, WIDTH, ROWS, 4));
    CHECK("pitch", pitch >= WIDTH && pitch % 16 == 0);
    for (int i = 0; i < WIDTH * ROWS; i++) {
        host[i] = (unsigned char)(i * 3 + 1);
    }
    CUDA_MEMCPY2D copy = { .srcMemoryType = 1, .srcHost = host, .srcPitch = WIDTH, .dstMemoryType = 2, .dstDevice = p,
                           .dstPitch = pitch, .WidthInBytes = WIDTH, .Height = ROWS };
    GIVES("rows to the device", SUCCESS, cuMemcpy2D_v2(&copy));
    OK(cuMemsetD2D8_v2(p + pitch + 1, pitch, 0xee, 2, 2));
    copy = (CUDA_MEMCPY2D){ .srcMemoryType = 2, .srcDevice = p, .srcPitch = pitch, .dstMemoryType = 1, .dstHost = back,
                            .dstPitch = WIDTH, .WidthInBytes = WIDTH, .Height = ROWS };
    GIVES("rows back", SUCCESS, cuMemcpy2D_v2(&copy));
    for (int row = 1; row <= 2; row++) {
        memset(host + row * WIDTH + 1, 0xee, 2);
    }
    CHECK("they came through, with a small rectangle set", memcmp(host, back, sizeof back) == 0);
    OK(cuMemFree_v2(p));
}

static void kernels(void)
{
    CUdeviceptr x, y, sum, at;
    float *result = pinned(sizeof *result, &at);
    OK(cuMemAlloc_v2(&x, N * 4));
    OK(cuMemAlloc_v2(&y, N * 4));
    OK(cuMemAlloc_v2(&sum, 4));
    GIVES("fill", SUCCESS, launch_fill(NULL, x, N, 2));
    GIVES("fill the other", SUCCESS, launch_fill(NULL, y, N, 1));
    GIVES("axpy", SUCCESS, launch_axpy(NULL, y, x, N, 3));
    CHECK("1 + 3 * 2", all_are(y, N, 7));
    GIVES("reduce", SUCCESS, launch_reduce(NULL, sum, y, N));
    OK(cuMemcpyDtoH_v2(result, sum, 4));
    CHECK("the sum", *result == 7.0f * N);

    struct { unsigned n; float v; CUdeviceptr p; } packed = { N, 9, x };
    size_t bytes = sizeof packed;
    void *extra[] = { (void *)1, &packed, (void *)2, &bytes, NULL };
    GIVES("arguments in a buffer", SUCCESS, cuLaunchKernel(fill, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    CHECK("filled", all_are(x, N, 9));

    unsigned n = N;
    float v = 5;
    CUlaunchConfig config = { 4, 1, 1, 64, 1, 1, 0, NULL, NULL, 0 };
    GIVES("launch with a configuration", SUCCESS, cuLaunchKernelEx(&config, fill, (void *[]){ &n, &v, &x }, NULL));
    CHECK("filled again", all_are(x, N, 5));
    v = 6;
    GIVES("cooperative launch", SUCCESS,
          cuLaunchCooperativeKernel(fill, 4, 1, 1, 64, 1, 1, 0, NULL, (void *[]){ &n, &v, &x }));
    CHECK("filled once more", all_are(x, N, 6));

    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    OK(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "fill"));
    OK(cuKernelGetFunction(&function, kernel));
    v = 8;
    GIVES("a library's function", SUCCESS, launch(function, NULL, (void *[]){ &n, &v, &x }));
    CHECK("it did it", all_are(x, N, 8));
    v = 3;
    GIVES("a library's kernel itself", SUCCESS, launch((CUfunction)kernel, NULL, (void *[]){ &n, &v, &x }));
    CHECK("it did it, too", all_are(x, N, 3));
    GIVES("unload the library", SUCCESS, cuLibraryUnload(library));
    int threads = 0;
    GIVES("function attribute", SUCCESS, cuFuncGetAttribute(&threads, 0, fill));
    CHECK("threads of a block", threads >= 64);
    GIVES("no such function", NOT_FOUND, cuModuleGetFunction(&function, module, "nothing"));
    OK(cuMemFreeHost(result));
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(y));
    OK(cuMemFree_v2(sum));
}

static void pool(void)
{
    CUstream s;
    CUdeviceptr p;
    OK(cuStreamCreate(&s, NON_BLOCKING));
    GIVES("memory in stream order", SUCCESS, cuMemAllocAsync(&p, N * 4, s));
    OK(launch_fill(s, p, N, 4));
    float first = 0;
    OK(cuMemcpyDtoHAsync_v2(&first, p, 4, s));
    OK(cuStreamSynchronize(s));
    CHECK("used", first == 4);
    GIVES("freed in stream order", SUCCESS, cuMemFreeAsync(p, s));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
}

int main(void)
{
    cu_start();
    queries();
    copies();
    rectangles();
    kernels();
    pool();
    OK(cuDevicePrimaryCtxRelease_v2(device));
    CHECKS_DONE;
}
