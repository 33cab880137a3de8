/* A library as hipcc makes them: it registers its kernel and its variable when it is loaded, and unregisters at its end.
 * hip_work launches in every way there is, on a stream of its own and on the default ones; any answer but success is
 * the binding's fault. */
#include "fakehip.h"
#include <stdio.h>
#include <stdlib.h>

static void kernel_handle(void) {}
static int variable;
static void **module;

__attribute__((constructor)) static void registers(void)
{
    static char name[] = "kernel";
    module = __hipRegisterFatBinary(&module);
    __hipRegisterFunction(module, (void *)kernel_handle, name, name, -1u, NULL, NULL, NULL, NULL, NULL);
    __hipRegisterVar(module, &variable, name, name, 0, sizeof variable, 0, 0);
}

__attribute__((destructor)) static void unregisters(void)
{
    __hipUnregisterFatBinary(module);
}

static int failures;

static void check(int rc)
{
    failures += rc != 0;
}

int hip_work(void)
{
    char here[16] = "01234567abcdefg";
    void *stream, *at, *loaded, *function, *args[] = {(void *)0x1234};
    struct dim3 grid = {2, 3, 4}, block = {5, 6, 7};
    failures = 0;
    check(hipMalloc(&at, 64));
    check(hipStreamCreate(&stream));
    check(hipLaunchKernel((void *)kernel_handle, grid, block, args, 99, stream));
    check(hipLaunchKernel((void *)kernel_handle, grid, block, args, 0, NULL));
    check(hipLaunchKernel_spt((void *)kernel_handle, grid, block, args, 0, stream));
    check(hipLaunchKernel_spt((void *)kernel_handle, grid, block, args, 0, NULL));
    check(hipMemcpyToSymbol(&variable, here, sizeof variable, 0, 1));
    check(hipMemcpy(at, here, 16, 1));
    check(hipMemcpyAsync(at, here, 16, 1, stream));
    check(hipMemPrefetchAsync(at, 16, 0, stream));
    check(hipModuleLoadData(&loaded, here));
    check(hipModuleGetFunction(&function, loaded, "kernel"));
    check(hipModuleLaunchKernel(function, 1, 2, 3, 4, 5, 6, 7, stream, args, NULL));
    check(_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
        function, 8, 10, 12, 4, 5, 6, 7, stream, args, NULL, (void *)0xe1, (void *)0xe2, 11));
    check(hipStreamSynchronize(stream));
    check(hipStreamSynchronize_spt(NULL));
    check(hipStreamDestroy(stream));
    check(hipDeviceSynchronize());
    check(hipFree(at));
    return failures;
}

/* The addresses that this library is bound to. */
void *hip_launch(void)
{
    return (void *)hipLaunchKernel;
}

const void *hip_kernel(void)
{
    return (void *)kernel_handle;
}

const void *hip_variable(void)
{
    return &variable;
}
