/* What all programs here share: each call and its return code is a line of output. */
#include <hip/hip_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define SAYS(call) printf("%s %d\n", #call, (int)(call))
/* What all calls of a loop returned: 0, or the first that is not. */
#define ALL(times, call)                                                                                               \
    do {                                                                                                               \
        int wrong = 0;                                                                                                 \
        for (int i = 0; i < (times) && !wrong; i++)                                                                    \
            wrong = (int)(call);                                                                                       \
        printf("%d x %s %d\n", times, #call, wrong);                                                                   \
    } while (0)

/* Each line at once: what was said before a crash counts. */
__attribute__((constructor)) static void lines_at_once()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
}

#define BYTES (4u << 20)

/* Device memory of BYTES, set to zero. */
template <typename T = void> static T *buffer()
{
    T *at = nullptr;
    SAYS(hipMalloc((void **)&at, BYTES));
    SAYS(hipMemset(at, 0, BYTES));
    return at;
}
