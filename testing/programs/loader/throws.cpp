// What a function of the application throws inside an OpenCL call reaches the application, and a thread that ends there ends.
#include "fakecl.h"
#include <cstdio>
#include <pthread.h>
#include <stdexcept>

static void *event_of(void *queue)
{
    void *event = nullptr;
    clEnqueueNDRangeKernel(queue, nullptr, 1, nullptr, nullptr, nullptr, 0, nullptr, &event);
    return event;
}

static void throws(void *)
{
    throw std::runtime_error("from a native kernel");
}

static void throws_of_event(void *, int, void *)
{
    throw std::runtime_error("from a callback");
}

static void ends_thread(void *)
{
    pthread_exit(const_cast<char *>("ended"));
}

struct Cleanup {
    ~Cleanup() { std::puts("unwound"); }
};

static void *thread(void *queue)
{
    Cleanup cleanup;
    clEnqueueNativeKernel(queue, ends_thread, nullptr, 0, 0, nullptr, nullptr, 0, nullptr, nullptr);
    return nullptr;
}

// Ten launches from frames below the one that was thrown through, whatever was left there.
static void deeper(void *queue, int levels)
{
    volatile char frame[64] = {};
    if (levels > 0)
        deeper(queue, levels - 1);
    else
        for (int i = 0; i < 10; i++)
            clEnqueueNDRangeKernel(queue, nullptr, 1, nullptr, nullptr, nullptr, 0, nullptr, nullptr);
    frame[0] = frame[1];
}

int main()
{
    void *queue = clCreateCommandQueue(nullptr, nullptr, 0, nullptr);
    for (int i = 0; i < 3; i++) {
        try {
            Cleanup cleanup;
            clEnqueueNativeKernel(queue, throws, nullptr, 0, 0, nullptr, nullptr, 0, nullptr, nullptr);
            std::puts("not reached");
        } catch (const std::exception &error) {
            std::printf("caught: %s\n", error.what());
        }
        try {
            clSetEventCallback(event_of(queue), 0, throws_of_event, nullptr);
            std::puts("not reached");
        } catch (const std::exception &error) {
            std::printf("caught: %s\n", error.what());
        }
    }
    pthread_t id;
    void *result = nullptr;
    pthread_create(&id, nullptr, thread, queue);
    pthread_join(id, &result);
    std::printf("thread: %s\n", static_cast<char *>(result));
    deeper(queue, 20);
    return clFinish(queue);
}
