/* A stand-in for libamdhip64.so.6 on top of AMD's runtime (or its stand-in, hsa.c): one stream, which is a queue that this
 * library makes for itself, and kernels that are packets in it. Enough to see who counts what. */
#include <hsa/hsa.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    uint32_t x, y, z;
} dim3;

enum { hipSuccess = 0, hipErrorNoDevice = 100, hipErrorInvalidHandle = 400 };

static hsa_queue_t *queue;

static hsa_status_t first_gpu(hsa_agent_t agent, void *found)
{
    hsa_device_type_t type;
    hsa_status_t status = hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
    if (status == HSA_STATUS_SUCCESS && type == HSA_DEVICE_TYPE_GPU && !((hsa_agent_t *)found)->handle) {
        *(hsa_agent_t *)found = agent;
    }
    return status;
}

static int start(void)
{
    hsa_agent_t gpu = {0};
    if (queue) {
        return hipSuccess;
    }
    if (hsa_init() || hsa_iterate_agents(first_gpu, &gpu) || !gpu.handle ||
        hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, 0, 0, &queue)) {
        return hipErrorNoDevice;
    }
    return hipSuccess;
}

int hipGetDeviceCount(int *count)
{
    *count = start() == hipSuccess;
    return *count ? hipSuccess : hipErrorNoDevice;
}

int hipGetDevice(int *device)
{
    *device = 0;
    return start();
}

int hipDeviceGetPCIBusId(char *text, int size, int device)
{
    (void)device;
    snprintf(text, (size_t)size, "0000:41:00.0");
    return hipSuccess;
}

int hipGetLastError(void)
{
    return hipSuccess;
}

int hipPeekAtLastError(void)
{
    return hipSuccess;
}

int hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream)
{
    (void)function, (void)grid, (void)block, (void)arguments, (void)shared;
    if (stream) {
        return hipErrorInvalidHandle;
    }
    if (start()) {
        return hipErrorNoDevice;
    }
    uint64_t at = hsa_queue_add_write_index_relaxed(queue, 1);
    while (at - hsa_queue_load_read_index_relaxed(queue) >= queue->size) {
        usleep(100);
    }
    hsa_barrier_and_packet_t *packet = (hsa_barrier_and_packet_t *)queue->base_address + at % queue->size;
    memset((char *)packet + 4, 0, sizeof *packet - 4);
    uint32_t header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER;
    __atomic_store_n((uint32_t *)packet, header, __ATOMIC_RELEASE);
    return hipSuccess;
}

int hipStreamSynchronize(void *stream)
{
    (void)stream;
    while (hsa_queue_load_read_index_relaxed(queue) < hsa_queue_load_write_index_relaxed(queue)) {
        usleep(100);
    }
    return hipSuccess;
}

/* What the device has done, for a thread that must not be held. */
uint64_t fakehip_done(void)
{
    return hsa_queue_load_read_index_relaxed(queue);
}
