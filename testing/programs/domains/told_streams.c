/* A scheduler that lets all streams run and tells on stderr what it is told: a line for each call of submit. (It may write no
 * file.) */
#include <stdio.h>
#include <xsched/scheduler.h>

static void submit(void *context, const XSchedStream *stream)
{
    (void)context;
    fprintf(stderr, "told %u %llu %d %d %llu\n", stream->pid, (unsigned long long)stream->id, stream->stream_priority,
            stream->priority, (unsigned long long)stream->launches);
}

int xsched_scheduler_init(void)
{
    static const XSchedStreamScheduler told = { .size = sizeof told, .version = XSCHED_STREAM_SCHEDULER_VERSION,
                                                .submit = submit };
    return hipRegisterStreamScheduler(&told);
}
