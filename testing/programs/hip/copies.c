/* Two copies of the runtime in one process: what one gave, the other does not know.
 *
 * Arguments: the paths of the two. Both are opened apart from each other. */
#include "hip.h"

#define GET(library, name) ((__typeof__(&name))dlsym(library, #name))

int main(int count, char **paths)
{
    void *a = count > 2 ? dlopen(paths[1], RTLD_NOW | RTLD_LOCAL) : 0;
    void *b = count > 2 ? dlopen(paths[2], RTLD_NOW | RTLD_LOCAL) : 0;
    if (!a || !b) {
        fputs("copies: two libraries wanted\n", stderr);
        return 2;
    }
    static char kernel;
    dim3 one = {1, 1, 1};
    int number = 0;
    if (GET(a, hipGetDeviceCount)(&number) != SUCCESS) {
        puts("skip: no HIP device");
        return 3;
    }
    CHECK("they are two", GET(a, hipMalloc) != GET(b, hipMalloc));
    void **fat = GET(a, __hipRegisterFatBinary)(&fat_binary);
    GET(a, __hipRegisterFunction)(fat, &kernel, "empty", "empty", -1, 0, 0, 0, 0, 0);
    GIVES("the first launches what it knows", SUCCESS, GET(a, hipLaunchKernel)(&kernel, one, one, 0, 0, 0));
    GIVES("the second does not: invalid device function", INVALID_DEVICE_FUNCTION,
          GET(b, hipLaunchKernel)(&kernel, one, one, 0, 0, 0));
    hipStream_t stream = 0;
    OK(GET(a, hipStreamCreate)(&stream));
    GIVES("the first's stream", SUCCESS, GET(a, hipStreamSynchronize)(stream));
    GIVES("in the second: context is destroyed", CONTEXT_IS_DESTROYED, GET(b, hipStreamSynchronize)(stream));
    hipModule_t module = 0;
    hipFunction_t function = 0;
    OK(GET(a, hipModuleLoadData)(&module, kernel_names));
    OK(GET(a, hipModuleGetFunction)(&function, module, "empty"));
    GIVES("the first's function in the second: invalid handle", INVALID_HANDLE,
          GET(b, hipModuleLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    void *memory = 0;
    OK(GET(a, hipMalloc)(&memory, 64));
    GIVES("the first's memory in the second: invalid value", INVALID_VALUE, GET(b, hipFree)(memory));
    static int variable;
    GET(a, __hipRegisterVar)(fat, &variable, "v", "v", 0, sizeof variable, 0, 0);
    GIVES("the first's variable in the second: invalid symbol", INVALID_SYMBOL,
          GET(b, hipMemcpyToSymbol)(&variable, &number, sizeof number, 0, HOST_TO_DEVICE));
    GET(a, __hipUnregisterFatBinary)(fat);
    CHECKS_DONE;
}
