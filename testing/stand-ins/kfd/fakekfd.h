/* Parts of the pretended driver, see fakekfd.c. */
#ifndef FAKEKFD_H
#define FAKEKFD_H

#include <linux/kfd_ioctl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { QUEUES = 64 };

/* struct kfd_ioctl_create_queue_args since interface 1.17; earlier ones end before `sdma_engine_id`. */
struct create_queue_args {
    struct kfd_ioctl_create_queue_args v;
    uint32_t sdma_engine_id;
    uint32_t pad;
};

struct queue {
    bool used;
    uint32_t id;
    struct kfd_ioctl_create_queue_args v;
};

/* What the kernel knows of this process. */
struct kernel {
    pthread_mutex_t lock;
    pid_t owner;
    int fd;
    ino_t inode;
    dev_t device;
    struct queue queues[QUEUES];
    bool runs;
    unsigned injections;
};

/* Requests that have nothing to do with queues, see more.c: size of a request's structure (0 = unknown), and the answer. */
size_t fakekfd_more_size(unsigned number);
int fakekfd_more(unsigned number, void *data);

#endif
