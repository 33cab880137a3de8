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
typedef hipError_t (*list_fn)(hipKernel_t *, unsigned, hipLibrary_t);
typedef hipError_t (*name_fn)(const char **, hipKernel_t);
typedef hipError_t (*parameter_fn)(hipKernel_t, size_t, size_t *, size_t *);
typedef hipError_t (*ask_fn)(int *, int, hipKernel_t, int);
typedef hipError_t (*tell_fn)(int, int, hipKernel_t, int);

/* What a library tells of its kernels. */
static void tells(hipLibrary_t library, hipKernel_t fills)
{
    list_fn list = (list_fn)dlsym(RTLD_DEFAULT, "hipLibraryEnumerateKernels");
    name_fn name = (name_fn)dlsym(RTLD_DEFAULT, "hipKernelGetName");
    parameter_fn parameter = (parameter_fn)dlsym(RTLD_DEFAULT, "hipKernelGetParamInfo");
    ask_fn ask = (ask_fn)dlsym(RTLD_DEFAULT, "hipKernelGetAttribute");
    tell_fn tell = (tell_fn)dlsym(RTLD_DEFAULT, "hipKernelSetAttribute");
    hipKernel_t all[3] = {0, 0, fills};
    const char *first = "", *second = "";
    size_t offset = 0, size = 0;
    int value = -1;
    GIVES("none of its kernels", SUCCESS, list(all, 0, library));
    CHECK("are none", !all[0]);
    GIVES("all of them", SUCCESS, list(all, 3, library));
    OK(name(&first, all[0]));
    OK(name(&second, all[1]));
    CHECK("by their names", all[2] == fills && all[0] != all[1] && (all[0] == fills || all[1] == fills)
                                && !strcmp(all[0] == fills ? first : second, "fill")
                                && !strcmp(all[0] == fills ? second : first, "axpy"));
    GIVES("nowhere", INVALID_VALUE, list(0, 3, library));
    GIVES("the name of none", INVALID_VALUE, name(&first, 0));
    GIVES("its third argument", SUCCESS, parameter(fills, 2, &offset, &size));
    CHECK("is a pointer behind two words", offset == 8 && size == sizeof(void *));
    GIVES("it has no fourth", INVALID_VALUE, parameter(fills, 3, &offset, &size));
    GIVES("threads of a block", SUCCESS, ask(&value, 0, fills, 0));
    CHECK("are some", value >= 64);
    GIVES("more shared memory", SUCCESS, tell(8, 32768, fills, 0));
    OK(ask(&value, 8, fills, 0));
    CHECK("is told", value == 32768);
    GIVES("too much", INVALID_VALUE, tell(8, 1 << 30, fills, 0));
    GIVES("threads are not set", INVALID_VALUE, tell(0, 64, fills, 0));
    GIVES("on no device", INVALID_DEVICE, ask(&value, 0, fills, 99));
}

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
    GIVES("options of a compiler", INVALID_VALUE, load(&library, "fakehip kernels: fill axpy", 0, 0, 1, 0, 0, 0));
    GIVES("a library", SUCCESS, load(&library, "fakehip kernels: fill axpy", 0, 0, 0, 0, 0, 0));
    OK(count(&n, library));
    CHECK("its kernels are counted", n == 2);
    GIVES("one that it lacks", NOT_FOUND, get(&kernel, library, "gemm"));
    GIVES("one that it has", SUCCESS, get(&kernel, library, "fill"));
    tells(library, kernel);
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
