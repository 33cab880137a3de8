/* A signal handler leaves an enqueue by siglongjmp. Only while the test holds the program: then the thread waits
 * outside of the device's library, which could not stand it. The jumped-out command never was. */
#include "hazard.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;
static volatile sig_atomic_t jumps;
static void on_signal(int number)
{
    (void)number;
    jumps++;
    siglongjmp(back, 1);
}

int main(void)
{
    static struct work w;
    struct sigaction action = { .sa_handler = on_signal };
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    start_work(&w, 0);
    say("ready");
    struct pollfd in = { .fd = 0, .events = POLLIN };
    static simKernel nothing = { .op = simOpNop, .duration_ns = 100000 };
    if (sigsetjmp(back, 1) != 0)
        say("jumped");
    while (poll(&in, 1, 0) <= 0) {
        SIM(simLaunchKernel(&nothing, w.stream));
        SIM(simStreamSynchronize(w.stream));
    }
    await_line();
    for (int i = 0; i < 20; i++)
        launch(&w, 10);
    check_work(&w);
    report();
    say("quiet");
    await_line();
    say("ok");
    return 0;
}
