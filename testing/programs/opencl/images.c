/* Image writes, reads, fills, copies and maps. */
#include "check.h"

enum { W = 64, H = 32 };

int main(void)
{
    setup();
    cl_bool images = CL_FALSE;
    OK(clGetDeviceInfo(device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL));
    if (!images) {
        puts("no images on this device");
        return 0;
    }
    cl_int error;
    cl_command_queue queue = queue_with(0);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = W, .image_height = H};
    cl_mem a = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &error);
    OK(error);
    cl_mem b = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &error);
    OK(error);
    static cl_uchar host[H][W][4], back[H][W][4];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 4; c++)
                host[y][x][c] = (cl_uchar)(y * 5 + x * 3 + c);
    size_t origin[3] = {0, 0, 0}, whole[3] = {W, H, 1};
    OK(clEnqueueWriteImage(queue, a, CL_FALSE, origin, whole, 0, 0, host, 0, NULL, NULL));
    OK(clEnqueueCopyImage(queue, a, b, origin, origin, whole, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, b, CL_TRUE, origin, whole, 0, 0, back, 0, NULL, NULL));
    CHECK(memcmp(host, back, sizeof host) == 0);
    puts("write, copy, read: ok");

    cl_mem linear = buffer_of(sizeof host, NULL);
    OK(clEnqueueCopyImageToBuffer(queue, a, linear, origin, whole, 0, 0, NULL, NULL));
    cl_uint color[4] = {1, 2, 3, 4};
    OK(clEnqueueFillImage(queue, b, color, origin, whole, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, b, CL_TRUE, origin, whole, 0, 0, back, 0, NULL, NULL));
    CHECK(back[0][0][0] == 1 && back[H - 1][W - 1][3] == 4);
    OK(clEnqueueCopyBufferToImage(queue, linear, b, 0, origin, whole, 0, NULL, NULL));
    size_t row = 0;
    cl_uchar *p =
        clEnqueueMapImage(queue, b, CL_TRUE, CL_MAP_READ, origin, whole, &row, NULL, 0, NULL, NULL, &error);
    OK(error);
    for (int y = 0; y < H; y++)
        CHECK(memcmp(p + (size_t)y * row, host[y], sizeof host[y]) == 0);
    OK(clEnqueueUnmapMemObject(queue, b, p, 0, NULL, NULL));
    OK(clFinish(queue));
    puts("buffer, fill, map: ok");
    return 0;
}
