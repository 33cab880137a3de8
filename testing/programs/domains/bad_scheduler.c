/* Schedulers that fail: -DCRASH at the third question, -DHANG likewise, -DNONE registers nothing, -DOLD a table of
 * another version; with -DSTREAMS a table that decides for streams. */
#include <stdlib.h>
#include <xsched/scheduler.h>

static void fail(void)
{
    static int asked;
    if (++asked >= 3) {
#ifdef CRASH
        abort();
#endif
#ifdef HANG
        for (volatile int on = 1; on;) { }
#endif
    }
}

#ifdef STREAMS
static int preempt(void *context, const XSchedStream *stream)
{
    (void)context;
    (void)stream;
    fail();
    return 0;
}
#else
static int preempt(void *context, const XSchedGroup *running, const XSchedGroup *waiting)
{
    (void)context;
    fail();
    return waiting->priority > running->priority;
}
#endif

int xsched_scheduler_init(void)
{
#ifdef STREAMS
    XSchedStreamScheduler streams = { .size = sizeof streams, .version = XSCHED_STREAM_SCHEDULER_VERSION,
                                      .preempt = preempt };
    return hipRegisterStreamScheduler(&streams);
#else
    XSchedScheduler table = { .size = sizeof table, .version = XSCHED_SCHEDULER_VERSION, .preempt = preempt };
#ifdef NONE
    (void)table;
    return 0;
#endif
#ifdef OLD
    table.version = 99;
#endif
    return XRegisterScheduler(&table);
#endif
}
