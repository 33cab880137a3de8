/* Plays what newer runtimes of AMD ask of libdrm: a device of any file, with a name. Preloaded with fakekfd.c. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>

struct amdgpu_device {
    int fd;
};

int amdgpu_device_initialize(int fd, uint32_t *major, uint32_t *minor, struct amdgpu_device **out)
{
    struct amdgpu_device *device = malloc(sizeof *device);
    if (!device) {
        return -12;
    }
    /* A file of its own, as libdrm has one: the caller closes that which it gave. */
    (void)fd;
    device->fd = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
    *major = 3, *minor = 61;
    *out = device;
    return 0;
}

int amdgpu_device_deinitialize(struct amdgpu_device *device)
{
    free(device);
    return 0;
}

int amdgpu_device_get_fd(struct amdgpu_device *device)
{
    return device->fd;
}

const char *amdgpu_get_marketing_name(struct amdgpu_device *device)
{
    (void)device;
    return "Pretended device";
}

/* The first fields of libdrm's structure. */
struct amdgpu_gpu_info {
    uint32_t asic_id;
    uint32_t chip_rev;
    uint32_t chip_external_rev;
    uint32_t family_id;
};

/* A gfx90a: family 141 (AI), revisions from 0x3c. */
int amdgpu_query_gpu_info(struct amdgpu_device *device, struct amdgpu_gpu_info *info)
{
    (void)device;
    info->asic_id = 0x7408;
    info->chip_rev = 1;
    info->chip_external_rev = 0x3d;
    info->family_id = 141;
    return 0;
}
