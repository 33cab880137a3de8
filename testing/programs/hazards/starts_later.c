/* First uses the device when told to, and goes on a line at a time until stdin ends. */
#include "hazard.h"

int main(void)
{
    char line[64];
    struct work w;
    int begun = 0;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!begun)
            start_work(&w, 0);
        begun = 1;
        launch(&w, 100);
        check_work(&w);
        say("done");
    }
    if (begun)
        end_work(&w);
    say("ok");
    return 0;
}
