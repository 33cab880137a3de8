/* A library that uses the device; loaded and closed again by loads_plugin.c. */
#include "hazard.h"

void run_plugin(void);
void run_plugin(void)
{
    struct work w;
    start_work(&w, 0);
    for (int i = 0; i < 20; i++)
        launch(&w, 20);
    end_work(&w);
}
