/* An ICD of an old version of OpenCL: PoCL, with the entries of its dispatch table emptied that OLD_ICD_LACKS names
 * (separated by commas). A loader exports these functions all the same, and jumps to NULL when they are called. */
#define _GNU_SOURCE
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *(*address_of)(const char *);
static cl_int (*platform_ids)(cl_uint, cl_platform_id *, cl_uint *);

#define ENTRY(name) { #name, offsetof(cl_icd_dispatch, name) }
static const struct {
    const char *name;
    size_t offset;
} entries[] = {
    ENTRY(clSetEventCallback), ENTRY(clEnqueueMarkerWithWaitList), ENTRY(clRetainCommandQueue), ENTRY(clGetEventInfo),
    ENTRY(clGetCommandQueueInfo), ENTRY(clGetDeviceInfo), ENTRY(clFlush), ENTRY(clReleaseEvent),
};

static void empty(cl_icd_dispatch *table)
{
    const char *lacks = getenv("OLD_ICD_LACKS");
    size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = (size_t)table & ~(page - 1);
    /* The table may be constant. */
    if (!lacks || mprotect((void *)begin, (size_t)table + sizeof *table - begin, PROT_READ | PROT_WRITE) != 0)
        abort();
    char *copy = strdup(lacks), *rest = copy, *name;
    while ((name = strsep(&rest, ","))) {
        size_t i = 0, count = sizeof entries / sizeof *entries;
        while (i < count && strcmp(entries[i].name, name) != 0)
            i++;
        if (i == count)
            abort();
        *(void **)((char *)table + entries[i].offset) = NULL;
    }
    free(copy);
}

CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint count, cl_platform_id *platforms, cl_uint *found)
{
    return platform_ids(count, platforms, found);
}

CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)clIcdGetPlatformIDsKHR : address_of(name);
}

__attribute__((constructor)) static void load(void)
{
    void *pocl = dlopen("libpocl.so.2", RTLD_NOW | RTLD_LOCAL);
    cl_platform_id platform;
    if (!pocl) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    *(void **)&address_of = dlsym(pocl, "clGetExtensionFunctionAddress");
    *(void **)&platform_ids = address_of("clIcdGetPlatformIDsKHR");
    if (platform_ids(1, &platform, NULL) != CL_SUCCESS)
        abort();
    empty(*(cl_icd_dispatch **)platform);
}
