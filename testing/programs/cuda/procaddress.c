/* cuGetProcAddress: every name of a list (argument 1, one symbol a line), at all versions and with all flags, gives an
 * exported function of that name; and the version decides which. */
#include "cu.h"
#include <ctype.h>

enum { MOST = 2000 };

static char names[MOST][80], bases[MOST][80];
static void *addresses[MOST];
static int count, missing;

/* "cuMemcpy2D_v2_ptds" is "cuMemcpy2D". */
static void base_of(char *base, const char *name)
{
    strcpy(base, name);
    size_t length = strlen(base);
    if (length > 5 && (!strcmp(base + length - 5, "_ptsz") || !strcmp(base + length - 5, "_ptds"))) {
        base[length -= 5] = 0;
    }
    size_t digits = length;
    while (digits > 0 && isdigit((unsigned char)base[digits - 1])) {
        digits--;
    }
    if (digits < length && digits > 2 && !strncmp(base + digits - 2, "_v", 2)) {
        base[digits - 2] = 0;
    }
}

static void read_names(const char *path, void *library)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(2);
    }
    /* The first line says where the list comes from. */
    fscanf(file, "#%*[^\n]");
    while (count < MOST && fscanf(file, "%79s", names[count]) == 1) {
        base_of(bases[count], names[count]);
        addresses[count] = dlsym(library, names[count]);
        missing += !addresses[count];
        count += addresses[count] != NULL;
    }
    fclose(file);
}

static const char *name_at(void *address, const char *base)
{
    for (int i = 0; i < count; i++) {
        if (addresses[i] == address && !strcmp(bases[i], base)) {
            return names[i];
        }
    }
    return NULL;
}

static int serves(const char *base, int version, uint64_t flags, const char *wanted)
{
    void *address = NULL;
    int status = -1;
    CUresult result = cuGetProcAddress_v2(base, &address, version, flags, &status);
    const char *name = address ? name_at(address, base) : NULL;
    int right = result == SUCCESS && status == 0 && name && !strcmp(name, wanted);
    if (!right) {
        printf("%s at %d, flags %d: %d, status %d, %s\n", base, version, (int)flags, result, status, name ? name : "-");
    }
    return right;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: procaddress NAMES\n");
        return 2;
    }
    cu_start();
    read_names(argv[1], dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    CHECK("the driver exports the names", count > 600);

    int versions[] = { 2000, 4000, 7000, 10000, 11000, 11040, 12000, 12080, 13000 };
    int newest = 0, strange = 0, found = 0;
    OK(cuDriverGetVersion(&newest));
    for (int i = 0; i < count; i++) {
        for (size_t v = 0; v < sizeof versions / sizeof *versions && versions[v] <= newest; v++) {
            for (uint64_t flags = 0; flags <= 2; flags++) {
                void *address = NULL;
                int status = -1;
                CUresult result = cuGetProcAddress_v2(bases[i], &address, versions[v], flags, &status);
                if (result != SUCCESS || (status == 0) != (address != NULL) || (address && !name_at(address, bases[i]))) {
                    printf("%s at %d: %d, status %d, %p\n", bases[i], versions[v], result, status, address);
                    strange++;
                }
                found += address != NULL;
            }
        }
    }
    CHECK("each answer is an exported function of that name, or none", strange == 0 && found > 3000);
    CHECK("the first version", serves("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"));
    CHECK("the second", serves("cuStreamBeginCapture", 12000, 0, "cuStreamBeginCapture_v2"));
    CHECK("for the thread's own stream", serves("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"));
    CHECK("for the legacy stream", serves("cuLaunchKernel", 12000, 1, "cuLaunchKernel"));
    CHECK("synchronous copies, too", serves("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"));
    CHECK("where there is no other", serves("cuMemAlloc", 12000, 2, "cuMemAlloc_v2"));

    void *address = (void *)1;
    int status = -1;
    GIVES("a name that there is not", SUCCESS, cuGetProcAddress_v2("cuNothing", &address, 12000, 0, &status));
    CHECK("is not found", address == NULL && status == 1);
    GIVES("a version too old for it", SUCCESS, cuGetProcAddress_v2("cuLaunchKernelEx", &address, 11000, 0, &status));
    CHECK("is not sufficient", address == NULL && status == 2);
    GIVES("the old form", SUCCESS, cuGetProcAddress("cuStreamCreate", &address, 12000, 0));
    CHECK("gives the same", address == dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamCreate"));

    /* What was looked up works. */
    CUresult (*create)(CUstream *, unsigned) = NULL;
    *(void **)&create = address;
    CUstream s;
    GIVES("and works", SUCCESS, create(&s, NON_BLOCKING));
    OK(launch(empty, s, NULL));
    OK(cuStreamSynchronize(s));
    CHECKS_DONE;
}
