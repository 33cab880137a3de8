/* Returns from main while another thread waits to be let on. */
#include "hazard.h"
#include <pthread.h>

static void *body(void *arg)
{
    for (;;) {
        launch(arg, 100);
        SIM(simStreamSynchronize(((struct work *)arg)->stream));
    }
    return NULL;
}

int main(void)
{
    static struct work w;
    start_work(&w, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, &w) == 0);
    say("ready");
    await_line();
    return 5;
}
