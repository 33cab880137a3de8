/* A scheduler that turns the priorities of streams round, also of streams of one program: the least urgent goes first.
 *
 *   cc -shared -fPIC -I include -o libreverse-streams.so examples/reverse-scheduler/streams.c
 *   xsched daemon --scheduler ./libreverse-streams.so */
#include <xsched/scheduler.h>

/* Whether another stream wants the device that is less urgent than this one. */
static int less_urgent_waits(const XSchedStream *stream)
{
    for (size_t i = 0; i < stream->beside->count; i++) {
        const XSchedStream *other = stream->beside->streams[i];
        if (other->ready && other->priority < stream->priority)
            return 1;
    }
    return 0;
}

static int preempt(void *context, const XSchedStream *stream)
{
    (void)context;
    return less_urgent_waits(stream);
}

static int resume(void *context, const XSchedStream *stream)
{
    (void)context;
    return !less_urgent_waits(stream);
}

static const XSchedStreamScheduler reverse = {
    .size = sizeof reverse,
    .version = XSCHED_STREAM_SCHEDULER_VERSION,
    .preempt = preempt,
    .resume = resume,
};

int xsched_scheduler_init(void)
{
    return hipRegisterStreamScheduler(&reverse);
}
