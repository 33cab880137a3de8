/* hipGetProcAddress (6.1) and hipGetDriverEntryPoint (7.1), where the runtime has them. */
#include "hip.h"

typedef hipError_t (*get_t)(const char *, void **, int, uint64_t, int *);
typedef hipError_t (*entry_t)(const char *, void **, unsigned, int *);

int main(void)
{
    need_device();
    get_t get = (get_t)dlsym(RTLD_DEFAULT, "hipGetProcAddress");
    entry_t entry = (entry_t)dlsym(RTLD_DEFAULT, "hipGetDriverEntryPoint");
    if (!get) {
        puts("skip: this major has no hipGetProcAddress");
        return 3;
    }
    void *found = 0;
    int status = 7, count = 0;
    GIVES("a name", SUCCESS, get("hipGetDeviceCount", &found, 602, 0, &status));
    CHECK("works", status == 0 && ((hipError_t(*)(int *))found)(&count) == SUCCESS && count > 0);
    GIVES("a name that is none", NOT_FOUND, get("hipNothing", &found, 602, 0, &status));
    CHECK("says so", status == 1 && !found);
    GIVES("a newer one", NOT_FOUND, get("hipStreamBatchMemOp", &found, 602, 0, &status));
    CHECK("says so", status == 2);
    void *spt = 0;
    OK(get("hipMemcpyAsync", &found, 602, 0, &status));
    OK(get("hipMemcpyAsync", &spt, 602, 2, &status));
    CHECK("per thread is another function", found && spt && found != spt);
    float *x = 0, host[4] = {0};
    OK(hipMalloc(&x, sizeof host));
    OK(run_fill(x, 4, 6, 0));
    OK(((__typeof__(&hipMemcpyAsync))found)(host, x, sizeof host, DEVICE_TO_HOST, 0));
    OK(hipDeviceSynchronize());
    CHECK("a copy by such an address", all_are(host, 4, 6));
    if (entry) {
        GIVES("an entry point", SUCCESS, entry("hipFree", &found, 0, &status));
    } else {
        found = (void *)hipFree;
        GIVES("an entry point", SUCCESS, SUCCESS);
    }
    GIVES("works, too", SUCCESS, ((hipError_t(*)(void *))found)(x));
    CHECKS_DONE;
}
