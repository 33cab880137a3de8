/* Ends the program from a function that the device's library calls. */
#include "hazard.h"

static void leave(void *status)
{
    report();
    exit(*(int *)status);
}

int main(void)
{
    static int status = 7;
    struct work w;
    start_work(&w, 0);
    for (int i = 0; i < 20; i++)
        launch(&w, 50);
    SIM(simLaunchHostFunc(w.stream, leave, &status));
    for (;;)
        launch(&w, 50);
}
