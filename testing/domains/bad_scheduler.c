/* Schedulers that fail: -DCRASH at the third question, -DHANG likewise, -DNONE registers nothing, -DOLD a table of
 * another version. */
#include <stdlib.h>
#include <xsched/scheduler.h>

static int preempt(void *context, const XSchedGroup *running, const XSchedGroup *waiting)
{
    static int asked;
    (void)context;
    if (++asked >= 3) {
#ifdef CRASH
        abort();
#endif
#ifdef HANG
        for (volatile int on = 1; on;) { }
#endif
    }
    return waiting->priority > running->priority;
}

int xsched_scheduler_init(void)
{
    XSchedScheduler table = { .size = sizeof table, .version = XSCHED_SCHEDULER_VERSION, .preempt = preempt };
#ifdef NONE
    (void)table;
    return 0;
#endif
#ifdef OLD
    table.version = 99;
#endif
    return XRegisterScheduler(&table);
}
