/* libsimdev: a simulated device, called like a vendor's library and shared by all processes of a user.
 *
 * All functions return an enum simError. They may be called from any thread. A process has one context per device,
 * made at first use; a forked child makes its own. Handles are opaque; NULL as a stream is the context's default
 * stream, an in-order stream like any other (it implies no barrier). At most 1024 commands wait in a stream: the
 * call that gives one more waits for the first.
 *
 * The device is a process of its own, found at the socket $SIMDEV_SOCKET, else $XDG_RUNTIME_DIR/simdev.sock, else
 * /tmp/simdev-<uid>/simdev.sock. If none answers, one is started: $SIMDEV_SERVER, else `xsched` beside this library.
 * It ends 10 s after its last client. It reads SIMDEV_TIMESLICE_US (2000), SIMDEV_SWITCH_US (50) and
 * SIMDEV_DEVICES (1) from the environment of the process that starts it. */
#ifndef SIMDEV_H
#define SIMDEV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simError {
    simSuccess = 0,
    simErrorInvalidValue = 1,
    simErrorOutOfMemory = 2,
    simErrorNoDevice = 3,
    simErrorInvalidHandle = 4,
    simErrorNotReady = 5,
    simErrorNotSupported = 6,
    simErrorDeviceLost = 7
};

typedef struct simStream_st *simStream;
typedef struct simEvent_st *simEvent;

/* Effects take place when the kernel completes. x and y lie in memory of simMalloc or simHostAlloc. */
enum simOp {
    simOpNop = 0,
    simOpFill = 1,     /* y[i] = a */
    simOpAxpy = 2,     /* y[i] += a * x[i] */
    simOpAddIndex = 3  /* y[i] = y[i] * a + i */
};

typedef struct simKernel {
    uint32_t op;
    uint32_t count;
    uint64_t duration_ns; /* device time */
    float *x, *y;
    float a;
} simKernel;

typedef struct simCounters {
    uint64_t launched;              /* kernels, copies and sets this process has given */
    uint64_t completed;             /* of those */
    uint64_t switches;              /* context switches of the device */
    uint64_t launched_total_device; /* kernels, copies and sets everybody has given */
} simCounters;

int simInit(unsigned flags); /* flags: 0. Not required. */
int simDeviceGetCount(int *count);
int simDeviceGetName(char *name, int len, int dev);
int simSetDevice(int dev); /* of the calling thread */
int simGetDevice(int *dev);
int simDeviceSynchronize(void);
int simDeviceReset(void); /* ends the context: handles, memory and registrations with it */

int simStreamCreate(simStream *stream);
int simStreamCreateWithPriority(simStream *stream, int priority); /* -2..2, higher = more urgent; only kept */
int simStreamGetPriority(simStream stream, int *priority);
int simStreamDestroy(simStream stream); /* what it was given still runs */
int simStreamSynchronize(simStream stream);
int simStreamQuery(simStream stream); /* simErrorNotReady while work is left */

int simEventCreate(simEvent *event);
int simEventDestroy(simEvent event);
int simEventRecord(simEvent event, simStream stream);
int simEventSynchronize(simEvent event);
int simEventQuery(simEvent event);
int simStreamWaitEvent(simStream stream, simEvent event); /* both of one device */
int simEventElapsedTime(float *ms, simEvent start, simEvent end); /* device time */

int simMalloc(void **ptr, size_t size);
int simFree(void *ptr); /* waits for the context */
int simHostAlloc(void **ptr, size_t size);
int simHostFree(void *ptr); /* waits for the context */

/* Transfers take size / (10 GB/s) of device time. */
int simMemcpy(void *dst, const void *src, size_t size); /* any memory; in the default stream; waits */
int simMemcpyAsync(void *dst, const void *src, size_t size, simStream stream); /* simMalloc or simHostAlloc memory */
int simMemset(void *ptr, int value, size_t size);
int simMemsetAsync(void *ptr, int value, size_t size, simStream stream);

int simLaunchKernel(const simKernel *kernel, simStream stream);
int simLaunchHostFunc(simStream stream, void (*fn)(void *), void *data); /* on a thread of the library */

/* A MAP_SHARED mapping of a memfd that this process has open and that is sealed against shrinking. Per context. */
int simHostRegister(void *ptr, size_t size);
int simHostUnregister(void *ptr);

/* addr: 4-byte aligned, from simMalloc, simHostAlloc or registered memory. The device polls it. */
enum simWaitFlags {
    simWaitGeq = 0, /* (int32_t)(*addr - value) >= 0 */
    simWaitEq = 1,  /* *addr == value */
    simWaitAnd = 2, /* (*addr & value) != 0 */
    simWaitNor = 3  /* ~(*addr | value) != 0 */
};
int simStreamWaitValue32(simStream stream, void *addr, uint32_t value, unsigned flags);
int simStreamWriteValue32(simStream stream, void *addr, uint32_t value);

/* The calling process's own context. These never wait: a store to shared memory and a doorbell. */
int simContextSetTimeslice(int dev, uint64_t us); /* 1..10000000; from its next slice on */
int simContextGetTimeslice(int dev, uint64_t *us);
int simContextSetRunnable(int dev, int on); /* 0: off the device within a switch, even inside a kernel; 1: back */

int simGetProcAddress(const char *name, void **fn);
int simGetCounters(int dev, simCounters *counters);

#ifdef __cplusplus
}
#endif
#endif
