/* A scheduler that decides nothing: it tells on stderr what it is told of the device's state, a line for each group that comes to want
 * the device. */
#include <stdio.h>
#include <xsched/scheduler.h>

static void submit(void *context, const XSchedGroup *group)
{
    (void)context;
    const XSchedDeviceState *state = group->state;
    if (state && group->size == sizeof *group && state->size == sizeof *state)
        fprintf(stderr, "%s memory %llu of %llu active %d %d heat %d of %d power %d of %d clock %d throttle %d outside %d\n",
                group->device, (unsigned long long)state->memory_used_bytes, (unsigned long long)state->memory_total_bytes,
                state->active_percent, state->memory_active_percent, state->temperature_c, state->temperature_limit_c,
                state->power_w, state->power_limit_w, state->sm_clock_mhz, state->throttle, state->outside);
    else
        fprintf(stderr, "%s unknown\n", group->device);
}

int xsched_scheduler_init(void)
{
    static const XSchedScheduler mine = {.size = sizeof mine, .version = XSCHED_SCHEDULER_VERSION, .submit = submit};
    return hipRegisterScheduler(&mine);
}
