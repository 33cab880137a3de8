/* What the programs of this folder share: a device of the platform in PLATFORM, commands that give it work, and waits with a
 * deadline. A program prints a line for each check, see ../../lib/checks.h. */
#ifndef DEVICE_H
#define DEVICE_H

#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>

enum { CELLS = 64 };

#include <xsched/xsched.h>

#include PLATFORM

#include <time.h>
#include <unistd.h>

/* A stream and the XQueue over it; its commands count in a cell of their own. */
typedef struct {
    native native;
    HwQueueHandle hwq;
    XQueueHandle xq;
    long us;
    int cell;
    atomic_long launched;
} Queue;

static int cells_used;

/* Of a queue that may be read while the device works on it. */
static long complete(Queue *q)
{
    return ((volatile float *)cells)[q->cell];
}

static XResult work(HwQueueHandle hwq, void *data)
{
    Queue *q = data;
    atomic_fetch_add(&q->launched, 1);
    return hwq == q->hwq && give(q->native, q->us, q->cell) == SUCCESS ? kXSchedSuccess : kXSchedErrorHardware;
}

__attribute__((unused)) static void make_bare(Queue *q, long us)
{
    q->native = new_native();
    q->us = us;
    q->cell = cells_used++;
    atomic_store(&q->launched, 0);
    OK(handle_of(&q->hwq, q->native));
}

__attribute__((unused)) static void make(Queue *q, int64_t level, int64_t flags, long us)
{
    make_bare(q, us);
    OK(XQueueCreate(&q->xq, q->hwq, level, flags));
}

/* Submits so many commands; the handle of the last. */
__attribute__((unused)) static HwCommandHandle submit(Queue *q, int n)
{
    HwCommandHandle command = 0;
    for (int i = 0; i < n; i++) {
        if (command) OK(HwCommandDestroy(command));
        OK(HwCommandCreateCallback(&command, work, q));
        OK(XQueueSubmit(q->xq, command));
    }
    return command;
}

__attribute__((unused)) static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Waits until a condition holds; a check says if it does not within 20 s. */
#define UNTIL(what, condition)                                                                                         \
    do {                                                                                                               \
        double until_ = now_s() + 20;                                                                                  \
        while (!(condition) && now_s() < until_) usleep(200);                                                          \
        CHECK(what, condition);                                                                                        \
    } while (0)

#endif
