/* launches [unchecked]: says whether the kernel started it in secure mode, and launches a few kernels. */
#include "hazard.h"
#include <sys/auxv.h>

int main(int argc, char **argv)
{
    struct work w;
    (void)argv;
    printf("secure %lu\n", getauxval(AT_SECURE));
    start_work(&w, 0);
    for (int i = 0; i < 5; i++)
        launch(&w, 50);
    SIM(simStreamSynchronize(w.stream));
    if (argc == 1)
        check_work(&w);
    puts("ok");
    return 0;
}
