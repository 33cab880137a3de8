/* Modules: loading, functions, what unloading ends. */
#include "hip.h"

int main(void)
{
    need_device();
    hipModule_t one = 0, two = 0;
    hipFunction_t f = 0, g = 0, again = 0;
    GIVES("a module", SUCCESS, hipModuleLoadData(&one, kernel_names));
    OK(hipModuleLoadData(&two, "fakehip kernels: fill"));
    OK(hipModuleGetFunction(&f, one, "fill"));
    OK(hipModuleGetFunction(&again, one, "fill"));
    OK(hipModuleGetFunction(&g, two, "fill"));
    CHECK("the same function twice is one", f == again && f != g);
    GIVES("the other has no such kernel", NOT_FOUND, hipModuleGetFunction(&again, two, "axpy"));
    float *x = 0, host[8] = {0}, value = 4;
    unsigned n = 8;
    OK(hipMalloc(&x, sizeof host));
    for (int i = 0; i < 100; i++) {
        OK(hipModuleLaunchKernel(i % 2 ? f : g, 1, 1, 1, 64, 1, 1, 0, 0, ARGS(&n, &value, &x), 0));
    }
    GIVES("unloading waits", SUCCESS, hipModuleUnload(one));
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("for what was launched", all_are(host, 8, 4));
    GIVES("its function is gone", INVALID_HANDLE,
          hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, 0, ARGS(&n, &value, &x), 0));
    GIVES("the other's is not", SUCCESS,
          hipModuleLaunchKernel(g, 1, 1, 1, 64, 1, 1, 0, 0, ARGS(&n, &value, &x), 0));
    GIVES("a module that is gone", INVALID_HANDLE, hipModuleUnload(one));
    OK(hipModuleUnload(two));
    CHECKS_DONE;
}
