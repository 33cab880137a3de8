/* Memory in pieces of 8 MiB, in each way until it is refused or 16 are there: "WAY: N pieces, error E", and what is told. As
 * `limits hold`, "ready" once there is one piece, and the end at the next line. */
#include "check.h"

enum { MIB = 1 << 20, PIECE = 8 * MIB, MOST = 16 };

static cl_mem object(int way, cl_int *error)
{
    static const cl_image_format format = {CL_RGBA, CL_FLOAT};
    const cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1024, .image_height = 512};
    static char own[PIECE];
    switch (way) {
    case 0: return clCreateBuffer(context, CL_MEM_READ_WRITE, PIECE, NULL, error);
    case 1: return clCreateImage(context, CL_MEM_READ_ONLY, &format, &description, NULL, error);
    default: return clCreateBuffer(context, CL_MEM_USE_HOST_PTR, PIECE, own, error);
    }
}

int main(int argc, char **argv)
{
    static const char *const ways[] = {"buffers", "images", "the program's own"};
    cl_ulong whole, most;
    setup();
    if (argc > 1 && !strcmp(argv[1], "hold")) {
        CHECK(object(0, NULL));
        puts("ready");
        fflush(stdout);
        return getchar() == EOF;
    }
    OK(clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof whole, &whole, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    printf("told: %d %d\n", whole == 64 * MIB, most <= 64 * MIB);
    for (int way = 0; way < 3; way++) {
        cl_mem pieces[MOST];
        cl_int error = CL_SUCCESS;
        int held = 0;
        while (held < MOST && (pieces[held] = object(way, &error)))
            held++;
        printf("%s: %d pieces, error %d\n", ways[way], held, error);
        for (int n = 0; n < held; n++) {
            OK(clRetainMemObject(pieces[n]));
            OK(clReleaseMemObject(pieces[n]));
        }
        CHECK(object(way, NULL) == NULL || held == MOST);
        for (int n = 0; n < held; n++)
            OK(clReleaseMemObject(pieces[n]));
    }
    void *shared[MOST];
    int held = 0;
    while (held < MOST && (shared[held] = clSVMAlloc(context, CL_MEM_READ_WRITE, PIECE, 0)))
        held++;
    printf("shared: %d pieces\n", held);
    for (int n = 0; n < held; n++)
        clSVMFree(context, shared[n]);
    return 0;
}
