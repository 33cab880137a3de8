/* Requests beside those for queues: enough for AMD's runtime (libhsa-runtime64) to find its devices. */
#include "fakekfd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Newer than the headers of some machines. */
#ifndef AMDKFD_IOC_RUNTIME_ENABLE
struct kfd_ioctl_runtime_enable_args {
    __u64 r_debug;
    __u32 mode_mask;
    __u32 capabilities_mask;
};
#define AMDKFD_IOC_RUNTIME_ENABLE AMDKFD_IOWR(0x25, struct kfd_ioctl_runtime_enable_args)
#endif

#ifndef AMDKFD_IOC_AVAILABLE_MEMORY
struct kfd_ioctl_get_available_memory_args {
    __u64 available;
    __u32 gpu_id;
    __u32 pad;
};
#define AMDKFD_IOC_AVAILABLE_MEMORY AMDKFD_IOWR(0x23, struct kfd_ioctl_get_available_memory_args)
#endif

static int available(void *data)
{
    struct kfd_ioctl_get_available_memory_args *args = data;
    args->available = 16ull << 30;
    return 0;
}

static int apertures(void *data)
{
    struct kfd_ioctl_get_process_apertures_new_args *args = data;
    static const uint32_t GPUS[] = {51966, 47806};
    struct kfd_process_device_apertures *at = (void *)(uintptr_t)args->kfd_process_device_apertures_ptr;
    uint32_t room = args->num_of_nodes;
    args->num_of_nodes = 2;
    for (uint32_t i = 0; at && i < room && i < 2; i++) {
        at[i] = (struct kfd_process_device_apertures){
            .gpu_id = GPUS[i],
            .lds_base = 0x1000000000000ull,
            .lds_limit = 0x10000ffffffffull,
            .scratch_base = 0x2000000000000ull,
            .scratch_limit = 0x20000ffffffffull,
            .gpuvm_base = 0x10000ull,
            .gpuvm_limit = 0x7fffffffffffull,
        };
    }
    return 0;
}

static int clocks(void *data)
{
    struct kfd_ioctl_get_clock_counters_args *args = data;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    args->cpu_clock_counter = args->system_clock_counter = args->gpu_clock_counter =
        (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    args->system_clock_freq = 1000000000;
    return 0;
}

static int create_event(void *data)
{
    struct kfd_ioctl_create_event_args *args = data;
    static uint32_t next;
    args->event_id = next++;
    args->event_slot_index = args->event_id;
    args->event_page_offset = 0;
    return 0;
}

static int allocate(void *data)
{
    struct kfd_ioctl_alloc_memory_of_gpu_args *args = data;
    static uint64_t next = 1;
    args->handle = (uint64_t)args->gpu_id << 32 | next++;
    args->mmap_offset = 0;
    return 0;
}

/* Mapping and unmapping have structures alike. */
static int map(void *data)
{
    struct kfd_ioctl_map_memory_to_gpu_args *args = data;
    args->n_success = args->n_devices;
    return 0;
}

/* Number, size of the structure, answer (none = success without a word). */
#define REQUESTS(X)                                                                                   \
    X(AMDKFD_IOC_SET_MEMORY_POLICY, struct kfd_ioctl_set_memory_policy_args, NULL)                    \
    X(AMDKFD_IOC_GET_CLOCK_COUNTERS, struct kfd_ioctl_get_clock_counters_args, clocks)                \
    X(AMDKFD_IOC_CREATE_EVENT, struct kfd_ioctl_create_event_args, create_event)                      \
    X(AMDKFD_IOC_DESTROY_EVENT, struct kfd_ioctl_destroy_event_args, NULL)                            \
    X(AMDKFD_IOC_SET_EVENT, struct kfd_ioctl_set_event_args, NULL)                                    \
    X(AMDKFD_IOC_RESET_EVENT, struct kfd_ioctl_reset_event_args, NULL)                                \
    X(AMDKFD_IOC_WAIT_EVENTS, struct kfd_ioctl_wait_events_args, NULL)                                \
    X(AMDKFD_IOC_SET_SCRATCH_BACKING_VA, struct kfd_ioctl_set_scratch_backing_va_args, NULL)          \
    X(AMDKFD_IOC_SET_TRAP_HANDLER, struct kfd_ioctl_set_trap_handler_args, NULL)                      \
    X(AMDKFD_IOC_GET_TILE_CONFIG, struct kfd_ioctl_get_tile_config_args, NULL)                        \
    X(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, struct kfd_ioctl_get_process_apertures_new_args, apertures) \
    X(AMDKFD_IOC_ACQUIRE_VM, struct kfd_ioctl_acquire_vm_args, NULL)                                  \
    X(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, struct kfd_ioctl_alloc_memory_of_gpu_args, allocate)            \
    X(AMDKFD_IOC_FREE_MEMORY_OF_GPU, struct kfd_ioctl_free_memory_of_gpu_args, NULL)                  \
    X(AMDKFD_IOC_MAP_MEMORY_TO_GPU, struct kfd_ioctl_map_memory_to_gpu_args, map)                     \
    X(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, struct kfd_ioctl_unmap_memory_from_gpu_args, map)             \
    X(AMDKFD_IOC_ALLOC_QUEUE_GWS, struct kfd_ioctl_alloc_queue_gws_args, NULL)                        \
    X(AMDKFD_IOC_SET_XNACK_MODE, struct kfd_ioctl_set_xnack_mode_args, NULL)                          \
    X(AMDKFD_IOC_AVAILABLE_MEMORY, struct kfd_ioctl_get_available_memory_args, available)              \
    X(AMDKFD_IOC_RUNTIME_ENABLE, struct kfd_ioctl_runtime_enable_args, NULL)

size_t fakekfd_more_size(unsigned number)
{
#define X(request, type, answer)       \
    if (number == _IOC_NR(request)) {  \
        return sizeof(type);           \
    }
    REQUESTS(X)
#undef X
    return 0;
}

int fakekfd_more(unsigned number, void *data)
{
    typedef int (*answer_fn)(void *);
#define X(request, type, answer)                                               \
    if (number == _IOC_NR(request)) {                                          \
        const answer_fn function = answer;                                     \
        return function ? function(data) : 0;                                  \
    }
    REQUESTS(X)
#undef X
    return -ENOTTY;
}
