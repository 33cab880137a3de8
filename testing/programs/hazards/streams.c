/* Streams of different priority in one process that wait for each other: streams [cycle].
 * Events in a cycle, with nobody else (cycle: only that), and then beside threads that keep the middle and the high one
 * busy; threads that wait for the low one, for an event of it, and for the whole device. */
#include "hazard.h"
#include <pthread.h>
#include <stdatomic.h>

enum { LAPS = 40 };

static atomic_int over;

static void *busy(void *arg)
{
    struct work *w = arg;
    while (!atomic_load(&over)) {
        for (int i = 0; i < 8; i++)
            launch(w, 200);
        SIM(simStreamSynchronize(w->stream));
    }
    return NULL;
}

/* Round and round: each stream waits for what the one before it did last. */
static void cycle(struct work *w, int n)
{
    simEvent event;
    SIM(simEventCreate(&event));
    for (int lap = 0; lap < LAPS; lap++)
        for (int s = 0; s < n; s++) {
            if (lap || s)
                SIM(simStreamWaitEvent(w[s].stream, event));
            launch(&w[s], 20); /* Too short for each to be followed to its end. */
            SIM(simEventRecord(event, w[s].stream));
        }
    SIM(simEventSynchronize(event));
    SIM(simEventDestroy(event));
}

static void beside_others(struct work *ring, struct work *middle, struct work *low, struct work *high)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, busy, middle) == 0);
    cycle(ring, 3);
    say("cycle beside the middle one");
    /* This thread is as urgent as the high stream; what it waits for is below the middle one. */
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 10; k++)
            launch(low, 100);
        launch(high, 100);
        SIM(simStreamSynchronize(high->stream));
        SIM(simStreamSynchronize(low->stream));
    }
    say("low stream");
    simEvent event;
    SIM(simEventCreate(&event));
    for (int i = 0; i < 10; i++) {
        launch(low, 100);
        SIM(simEventRecord(event, low->stream));
        SIM(simStreamWaitEvent(high->stream, event));
        launch(high, 100);
        SIM(simStreamSynchronize(high->stream));
    }
    SIM(simEventDestroy(event));
    say("high stream behind the low one");
    launch(low, 100);
    SIM(simDeviceSynchronize());
    say("device");
    atomic_store(&over, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    struct work ring[3], middle, low, high;
    for (int s = 0; s < 3; s++)
        start_work(&ring[s], 1 - s);
    start_work(&middle, 0);
    start_work(&low, -1);
    start_work(&high, 1);
    SIM(simDeviceSynchronize());
    say("ready");
    cycle(ring, 3);
    say("cycle");
    if (argc < 2 || strcmp(argv[1], "cycle"))
        beside_others(ring, &middle, &low, &high);
    for (int s = 0; s < 3; s++)
        end_work(&ring[s]);
    end_work(&middle);
    end_work(&low);
    end_work(&high);
    report();
    say("ok");
    return 0;
}
