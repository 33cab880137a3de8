/* The seven checks with which a report on a new machine begins. */
#include "hip.h"

#define N 4096

int main(void)
{
    need_device();
    int count = 0;
    GIVES("1 devices are counted", SUCCESS, hipGetDeviceCount(&count));
    GIVES("2 a device is set", SUCCESS, hipSetDevice(0));
    /* The old layout's 792 bytes, and what lies behind them. */
    static unsigned char properties[2048];
    memset(properties, 0xa5, sizeof properties);
    hipError_t told = hipGetDeviceProperties(properties, 0);
    size_t memory = 0;
    memcpy(&memory, properties + 256, sizeof memory);
    CHECK("3 properties are told", told == SUCCESS && properties[0] && properties[0] != 0xa5 && memory >= 1 << 20);
    CHECK("3 they end where they end", properties[792] == 0xa5 && properties[791] != 0xa5);

    int *device = 0, *from = malloc(N * sizeof *from), *to = calloc(N, sizeof *to);
    GIVES("4 memory is allocated", SUCCESS, hipMalloc(&device, N * sizeof *device));
    for (int i = 0; i < N; i++) {
        from[i] = i * 7 + 1;
    }
    OK(hipMemcpy(device, from, N * sizeof *from, HOST_TO_DEVICE));
    OK(hipMemcpy(to, device, N * sizeof *to, DEVICE_TO_HOST));
    CHECK("5 copies there and back are the same", !memcmp(from, to, N * sizeof *to));
    OK(hipMemset(device, 0x5a, N * sizeof *device));
    OK(hipMemcpy(to, device, N * sizeof *to, DEVICE_TO_HOST));
    int all = 1;
    for (int i = 0; i < N; i++) {
        all &= to[i] == 0x5a5a5a5a;
    }
    CHECK("6 a set is seen", all);
    GIVES("7 memory is freed", SUCCESS, hipFree(device));
    CHECKS_DONE;
}
