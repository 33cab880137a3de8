/* Code as a library, since ROCm 7.2: found by name, so that the program starts with older runtimes too. */
#include "hip.h"
#include <dlfcn.h>

typedef struct ihipLibrary_t *hipLibrary_t;
typedef struct ihipKernel_t *hipKernel_t;
typedef hipError_t (*load_fn)(hipLibrary_t *, const void *, void *, void *, unsigned, void *, void *, unsigned);
typedef hipError_t (*unload_fn)(hipLibrary_t);
typedef hipError_t (*kernel_fn)(hipKernel_t *, hipLibrary_t, const char *);
typedef hipError_t (*count_fn)(unsigned *, hipLibrary_t);
typedef hipError_t (*function_fn)(hipFunction_t *, hipKernel_t);

int main(void)
{
    need_device();
    load_fn load = (load_fn)dlsym(RTLD_DEFAULT, "hipLibraryLoadData");
    if (!load) {
        puts("ok this release has no libraries");
        return 0;
    }
    unload_fn unload = (unload_fn)dlsym(RTLD_DEFAULT, "hipLibraryUnload");
    kernel_fn get = (kernel_fn)dlsym(RTLD_DEFAULT, "hipLibraryGetKernel");
    count_fn count = (count_fn)dlsym(RTLD_DEFAULT, "hipLibraryGetKernelCount");
    function_fn function = (function_fn)dlsym(RTLD_DEFAULT, "hipKernelGetFunction");
    hipLibrary_t library = 0;
    hipKernel_t kernel = 0;
    hipFunction_t f = 0;
    unsigned n = 0;
    GIVES("a library", SUCCESS, load(&library, "fakehip kernels: fill axpy", 0, 0, 0, 0, 0, 0));
    OK(count(&n, library));
    CHECK("its kernels are counted", n == 2);
    GIVES("one that it lacks", NOT_FOUND, get(&kernel, library, "gemm"));
    GIVES("one that it has", SUCCESS, get(&kernel, library, "fill"));
    GIVES("as a function", SUCCESS, function(&f, kernel));
    float *x = 0, host[8] = {0}, value = 4;
    n = 8;
    OK(hipMalloc(&x, sizeof host));
    GIVES("is launched", SUCCESS, hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, 0, ARGS(&n, &value, &x), 0));
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("and runs", all_are(host, 8, 4));
    GIVES("unloaded", SUCCESS, unload(library));
    GIVES("its function is gone", INVALID_HANDLE,
          hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, 0, ARGS(&n, &value, &x), 0));
    OK(hipFree(x));
    CHECKS_DONE;
}
