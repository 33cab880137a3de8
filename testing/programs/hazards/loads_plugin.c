/* loads_plugin LIBRARY: opens it, uses it and closes it, over and over; the program itself knows nothing of a device. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

struct counters { unsigned long long launched, others[3]; };

int main(int argc, char **argv)
{
    struct counters counters = { 0 };
    for (int i = 0; i < 20; i++) {
        void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
        void (*run)(void) = library ? (void (*)(void))dlsym(library, "run_plugin") : NULL;
        int (*count)(int, void *) = library ? (int (*)(int, void *))dlsym(library, "simGetCounters") : NULL;
        if (!run || !count) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        run();
        if (count(0, &counters) != 0)
            return 1;
        if (dlclose(library) != 0)
            return 1;
    }
    printf("launched %d %llu\nok\n", (int)getpid(), counters.launched);
    return 0;
}
