/* Is on the device and wants nothing: whoever comes after it is watched from the first launch on. */
#include "../hazards/hazard.h"

int main(void)
{
    struct work w;
    start_work(&w, 0);
    check_work(&w);
    say("ready");
    await_line();
    end_work(&w);
    return 0;
}
