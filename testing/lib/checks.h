/* Checks for C test programs: a line for each, "ok WHAT" or "FAIL WHAT: …", the end by CHECKS_DONE with exit status 0 if all
 * held, else 1. Whoever includes this says what SUCCESS is; calls that are checked return int. */
#ifndef CHECKS_H
#define CHECKS_H

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int checks_failed;

__attribute__((format(printf, 2, 3), unused)) static void check_that(int holds, const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    /* Lines that other threads print otherwise stay whole too. */
    flockfile(stdout);
    fputs(holds ? "ok " : "FAIL ", stdout);
    vprintf(what, arguments);
    puts("");
    fflush(stdout);
    checks_failed |= !holds;
    funlockfile(stdout);
    va_end(arguments);
}

/* A check of its own line. */
#define CHECK(what, condition) check_that(condition, "%s", what)
/* A call that must give this result. */
#define GIVES(what, wanted, call)                                                                                      \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ == (wanted)) {                                                                                        \
            check_that(1, "%s", what);                                                                                 \
        } else {                                                                                                       \
            check_that(0, "%s: %s gave %d instead of %d (line %d)", what, #call, got_, (int)(wanted), __LINE__);       \
        }                                                                                                              \
    } while (0)
/* A call without which nothing else makes sense. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != SUCCESS) {                                                                                         \
            check_that(0, "%s gave %d (%s:%d)", #call, got_, __FILE__, __LINE__);                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECKS_DONE return checks_failed

#endif
