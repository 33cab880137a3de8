/* pthread_cancel of a thread that waits to be let on. It takes effect at the thread's next cancellation point, which
 * the wait is not: nothing of ours may be unwound. */
#include "hazard.h"
#include <pthread.h>

static void *body(void *arg)
{
    struct work *w = arg;
    for (;;) {
        launch(w, 100);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        SIM(simStreamSynchronize(w->stream));
        /* The device's own library need not survive a cancellation: it may only fall between the two. */
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        pthread_testcancel();
    }
    return NULL;
}

int main(void)
{
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
