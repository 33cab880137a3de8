// What the kit's programs share: they print one line that is the same on every run, or say what failed.
#ifndef CHECK_H
#define CHECK_H

#include <cstdio>
#include <cstdlib>

#define CHECK(call, good)                                                                   \
    do {                                                                                    \
        const auto status = (call);                                                         \
        if (status != (good)) {                                                             \
            printf("FAIL %s: %d\n", #call, (int)status);                                    \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

inline int rounds_of(int argc, char **argv, int otherwise)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : otherwise;
    if (rounds < 1) {
        fprintf(stderr, "usage: %s [ROUNDS], a number from 1 on\n", argv[0]);
        exit(2);
    }
    return rounds;
}

inline int verdict(const char *what, int rounds, int wrong)
{
    printf("%s %s rounds %d wrong %d\n", wrong ? "FAIL" : "ok", what, rounds, wrong);
    return wrong ? 1 : 0;
}

#endif
