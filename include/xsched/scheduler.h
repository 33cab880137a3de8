/* A scheduler of your own, as a shared library: its callbacks decide which groups have a device.
 *
 *   xsched daemon --scheduler ./libmine.so          a daemon whose policy is this one ("external")
 *   xsched run --scheduler ./libmine.so -- ./app    the same, for a daemon that this starts
 *
 * The library calls hipRegisterScheduler (or XRegisterScheduler, the same) in its constructor, or in a function
 * `int xsched_scheduler_init(void)` that it exports and that returns 0. The callbacks run in a process of their own beside
 * the daemon, one at a time: a crash, or a callback that does not return within 100 ms, ends that process, the policy is
 * hpf from then on, and the daemon says so once. In any other process registration is answered by 801 (not supported).
 *
 * When anything changes on a device, all its groups are decided anew: `submit` is called for each that has come to want
 * the device; then a group may have it if no other that wants it preempts it, and if `resume` agrees:
 *
 *   runs(g) = for no ready w: preempt(context, g, w)   and   (g not ready, or resume(context, g))
 *
 * A group that is not ready and "runs" starts without waiting when it becomes ready. If by this no group that wants the
 * device may have it, the one that waits longest does.
 *
 * Version 2 of the table decides stream by stream: see XSchedStreamScheduler below. */
#ifndef XSCHED_SCHEDULER_H
#define XSCHED_SCHEDULER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XSCHED_SCHEDULER_VERSION 1

/* State of a device, as its driver reports it (NVML, amdgpu), at most some seconds old. New members come at the end;
 * `size` tells which there are. */
typedef struct XSchedDeviceState {
    size_t size;
    uint64_t age_ms;                                /* age of the reading */
    uint64_t memory_used_bytes, memory_total_bytes; /* total 0 = not known */
    int32_t active_percent;                         /* part of the last second in which some kernel ran; these: -1 = not known */
    int32_t memory_active_percent;                  /* the same of device memory */
    int32_t temperature_c, temperature_limit_c;     /* the limit: the device slows down there */
    int32_t power_w, power_limit_w;
    int32_t sm_clock_mhz;
    int32_t throttle;                               /* XSCHED_THROTTLE_...; 0 = not slowed down */
    int32_t outside;                                /* processes that use it without being attached */
} XSchedDeviceState;

#define XSCHED_THROTTLE_POWER_CAP 1    /* its power limit */
#define XSCHED_THROTTLE_SW_THERMAL 2   /* heat, as the driver sees it */
#define XSCHED_THROTTLE_HW_THERMAL 4   /* heat, as the hardware sees it */
#define XSCHED_THROTTLE_POWER_BRAKE 8  /* the power supply asked for it */
#define XSCHED_THROTTLE_HW_SLOWDOWN 16 /* the hardware, for one of the last two reasons or another */

/* A suspension unit: all queues of a process on a device with the same priority. New members come at the end; `size`
 * tells which there are. Valid during the callback. */
typedef struct XSchedGroup {
    size_t size;
    uint64_t id, program;      /* never used again; equal programs are one process */
    const char *device;        /* "pci:0000:41:00.0", "sim:0", ... */
    uint32_t pid, weight;      /* weight: 1..10000 */
    int32_t priority;          /* -255..255, higher is more urgent */
    int32_t ready, running;    /* wants the device; has it */
    uint64_t timeslice_us;
    uint64_t ready_since_us;   /* CLOCK_MONOTONIC */
    uint64_t used_us;          /* device time charged so far */
    const XSchedDeviceState *state; /* of its device; NULL = not known. Look at `size`: earlier versions end before it */
} XSchedGroup;

typedef struct XSchedScheduler {
    size_t size;               /* sizeof(XSchedScheduler) */
    uint32_t version;          /* XSCHED_SCHEDULER_VERSION */
    void *context;             /* handed to each callback */
    void (*submit)(void *context, const XSchedGroup *group);                                  /* may be NULL */
    int (*preempt)(void *context, const XSchedGroup *running, const XSchedGroup *waiting);    /* NULL = never */
    int (*resume)(void *context, const XSchedGroup *group);                                   /* NULL = always */
} XSchedScheduler;

/* The table is copied. 0 = success, 1 = invalid value (null, too small, another version), 801 = not supported here. */
int hipRegisterScheduler(const XSchedScheduler *scheduler);
int XRegisterScheduler(const XSchedScheduler *scheduler);

/* Version 2: a decision for each stream, also beside the others of its program. */
#define XSCHED_STREAM_SCHEDULER_VERSION 2

struct XSchedStreams;

/* A stream (a queue of OpenCL). New members come at the end; `size` tells which there are. Valid during the callback.
 * A process has 48 of its own at most: further ones of the same priority are one stream here, with the launches of all. */
typedef struct XSchedStream {
    size_t size;
    uint64_t id, program;      /* never used again; equal programs are one process */
    const char *device;        /* "pci:0000:41:00.0", "sim:0", ... */
    uint32_t pid, weight;      /* weight: 1..10000 */
    int32_t priority;          /* -255..255 with that of the program, higher is more urgent */
    int32_t stream_priority;   /* as the program made the stream, in steps: 0 = plain, higher is more urgent */
    int32_t ready, running;    /* wants the device; has it */
    uint64_t launches;         /* made so far; those that wait are among them */
    uint64_t timeslice_us;
    uint64_t ready_since_us;   /* CLOCK_MONOTONIC */
    uint64_t used_us;          /* device time charged so far */
    const struct XSchedStreams *beside; /* all streams of the device, this one among them */
    const XSchedDeviceState *state;     /* of its device; NULL = not known. Look at `size`: earlier versions end before it */
} XSchedStream;

typedef struct XSchedStreams {
    size_t count;
    const XSchedStream *const *streams;
} XSchedStreams;

/* When anything changes on a device, `submit` is called for each stream that has come to want it; then `preempt` for each
 * stream that has the device (not zero = it loses it) and `resume` for each that does not (not zero = it gets it).
 * A stream that has the device without wanting it starts without waiting. If by this no stream that wants the device may
 * have it, the one that waits longest does. */
typedef struct XSchedStreamScheduler {
    size_t size;               /* sizeof(XSchedStreamScheduler) */
    uint32_t version;          /* XSCHED_STREAM_SCHEDULER_VERSION */
    void *context;             /* handed to each callback */
    void (*submit)(void *context, const XSchedStream *stream);    /* may be NULL */
    int (*preempt)(void *context, const XSchedStream *stream);    /* NULL = never */
    int (*resume)(void *context, const XSchedStream *stream);     /* NULL = always */
} XSchedStreamScheduler;

/* Registers a table of version 2. */
static inline int hipRegisterStreamScheduler(const XSchedStreamScheduler *scheduler)
{
    return hipRegisterScheduler((const XSchedScheduler *)(const void *)scheduler);
}

#ifdef __cplusplus
}
#endif
#endif
