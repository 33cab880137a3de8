/* Functions reached by every route a program may take: direct call, dlsym of the loader, dlsym of the global scope and the
 * extension look-ups. Whatever the route, the work is done; a command buffer too where the device has them. */
#include "check.h"
#include <dlfcn.h>

typedef cl_int(CL_API_CALL *enqueue_fn)(
    cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint, const cl_event *,
    cl_event *);

int main(void)
{
    setup();
    cl_command_queue queue = queue_with(0);
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_int value = 0, one = 1, expected = 0;
    size_t count = 1;
    cl_mem data = buffer_of(sizeof value, &value);
    OK(clSetKernelArg(kernel, 0, sizeof data, &data));
    OK(clSetKernelArg(kernel, 1, sizeof one, &one));
    OK(clSetKernelArg(kernel, 2, sizeof one, &one));

    void *loader = dlopen("libOpenCL.so.1", RTLD_NOW);
    CHECK(loader);
    const char *name = "clEnqueueNDRangeKernel";
    struct {
        const char *route;
        void *address;
    } routes[] = {
        {"direct", (void *)clEnqueueNDRangeKernel},
        {"dlsym of the loader", dlsym(loader, name)},
        {"dlsym of the global scope", dlsym(RTLD_DEFAULT, name)},
        {"clGetExtensionFunctionAddressForPlatform", clGetExtensionFunctionAddressForPlatform(platform, name)},
        {"clGetExtensionFunctionAddress", clGetExtensionFunctionAddress(name)},
    };
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        printf("%s: %s\n", routes[i].route, routes[i].address ? "found" : "not found");
        if (!routes[i].address)
            continue;
        OK(((enqueue_fn)routes[i].address)(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
        expected++;
        OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
        CHECK(value == expected);
    }
    CHECK(clGetExtensionFunctionAddressForPlatform(platform, "clNoSuchFunctionXYZ") == NULL);

    clCreateCommandBufferKHR_fn create =
        (clCreateCommandBufferKHR_fn)clGetExtensionFunctionAddressForPlatform(platform, "clCreateCommandBufferKHR");
    clCommandNDRangeKernelKHR_fn record =
        (clCommandNDRangeKernelKHR_fn)clGetExtensionFunctionAddressForPlatform(platform, "clCommandNDRangeKernelKHR");
    clFinalizeCommandBufferKHR_fn finalize =
        (clFinalizeCommandBufferKHR_fn)clGetExtensionFunctionAddressForPlatform(platform, "clFinalizeCommandBufferKHR");
    clEnqueueCommandBufferKHR_fn enqueue =
        (clEnqueueCommandBufferKHR_fn)clGetExtensionFunctionAddressForPlatform(platform, "clEnqueueCommandBufferKHR");
    if (!create || !record || !finalize || !enqueue) {
        puts("no command buffers on this platform");
        return 0;
    }
    cl_int error;
    cl_command_buffer_khr buffer = create(1, &queue, NULL, &error);
    OK(error);
    for (int i = 0; i < 3; i++)
        OK(record(buffer, NULL, NULL, kernel, 1, NULL, &count, NULL, 0, NULL, NULL, NULL));
    OK(finalize(buffer));
    for (int i = 0; i < 5; i++) {
        OK(enqueue(0, NULL, buffer, 0, NULL, NULL));
        OK(clFinish(queue));
        expected += 3;
    }
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CHECK(value == expected);
    puts("command buffers: ok");
    return 0;
}
