/* Correct programs that a bound on work in flight could bring to a stop: kernels wait for a value that the same
 * thread stores only after many more commands, given to another stream (beside) or to the same one (behind). */
#include "hazard.h"

int main(int argc, char **argv)
{
    int behind = argc > 1 && !strcmp(argv[1], "behind");
    struct work a, b;
    start_work(&a, 0);
    start_work(&b, 0);
    /* Kernels of known length on both, so that the bound has something to count. */
    for (int i = 0; i < 20; i++) {
        launch(&a, 300);
        launch(&b, 20);
        SIM(simStreamSynchronize(a.stream));
        SIM(simStreamSynchronize(b.stream));
    }
    volatile uint32_t *value;
    SIM(simHostAlloc((void **)&value, sizeof *value));
    *value = 0;
    say("ready");
    await_line();
    SIM(simStreamWaitValue32(a.stream, (void *)value, 1, simWaitGeq));
    for (int i = 0; i < 6; i++)
        launch(&a, 300);
    long long begin = now_ns();
    for (int i = 0; i < (behind ? 800 : 5000); i++)
        launch(behind ? &a : &b, 20);
    printf("%lld ms\n", (now_ns() - begin) / 1000000);
    *value = 1;
    end_work(&a);
    end_work(&b);
    SIM(simHostFree((void *)value));
    report();
    say("ok");
    return 0;
}
