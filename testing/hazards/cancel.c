/* pthread_cancel of a thread that waits to be let on: cancel deferred|asynchronous. */
#include "hazard.h"
#include <pthread.h>

static int type;

static void *body(void *arg)
{
    struct work *w = arg;
    for (;;) {
        launch(w, 100);
        /* The device's own library need not survive a cancellation: none may fall into it. */
        SIM(simStreamSynchronize(w->stream));
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        pthread_setcanceltype(type, NULL);
        pthread_testcancel();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    type = argc > 1 && !strcmp(argv[1], "asynchronous") ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
    static struct work w, mine;
    start_work(&w, 0);
    start_work(&mine, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, &w) == 0);
    say("ready");
    await_line();
    CHECK(pthread_cancel(thread) == 0);
    say("cancelled");
    void *result;
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    say("joined");
    await_line();
    for (int i = 0; i < 20; i++)
        launch(&mine, 10);
    check_work(&mine);
    report();
    say("ok");
    return 0;
}
