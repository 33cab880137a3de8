/* Reads, writes, copies, fills and maps of buffers, blocking and not, whole and rectangular, on an in-order queue. */
#include "check.h"

enum { N = 4096, SIDE = 64 };

int main(void)
{
    setup();
    cl_command_queue queue = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    static cl_int host[N], back[N];
    for (int i = 0; i < N; i++)
        host[i] = i;
    cl_mem a = buffer_of(sizeof host, NULL), b = buffer_of(sizeof host, NULL);
    for (int blocking = 0; blocking < 2; blocking++) {
        OK(clEnqueueWriteBuffer(queue, a, blocking, 0, sizeof host, host, 0, NULL, NULL));
        step(queue, kernel, a, N, 3, 2, 0, NULL, NULL);
        OK(clEnqueueCopyBuffer(queue, a, b, 0, 0, sizeof host, 0, NULL, NULL));
        step(queue, kernel, b, N, 1, 5, 0, NULL, NULL);
        cl_event read;
        OK(clEnqueueReadBuffer(queue, b, blocking, 0, sizeof back, back, 0, NULL, &read));
        OK(clWaitForEvents(1, &read));
        OK(clReleaseEvent(read));
        for (int i = 0; i < N; i++)
            CHECK(back[i] == ((i + 3) * 2 + 1) * 5);
        printf("copy chain, blocking %d: ok\n", blocking);
    }

    cl_int pattern = 7;
    OK(clEnqueueFillBuffer(queue, a, &pattern, sizeof pattern, 0, sizeof host, 0, NULL, NULL));
    size_t origin[3] = {8 * sizeof(cl_int), 8, 0}, region[3] = {16 * sizeof(cl_int), 16, 1}, pitch = SIDE * sizeof(cl_int);
    OK(clEnqueueWriteBufferRect(queue, a, CL_FALSE, origin, origin, region, pitch, 0, pitch, 0, host, 0, NULL, NULL));
    OK(clEnqueueCopyBufferRect(queue, a, b, origin, origin, region, pitch, 0, pitch, 0, 0, NULL, NULL));
    memset(back, 0, sizeof back);
    OK(clEnqueueReadBufferRect(queue, b, CL_TRUE, origin, origin, region, pitch, 0, pitch, 0, back, 0, NULL, NULL));
    for (int y = 8; y < 24; y++)
        for (int x = 8; x < 24; x++)
            CHECK(back[y * SIDE + x] == host[y * SIDE + x]);
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    CHECK(back[0] == 7 && back[N - 1] == 7 && back[8 * SIDE + 7] == 7 && back[8 * SIDE + 8] == host[8 * SIDE + 8]);
    puts("rectangles: ok");

    for (int blocking = 0; blocking < 2; blocking++) {
        cl_int error;
        cl_event mapped;
        cl_int *p = clEnqueueMapBuffer(
            queue, a, blocking, CL_MAP_READ | CL_MAP_WRITE, 0, sizeof host, 0, NULL, &mapped, &error);
        OK(error);
        OK(clWaitForEvents(1, &mapped));
        OK(clReleaseEvent(mapped));
        for (int i = 0; i < N; i++)
            p[i] = 2 * i;
        OK(clEnqueueUnmapMemObject(queue, a, p, 0, NULL, NULL));
        step(queue, kernel, a, N, 1, 1, 0, NULL, NULL);
        OK(clEnqueueMigrateMemObjects(queue, 1, &a, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
        OK(clFlush(queue));
        OK(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, sizeof back, back, 0, NULL, NULL));
        OK(clFinish(queue));
        for (int i = 0; i < N; i++)
            CHECK(back[i] == 2 * i + 1);
        printf("map, blocking %d: ok\n", blocking);
    }
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
    return 0;
}
