/* How a program that goes on and on is asked and told, by lines on stdin: "count" is answered with "given N done M", also
 * while its launches are held; "exit" exits at once; "end", or the end of stdin, ends it. */
#ifndef STEADY_H
#define STEADY_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long given;
static atomic_int ending;
static volatile float *done; /* by the device */

static void *listens(void *unused)
{
    char line[32];
    /* Unlocked: an exit() in another thread may wait for the lock of stdin (glibc 2.39), and so would never end. */
    while (fgets_unlocked(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "count\n")) {
            long g = atomic_load(&given);
            printf("given %ld done %ld\n", g, (long)*done);
            fflush(stdout);
        }
        if (!strcmp(line, "exit\n")) {
            exit(0);
        }
    }
    atomic_store(&ending, 1);
    return unused;
}

#endif
