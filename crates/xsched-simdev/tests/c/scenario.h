/* Helpers of the test programs: each scenario ends the process with 0, or says what failed and ends it with 1. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "simdev.h"

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define GIVES(error, call)                                                                                             \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != (error)) {                                                                                         \
            fprintf(stderr, "%s:%d: %s gave %d instead of %d\n", __FILE__, __LINE__, #call, got_, (error));            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) GIVES(simSuccess, call)

static inline simKernel kernel(unsigned op, float *y, unsigned count, float a, long us)
{
    return (simKernel){ .op = op, .count = count, .duration_ns = (uint64_t)us * 1000, .x = y, .y = y, .a = a };
}

static inline void launch(unsigned op, float *y, unsigned count, float a, long us, simStream stream)
{
    simKernel k = kernel(op, y, count, a, us);
    OK(simLaunchKernel(&k, stream));
}

static inline void busy(long us, simStream stream) { launch(simOpNop, NULL, 0, 0, us, stream); }

/* A page shared with other processes, in a memfd that the device accepts. */
static inline uint32_t *shared_page(int *fd)
{
    *fd = memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT(*fd >= 0 && ftruncate(*fd, 4096) == 0 && fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    EXPECT(page != MAP_FAILED);
    return page;
}

static inline void say(int fd) { EXPECT(write(fd, "x", 1) == 1); }
static inline void hear(int fd)
{
    char c;
    EXPECT(read(fd, &c, 1) == 1);
}

/* Waits until the device has taken in all that this process gave. */
static inline simCounters counters(void)
{
    simCounters c;
    OK(simGetCounters(0, &c));
    return c;
}

static inline double elapsed_ms(simEvent start, simEvent end)
{
    float ms;
    OK(simEventElapsedTime(&ms, start, end));
    return ms;
}

static inline void reap(pid_t pid)
{
    int status;
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
