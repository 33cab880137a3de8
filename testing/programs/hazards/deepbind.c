/* deepbind LIBRARY: opens it so that its calls are bound to what it needs itself, uses it, and stays until a line comes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char line[64];
    void *library = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
    void (*run)(void) = library ? (void (*)(void))dlsym(library, "run_plugin") : NULL;
    if (!run) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    run();
    puts("ready");
    fflush(stdout);
    return !fgets(line, sizeof line, stdin);
}
