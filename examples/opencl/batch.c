/* Multiplies matrices without end, 32 at a time. batch [STEPS], 0 or nothing = without end. */
#define _POSIX_C_SOURCE 200809L
#include "device.h"

int main(int argc, char **argv)
{
    long steps = argc > 1 ? atol(argv[1]) : 0;
    set_up();
    for (long n = 1; steps == 0 || n <= steps; n++) {
        multiply(32);
        printf("step %ld\n", n);
        fflush(stdout);
    }
    return 0;
}
