/* Plays AMD's compute driver for programs on a machine without one. To be preloaded *behind* libxsched.so, so that it is
 * the `ioctl` that libxsched calls:
 *
 *     LD_PRELOAD=libxsched.so:fakekfd.so FAKEKFD_TRACE=trace FAKEKFD_SYSFS=testing/stand-ins/kfd/sysfs program
 *
 * It judges queues as the kernel does (linux/drivers/gpu/drm/amd/amdkfd: kfd_chardev.c, kfd_process_queue_manager.c):
 * requests go by their number, sizes are filled up, other processes are refused, properties checked in the same order
 * and with the same errors. A thread is the device: it takes packets of active compute queues, and of no others. It shows
 * what is asked of the kernel and in which order; it cannot show that a kernel preempts anything.
 *
 * FAKEKFD_TRACE    file to which each request adds a line of JSON, with all bytes as the caller passed them
 * FAKEKFD_SYSFS    folder that stands for /sys
 * FAKEKFD_VERSION  of the interface, "1.17" if unset: below 1.17 no check of the ring buffer and a shorter CREATE_QUEUE
 * FAKEKFD_FAIL     "NUMBER:ERRNO:SKIP:COUNT": COUNT requests of this number fail after SKIP that did not. A failing
 *                  UPDATE_QUEUE changes the properties all the same, as in the kernel
 * FAKEKFD_PACKET_US  device time of a packet, 200 if unset
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fakekfd.h"

static struct kernel kernel = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what the environment says ---- */

static unsigned env_number(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

static void version(unsigned *major, unsigned *minor)
{
    const char *text = getenv("FAKEKFD_VERSION");
    *major = 1, *minor = 17;
    if (text) {
        sscanf(text, "%u.%u", major, minor);
    }
}

static bool is_new(void)
{
    unsigned major, minor;
    version(&major, &minor);
    return major == 1 && minor >= 17;
}

/* The error that this request is to fail with; 0 = none. */
static int injected(unsigned number)
{
    unsigned which, error, skip, count;
    const char *text = getenv("FAKEKFD_FAIL");
    if (!text || sscanf(text, "%u:%u:%u:%u", &which, &error, &skip, &count) != 4 || which != number) {
        return 0;
    }
    unsigned seen = kernel.injections++;
    return seen >= skip && seen < skip + count ? (int)error : 0;
}

/* ---- queues ---- */

static struct queue *find(uint32_t id)
{
    for (struct queue *q = kernel.queues; q < kernel.queues + QUEUES; q++) {
        if (q->used && q->id == id) {
            return q;
        }
    }
    return NULL;
}

static bool gpu_is_known(uint32_t gpu)
{
    const char *root = getenv("FAKEKFD_SYSFS");
    for (int node = 0; root && node < 64; node++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/class/kfd/kfd/topology/nodes/%d/gpu_id", root, node);
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
        char text[32] = "";
        if (fd < 0) {
            return false;
        }
        if (read(fd, text, sizeof text - 1) > 0 && gpu && strtoul(text, NULL, 10) == gpu) {
            close(fd);
            return true;
        }
        close(fd);
    }
    return false;
}

static bool is_power_of_2(uint32_t n)
{
    return n && !(n & (n - 1));
}

/* What CREATE_QUEUE and UPDATE_QUEUE check alike, in the kernel's order. */
static int check(uint32_t percentage, uint32_t priority, uint64_t ring, uint32_t size)
{
    uint32_t percent = is_new() ? percentage & 0xff : percentage;
    if (percent > KFD_MAX_QUEUE_PERCENTAGE || priority > KFD_MAX_QUEUE_PRIORITY) {
        return -EINVAL;
    }
    if (ring >> 47) {
        return -EFAULT; /* not an address of a process */
    }
    return size && !is_power_of_2(size) ? -EINVAL : 0;
}

static int create_queue(struct create_queue_args *args)
{
    int rc = check(args->v.queue_percentage, args->v.queue_priority, args->v.ring_base_address, args->v.ring_size);
    if (rc) {
        return rc;
    }
    if (!args->v.write_pointer_address || !args->v.read_pointer_address) {
        return -EFAULT; /* of the fake: it looks at them */
    }
    if (args->v.queue_type > KFD_IOC_QUEUE_TYPE_SDMA_XGMI) {
        return -ENOTSUP;
    }
    if (!gpu_is_known(args->v.gpu_id)) {
        return -EINVAL;
    }
    for (uint32_t id = 0; id < QUEUES; id++) {
        if (!find(id)) {
            struct queue *q = kernel.queues;
            while (q->used) {
                q++;
            }
            *q = (struct queue){.used = true, .id = id, .v = args->v};
            args->v.queue_id = id;
            args->v.doorbell_offset = (uint64_t)3 << 62 | (uint64_t)args->v.gpu_id << 46;
            return 0;
        }
    }
    return -ENOMEM;
}

static int destroy_queue(const struct kfd_ioctl_destroy_queue_args *args)
{
    struct queue *q = find(args->queue_id);
    if (!q) {
        return -EINVAL;
    }
    q->used = false;
    return 0;
}

static int update_queue(const struct kfd_ioctl_update_queue_args *args, int fault)
{
    int rc = check(args->queue_percentage, args->queue_priority, args->ring_base_address, args->ring_size);
    struct queue *q = find(args->queue_id);
    if (rc) {
        return rc;
    }
    if (!q) {
        return -EFAULT; /* pqm_update_queue_properties */
    }
    bool other = args->ring_base_address != q->v.ring_base_address || args->ring_size != q->v.ring_size;
    if (is_new() && args->ring_base_address && args->ring_size && other) {
        return -EFAULT; /* no such buffer on that GPU */
    }
    q->v.ring_base_address = args->ring_base_address;
    q->v.ring_size = args->ring_size;
    q->v.queue_percentage = args->queue_percentage;
    q->v.queue_priority = args->queue_priority;
    return -fault;
}

/* Whether the device runs it: the kernel's QUEUE_IS_ACTIVE. */
static bool is_active(const struct queue *q)
{
    return q->used && q->v.ring_size && q->v.ring_base_address && (q->v.queue_percentage & 0xff);
}

/* ---- the device ---- */

/* Takes the next packet of a queue, if it is ready. */
static void take_packet(struct queue *q)
{
    _Atomic uint64_t *read = (void *)(uintptr_t)q->v.read_pointer_address;
    _Atomic uint64_t *write = (void *)(uintptr_t)q->v.write_pointer_address;
    uint64_t at = atomic_load(read);
    if (at >= atomic_load(write)) {
        return;
    }
    uint64_t slots = q->v.ring_size / 64;
    char *packet = (char *)(uintptr_t)q->v.ring_base_address + at % slots * 64;
    _Atomic uint16_t *header = (void *)packet;
    if ((atomic_load(header) & 0xff) == 1) {
        return; /* HSA_PACKET_TYPE_INVALID: not written yet */
    }
    uint64_t signal;
    memcpy(&signal, packet + 56, sizeof signal);
    atomic_store(header, 1);
    if (signal) {
        atomic_fetch_sub((_Atomic int64_t *)(uintptr_t)(signal + 8), 1);
    }
    atomic_store(read, at + 1);
}

static void *device(void *unused)
{
    (void)unused;
    unsigned us = env_number("FAKEKFD_PACKET_US", 200);
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    for (;;) {
        nanosleep(&time, NULL);
        pthread_mutex_lock(&kernel.lock);
        for (struct queue *q = kernel.queues; q < kernel.queues + QUEUES; q++) {
            if (is_active(q) && q->v.queue_type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL) {
                take_packet(q);
            }
        }
        pthread_mutex_unlock(&kernel.lock);
    }
    return NULL;
}

static void start_device(void)
{
    pthread_t thread;
    if (!kernel.runs) {
        kernel.runs = pthread_create(&thread, NULL, device, NULL) == 0;
    }
}

/* ---- requests ---- */

static size_t size_of(unsigned number)
{
    switch (number) {
    case _IOC_NR(AMDKFD_IOC_GET_VERSION): return sizeof(struct kfd_ioctl_get_version_args);
    case _IOC_NR(AMDKFD_IOC_CREATE_QUEUE):
        return is_new() ? sizeof(struct create_queue_args) : sizeof(struct kfd_ioctl_create_queue_args);
    case _IOC_NR(AMDKFD_IOC_DESTROY_QUEUE): return sizeof(struct kfd_ioctl_destroy_queue_args);
    case _IOC_NR(AMDKFD_IOC_UPDATE_QUEUE): return sizeof(struct kfd_ioctl_update_queue_args);
    case _IOC_NR(AMDKFD_IOC_SET_CU_MASK): return sizeof(struct kfd_ioctl_set_cu_mask_args);
    default: return fakekfd_more_size(number);
    }
}

static int handle(unsigned number, void *data)
{
    int fault = injected(number);
    if (fault && number != _IOC_NR(AMDKFD_IOC_UPDATE_QUEUE)) {
        return -fault;
    }
    switch (number) {
    case _IOC_NR(AMDKFD_IOC_GET_VERSION): {
        struct kfd_ioctl_get_version_args *args = data;
        version(&args->major_version, &args->minor_version);
        return 0;
    }
    case _IOC_NR(AMDKFD_IOC_CREATE_QUEUE): return create_queue(data);
    case _IOC_NR(AMDKFD_IOC_DESTROY_QUEUE): return destroy_queue(data);
    case _IOC_NR(AMDKFD_IOC_UPDATE_QUEUE): return update_queue(data, fault);
    case _IOC_NR(AMDKFD_IOC_SET_CU_MASK):
        return find(((struct kfd_ioctl_set_cu_mask_args *)data)->queue_id) ? 0 : -EFAULT;
    default: return fakekfd_more(number, data);
    }
}

static void trace(int fd, unsigned long request, const uint8_t *in, size_t bytes, const uint8_t *out, int rc)
{
    const char *path = getenv("FAKEKFD_TRACE");
    if (!path || _IOC_NR(request) == _IOC_NR(AMDKFD_IOC_WAIT_EVENTS)) {
        return;
    }
    char line[2048];
    int n = snprintf(line, sizeof line, "{\"pid\":%d,\"fd\":%d,\"request\":%lu,\"number\":%u,\"rc\":%d,\"in\":\"",
                     getpid(), fd, request, (unsigned)_IOC_NR(request), rc);
    for (size_t i = 0; i < bytes && i < 256; i++) {
        n += snprintf(line + n, sizeof line - n, "%02x", in[i]);
    }
    n += snprintf(line + n, sizeof line - n, "\",\"out\":\"");
    for (size_t i = 0; i < bytes && i < 256; i++) {
        n += snprintf(line + n, sizeof line - n, "%02x", out[i]);
    }
    n += snprintf(line + n, sizeof line - n, "\"}\n");
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) {
        if (write(file, line, n) != n) {
            abort();
        }
        close(file);
    }
}

static int request_of(int fd, unsigned long request, void *argument)
{
    unsigned number = _IOC_NR(request);
    size_t own = size_of(number), caller = _IOC_SIZE(request);
    uint8_t in[512] = {0}, data[512] = {0};
    if (caller > sizeof data) {
        return -ENOTTY;
    }
    memcpy(in, argument, caller);
    if (!own) {
        trace(fd, request, in, caller, in, -ENOTTY);
        return -ENOTTY;
    }
    memcpy(data, argument, caller);
    int rc;
    if (number == _IOC_NR(AMDKFD_IOC_WAIT_EVENTS)) {
        usleep(1000); /* events come to pass all the time: whoever waits looks again */
    }
    pthread_mutex_lock(&kernel.lock);
    if (kernel.owner != getpid()) {
        rc = -EBADF; /* another process opened it */
    } else {
        rc = handle(number, data);
        if (number == _IOC_NR(AMDKFD_IOC_CREATE_QUEUE) && rc == 0) {
            start_device();
        }
    }
    /* As the kernel copies: so much as the caller's size says, where it expects something. */
    if (rc != -EBADF && _IOC_DIR(request) & _IOC_READ) {
        memcpy(argument, data, caller);
    }
    trace(fd, request, in, caller, argument, rc);
    pthread_mutex_unlock(&kernel.lock);
    return rc;
}

/* ---- the C library's functions ---- */

static bool is_ours(int fd)
{
    struct stat found;
    return kernel.inode && fstat(fd, &found) == 0 && found.st_ino == kernel.inode && found.st_dev == kernel.device;
}

static void in_child(void)
{
    pthread_mutex_init(&kernel.lock, NULL);
    kernel.runs = false;
}

static int open_kfd(int flags)
{
    pthread_mutex_lock(&kernel.lock);
    if (kernel.owner != getpid()) {
        static bool registered;
        if (!registered) {
            registered = true;
            pthread_atfork(NULL, NULL, in_child);
        }
        /* A process of its own, with queues of its own; descriptors of another one mean nothing to it. */
        memset(kernel.queues, 0, sizeof kernel.queues);
        kernel.owner = getpid();
        struct stat found;
        kernel.fd = memfd_create("kfd", MFD_CLOEXEC);
        if (kernel.fd < 0 || fstat(kernel.fd, &found)) {
            abort();
        }
        kernel.inode = found.st_ino;
        kernel.device = found.st_dev;
        /* Out of the way of a program that closes all it has. */
        int high = fcntl(kernel.fd, F_DUPFD_CLOEXEC, 1000);
        if (high >= 0) {
            close(kernel.fd);
            kernel.fd = high;
        }
    }
    int fd = fcntl(kernel.fd, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 3);
    pthread_mutex_unlock(&kernel.lock);
    return fd;
}

/* Where a path leads here; `room` takes a new one. */
static const char *redirected(const char *path, char *room, size_t size)
{
    const char *root = getenv("FAKEKFD_SYSFS");
    bool ours = path && (!strncmp(path, "/sys/class/kfd", 14) || !strncmp(path, "/sys/module/amdgpu", 18) ||
                         !strncmp(path, "/sys/devices/virtual/kfd", 24));
    if (!root || !ours) {
        return path;
    }
    const char *rest = path + 4;
    if (!strncmp(rest, "/devices/virtual/kfd", 20)) {
        snprintf(room, size, "%s/class/kfd%s", root, rest + 20);
    } else {
        snprintf(room, size, "%s%s", root, rest);
    }
    return room;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (_IOC_TYPE(request) != 'K' || !is_ours(fd)) {
        return (int)syscall(SYS_ioctl, fd, request, argument);
    }
    int rc = request_of(fd, request, argument);
    if (rc < 0) {
        errno = -rc;
        return -1;
    }
    return rc;
}

static int open_any(int folder, const char *path, int flags, mode_t mode)
{
    char room[4096];
    /* A render node is only mapped from, like the other. */
    if (path && (!strcmp(path, "/dev/kfd") || !strncmp(path, "/dev/dri/renderD", 16))) {
        return open_kfd(flags);
    }
    return (int)syscall(SYS_openat, folder, redirected(path, room, sizeof room), flags, mode);
}

#define MODE(flags)                                                 \
    mode_t mode = 0;                                                \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {  \
        va_list arguments;                                          \
        va_start(arguments, flags);                                 \
        mode = va_arg(arguments, mode_t);                           \
        va_end(arguments);                                          \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    char room[4096];
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    }
    return next(redirected(path, room, sizeof room), mode);
}

int stat(const char *restrict path, struct stat *restrict into)
{
    char room[4096];
    return (int)syscall(SYS_newfstatat, AT_FDCWD, redirected(path, room, sizeof room), into, 0);
}

DIR *opendir(const char *path)
{
    static DIR *(*next)(const char *);
    char room[4096];
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "opendir");
    }
    return next(redirected(path, room, sizeof room));
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    /* Doorbells and the like: plain memory does. */
    if (fd >= 0 && is_ours(fd)) {
        flags = (flags & ~(MAP_SHARED | MAP_PRIVATE)) | MAP_PRIVATE | MAP_ANONYMOUS;
        fd = -1, offset = 0;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}
