/* A stand-in for the part of AMD's runtime (libhsa-runtime64.so.1) that makes queues: what reaches the kernel is what the
 * real one asks for, in the same order. Agents are those of fakekfd's topology. Build with fakekfd's headers.
 *
 * FAKEHSA_FAIL=N: question N of libxsched's own, counted from 1, has no answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hsa/amd_hsa_queue.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <linux/kfd_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* One CPU, then GPUs: the kernel's number, and where on the bus. */
static const struct {
    uint32_t gpu, location;
} AGENTS[] = {{0, 0}, {51966, 16640}, {47806, 33537}};
enum { AGENT_COUNT = 3, SAVE_BYTES = 1 << 16 };

struct queue {
    amd_queue_t amd; /* first: a handle points to it */
    uint32_t id, ring_bytes, priority;
    void *ring, *save;
};

static int kfd = -1, users;

/* Whether this question, which came from `caller`, is to have no answer. */
static int fails(void *caller)
{
    static int asked;
    const char *wanted = getenv("FAKEHSA_FAIL");
    Dl_info from;
    int ours = dladdr(caller, &from) && from.dli_fname && strstr(from.dli_fname, "libxsched");
    return ours && wanted && ++asked == atoi(wanted);
}

/* As the real one: interrupted calls are made again. */
static int request(unsigned long number, void *argument)
{
    int rc;
    do {
        rc = ioctl(kfd, number, argument);
    } while (rc < 0 && (errno == EINTR || errno == EAGAIN));
    return rc;
}

hsa_status_t hsa_init(void)
{
    struct kfd_ioctl_get_version_args version = {0};
    if (users++) {
        return HSA_STATUS_SUCCESS;
    }
    kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
    if (kfd < 0 || request(AMDKFD_IOC_GET_VERSION, &version)) {
        users = 0;
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_shut_down(void)
{
    if (!users) {
        return HSA_STATUS_ERROR_NOT_INITIALIZED;
    }
    if (!--users) {
        close(kfd);
        kfd = -1;
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value)
{
    if (!users) {
        return HSA_STATUS_ERROR_NOT_INITIALIZED;
    }
    if (fails(__builtin_return_address(0))) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    if (attribute != HSA_SYSTEM_INFO_VERSION_MAJOR) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    *(uint16_t *)value = 1;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t agent, void *data), void *data)
{
    for (uint64_t i = 1; i <= AGENT_COUNT; i++) {
        hsa_status_t status = callback((hsa_agent_t){i}, data);
        if (status != HSA_STATUS_SUCCESS) {
            return status;
        }
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value)
{
    if (fails(__builtin_return_address(0))) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    if (agent.handle < 1 || agent.handle > AGENT_COUNT) {
        return HSA_STATUS_ERROR_INVALID_AGENT;
    }
    switch ((int)attribute) {
    case HSA_AGENT_INFO_DEVICE:
        *(hsa_device_type_t *)value = agent.handle == 1 ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU;
        return HSA_STATUS_SUCCESS;
    case HSA_AMD_AGENT_INFO_BDFID: *(uint32_t *)value = AGENTS[agent.handle - 1].location; return HSA_STATUS_SUCCESS;
    case HSA_AMD_AGENT_INFO_DOMAIN: *(uint32_t *)value = 0; return HSA_STATUS_SUCCESS;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                              void (*callback)(hsa_status_t, hsa_queue_t *, void *), void *data,
                              uint32_t private_bytes, uint32_t group_bytes, hsa_queue_t **out)
{
    (void)callback, (void)data, (void)private_bytes, (void)group_bytes;
    struct queue *q;
    if (posix_memalign((void **)&q, 64, sizeof *q)) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    memset(q, 0, sizeof *q);
    q->ring_bytes = size * 64;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    q->ring = mmap(NULL, q->ring_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    q->save = mmap(NULL, SAVE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    for (uint32_t i = 0; i < size; i++) {
        *(uint16_t *)((char *)q->ring + i * 64) = HSA_PACKET_TYPE_INVALID;
    }
    q->amd.hsa_queue = (hsa_queue_t){.type = type, .base_address = q->ring, .size = size};
    q->priority = 7;
    struct kfd_ioctl_create_queue_args args = {
        .ring_base_address = (uintptr_t)q->ring,
        .write_pointer_address = (uintptr_t)&q->amd.write_dispatch_id,
        .read_pointer_address = (uintptr_t)&q->amd.read_dispatch_id,
        .ring_size = q->ring_bytes,
        .gpu_id = AGENTS[agent.handle - 1].gpu,
        .queue_type = KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
        .queue_percentage = 100,
        .queue_priority = q->priority,
        .ctx_save_restore_address = getenv("FAKEHSA_NO_SAVE") ? 0 : (uintptr_t)q->save,
        .ctx_save_restore_size = getenv("FAKEHSA_NO_SAVE") ? 0 : SAVE_BYTES,
        .ctl_stack_size = 4096,
    };
    if (request(AMDKFD_IOC_CREATE_QUEUE, &args)) {
        free(q);
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    q->id = q->amd.hsa_queue.id = args.queue_id;
    *out = &q->amd.hsa_queue;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t update(struct queue *q, uint32_t percentage)
{
    struct kfd_ioctl_update_queue_args args = {
        .ring_base_address = (uintptr_t)q->ring,
        .queue_id = q->id,
        .ring_size = q->ring_bytes,
        .queue_percentage = percentage,
        .queue_priority = q->priority,
    };
    return request(AMDKFD_IOC_UPDATE_QUEUE, &args) ? HSA_STATUS_ERROR : HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_queue_set_priority(hsa_queue_t *queue, hsa_amd_queue_priority_t priority)
{
    static const uint32_t KERNELS[] = {0, 7, 11};
    struct queue *q = (struct queue *)queue;
    q->priority = KERNELS[priority];
    return update(q, 100);
}

/* What the real one does by itself, while it takes back scratch memory: here at the program's word. */
hsa_status_t fakehsa_suspend(hsa_queue_t *queue, bool on)
{
    return update((struct queue *)queue, on ? 0 : 100);
}

hsa_status_t hsa_queue_destroy(hsa_queue_t *queue)
{
    struct queue *q = (struct queue *)queue;
    struct kfd_ioctl_destroy_queue_args args = {.queue_id = q->id};
    if (request(AMDKFD_IOC_DESTROY_QUEUE, &args)) {
        return HSA_STATUS_ERROR;
    }
    munmap(q->ring, q->ring_bytes);
    munmap(q->save, SAVE_BYTES);
    free(q);
    return HSA_STATUS_SUCCESS;
}

uint64_t hsa_queue_add_write_index_relaxed(const hsa_queue_t *queue, uint64_t value)
{
    return __atomic_fetch_add(&((struct queue *)(uintptr_t)queue)->amd.write_dispatch_id, value, __ATOMIC_RELAXED);
}

uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue)
{
    return __atomic_load_n(&((const struct queue *)queue)->amd.write_dispatch_id, __ATOMIC_RELAXED);
}

uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t *queue)
{
    return __atomic_load_n(&((const struct queue *)queue)->amd.read_dispatch_id, __ATOMIC_RELAXED);
}

void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value)
{
    (void)signal, (void)value; /* a doorbell: the pretended device looks at the index itself */
}
