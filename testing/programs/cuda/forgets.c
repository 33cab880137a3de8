/* Uses the default stream once, alone, and never waits for it; then "ready". After "go" on stdin a stream of its own works
 * every 20 ms and is waited for, until "end". */
#include "cu.h"
#include <poll.h>

static int told(const char *word, int ms)
{
    char line[32];
    struct pollfd in = {0, POLLIN, 0};
    return poll(&in, 1, ms) > 0 && (!fgets(line, sizeof line, stdin) || !strcmp(line, word));
}

int main(void)
{
    CUstream s;
    CUdeviceptr x;
    cu_start();
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuMemAlloc_v2(&x, 4));
    OK(launch_fill(NULL, x, 1, 1));
    puts("ready");
    fflush(stdout);
    while (!told("go\n", -1)) {
    }
    long rounds = 0;
    while (!told("end\n", 20)) {
        OK(launch_spin(s, 200));
        OK(launch_axpy(s, x, x, 1, 0));
        OK(cuStreamSynchronize(s));
        rounds++;
    }
    CHECK("it has worked", rounds > 0);
    CHECKS_DONE;
}
