/* Allocates and uses the device in destructors of thread-local storage, which run after the scheduler's own. */
#include "hazard.h"
#include <pthread.h>

static pthread_key_t key;

static void destroy(void *arg)
{
    struct work *w = arg;
    void *memory = malloc(10000);
    memset(memory, 1, 10000);
    for (int i = 0; i < 5; i++)
        launch(w, 10);
    free(memory);
    end_work(w);
    free(w);
}

static void *body(void *arg)
{
    (void)arg;
    struct work *w = malloc(sizeof *w);
    start_work(w, 0);
    for (int i = 0; i < 5; i++)
        launch(w, 10);
    CHECK(pthread_setspecific(key, w) == 0);
    return NULL;
}

int main(void)
{
    CHECK(pthread_key_create(&key, destroy) == 0);
    for (int round = 0; round < 50; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
        for (int i = 0; i < 4; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
    report();
    say("ok");
    return 0;
}
