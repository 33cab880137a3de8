/* Its main thread goes to one processor and SCHED_FIFO, uses the device from there, and then never sleeps: until a line on stdin. */
#include "hazard.h"
#include <poll.h>
#include <sched.h>

int main(void)
{
    struct sched_param param = { .sched_priority = 1 };
    struct pollfd in = { .fd = 0, .events = POLLIN };
    cpu_set_t allowed, one;
    struct work w;
    int cpu = 0;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    if (sched_setscheduler(0, SCHED_FIFO, &param) != 0) {
        say("not allowed");
        return 0;
    }
    start_work(&w, 0);
    launch(&w, 100);
    check_work(&w);
    say("spins");
    while (poll(&in, 1, 0) == 0) { }
    say("ok");
    return 0;
}
