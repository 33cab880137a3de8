/* Asks for every job through the seven libraries, on the null stream, on one of its own, and by a second thread.
 *
 *   deep [ROUNDS] */
#include "../../../programs/hip/hip.h"
#include "chain.h"

int plugin(enum job, void *);

static void *all_jobs(void *stream)
{
    for (enum job job = BLAS; job <= COLLECTIVE; job++) {
        checks_failed |= plugin(job, stream);
    }
    return 0;
}

int main(int count, char **words)
{
    int rounds = count > 1 ? atoi(words[1]) : 1;
    need_device();
    hipStream_t own = 0;
    pthread_t thread;
    OK(hipStreamCreateWithFlags(&own, 1));
    for (int i = 0; i < rounds; i++) {
        all_jobs(0);
        all_jobs(own);
        pthread_create(&thread, 0, all_jobs, PER_THREAD);
        pthread_join(thread, 0);
    }
    OK(hipStreamDestroy(own));
    CHECKS_DONE;
}
