/* A scheduler that turns priorities round: the least urgent goes first.
 *
 *   cc -shared -fPIC -I include -o libreverse.so examples/reverse-scheduler/reverse.c
 *   xsched daemon --scheduler ./libreverse.so */
#include <xsched/scheduler.h>

static int preempt(void *context, const XSchedGroup *running, const XSchedGroup *waiting)
{
    (void)context;
    return waiting->priority < running->priority;
}

static const XSchedScheduler reverse = {
    .size = sizeof reverse,
    .version = XSCHED_SCHEDULER_VERSION,
    .preempt = preempt,
};

int xsched_scheduler_init(void)
{
    return hipRegisterScheduler(&reverse);
}
