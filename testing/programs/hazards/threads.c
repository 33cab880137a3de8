/* Threads that come and go by the hundred, each on a stream of all and on one of its own. */
#include "hazard.h"
#include <pthread.h>

enum { ROUNDS = 60, TOGETHER = 8 };

static simStream shared;

static void *body(void *arg)
{
    (void)arg;
    struct work w;
    start_work(&w, 0);
    for (int i = 0; i < 5; i++) {
        launch(&w, 10);
        simKernel nothing = { .op = simOpNop };
        SIM(simLaunchKernel(&nothing, shared));
    }
    end_work(&w);
    return NULL;
}

int main(void)
{
    SIM(simStreamCreate(&shared));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
        for (int i = 0; i < TOGETHER; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
    SIM(simStreamSynchronize(shared));
    report();
    say("ok");
    return 0;
}
