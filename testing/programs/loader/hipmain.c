/* One scenario per run, `hipmain FOLDER SCENARIO`: how many copies of the HIP runtime are there, and who is bound to which.
 * -DLINKED: linked against copy 1, in the folder where the loader looks by itself. */
#define _GNU_SOURCE
#include "fakehip.h"
#include "load.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INVALID_FUNCTION = 98 };
typedef int (*work_fn)(void);
typedef int (*launch_fn)(const void *, struct dim3, struct dim3, void **, size_t, void *);
typedef int (*stream_fn)(void *);
typedef int (*look_up_fn)(const char *, void **, int, unsigned long long, int *);

static int work(void *handle)
{
    return ((work_fn)find(handle, "hip_work"))();
}

/* A function pointer, called from here. */
static int launch(launch_fn function, const void *kernel, void *stream)
{
    void *args[] = {(void *)0x77};
    return function(kernel, (struct dim3){1, 1, 1}, (struct dim3){64, 1, 1}, args, 0, stream);
}

/* A framework with its own copy beside it, opened as Python does, and a program that knows nothing of HIP. */
static int bundled(void)
{
    return work(load("hip_bundled.so", RTLD_NOW | RTLD_LOCAL));
}

/* The same, and then a library bound to the copy in the default folder. */
static int two_copies(void)
{
    void *one = load("hip_bundled.so", RTLD_NOW | RTLD_LOCAL), *other = load("hip_default.so", RTLD_NOW | RTLD_LOCAL);
    int failures = 0;
    for (int i = 0; i < 3; i++)
        failures += work(one) + work(other);
    return failures;
}

/* The bundled copy is opened for everybody first. */
static int bundled_for_all(void)
{
    load("hip2/libamdhip64.so", RTLD_NOW | RTLD_GLOBAL);
    return work(load("hip_bundled.so", RTLD_NOW)) + work(load("hip_default.so", RTLD_NOW));
}

/* As Triton does it: the copy that is there already, by dlsym. */
static int looked_up(void)
{
    void *module = load("hip_bundled.so", RTLD_NOW | RTLD_LOCAL);
    int failures = work(module);
    void *runtime = dlopen("libamdhip64.so", RTLD_NOW | RTLD_NOLOAD);
    const void *kernel = ((const void *(*)(void))find(module, "hip_kernel"))();
    if (!runtime)
        printf("dlopen: %s\n", dlerror()), exit(1);
    failures += launch((launch_fn)find(runtime, "hipLaunchKernel"), kernel, NULL) != 0;
    failures += ((stream_fn)find(runtime, "hipStreamSynchronize"))(NULL) != 0;
    void *found[2];
    look_up_fn look_up = (look_up_fn)find(runtime, "hipGetProcAddress");
    failures += look_up("hipLaunchKernel", &found[0], 60300000, 0, NULL) != 0;
    failures += look_up("hipStreamSynchronize", &found[1], 60300000, 0, NULL) != 0;
    failures += launch((launch_fn)found[0], kernel, NULL) != 0;
    failures += ((stream_fn)found[1])(NULL) != 0;
    /* A pointer that the module took itself. */
    failures += launch((launch_fn)((void *(*)(void))find(module, "hip_launch"))(), kernel, NULL) != 0;
    return failures;
}

/* What one copy made or was told is unknown to the other, with or without us: what a program gets that mixes them. */
static int mixed(void)
{
    void *one = load("hip_bundled.so", RTLD_NOW | RTLD_LOCAL), *other = load("hip_default.so", RTLD_NOW | RTLD_LOCAL);
    int failures = work(one) + work(other);
    void *bundled = dlopen("libamdhip64.so", RTLD_NOW | RTLD_NOLOAD);
    void *system = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_NOLOAD);
    const void *kernel = ((const void *(*)(void))find(other, "hip_kernel"))();
    const void *variable = ((const void *(*)(void))find(other, "hip_variable"))();
    void *stream, *module, *function;
    char word[4] = {0};
    failures += ((int (*)(void **))find(system, "hipStreamCreate"))(&stream);
    failures += ((int (*)(void **, const void *))find(system, "hipModuleLoadData"))(&module, word);
    failures += ((int (*)(void **, void *, const char *))find(system, "hipModuleGetFunction"))(
        &function, module, "kernel");
    int launched = launch((launch_fn)find(bundled, "hipLaunchKernel"), kernel, NULL);
    int waited = ((stream_fn)find(bundled, "hipStreamSynchronize_spt"))(stream);
    int of_module = ((int (*)(
        void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))find(
        bundled, "hipModuleLaunchKernel"))(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){(void *)0x55}, NULL);
    int copied = ((int (*)(const void *, const void *, size_t, size_t, int))find(bundled, "hipMemcpyToSymbol"))(
        variable, word, sizeof word, 0, 1);
    printf("mixed: launch %d, wait %d, module's kernel %d, variable %d\n", launched, waited, of_module, copied);
    return failures;
}

static void *works(void *module)
{
    return (void *)(size_t)work(module);
}

/* Every thread has a default stream of its own. */
static int threads(void)
{
    void *module = load("hip_bundled.so", RTLD_NOW | RTLD_LOCAL), *failed;
    int failures = 0;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, works, module))
            abort();
        pthread_join(thread, &failed);
        failures += (int)(size_t)failed;
    }
    return failures;
}

/* What takes the preload library's locks: functions looked up, queues first used, registrations forgotten. */
static int touches(void *runtime)
{
    void *found;
    int failures = launch((launch_fn)find(runtime, "hipLaunchKernel"), &folder, NULL) != INVALID_FUNCTION;
    failures += ((look_up_fn)find(runtime, "hipGetProcAddress"))("hipLaunchKernel", &found, 60300000, 0, NULL) != 0;
    return failures + ((work_fn)find(runtime, "hipDeviceReset"))() != 0;
}

static void *touches_for_ever(void *runtime)
{
    for (;;)
        touches(runtime);
    return NULL;
}

/* A child is forked while other threads are anywhere; nobody is left there to let go of a lock. */
static int forks(void)
{
    void *runtime = load("hip2/libamdhip64.so", RTLD_NOW | RTLD_LOCAL);
    pthread_t thread;
    int failures = 0, status;
    if (!freopen("/dev/null", "w", stdout))
        abort();
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread, NULL, touches_for_ever, runtime))
            abort();
    for (int i = 0; i < 500 && !failures; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(20);
            _exit(touches(runtime));
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            abort();
        if (status) {
            fprintf(stderr, "child %d ended with %#x\n", i, status);
            failures++;
        }
    }
    return failures;
}

#ifdef LINKED
int hip_work(void);

static int linked(void)
{
    return hip_work();
}

/* A module that brings a copy is bound to the program's own by the loader. */
static int linked_and_bundled(void)
{
    return hip_work() + work(load("hip_bundled.so", RTLD_NOW | RTLD_LOCAL));
}
#endif

int main(int count, char **words)
{
    static const struct {
        const char *name;
        work_fn run;
    } all[] = {
#ifdef LINKED
        {"linked", linked},
        {"linked_and_bundled", linked_and_bundled},
#endif
        {"bundled", bundled},
        {"two_copies", two_copies},
        {"bundled_for_all", bundled_for_all},
        {"looked_up", looked_up},
        {"mixed", mixed},
        {"threads", threads},
        {"forks", forks},
    };
    if (count != 3)
        return 2;
    folder = words[1];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, words[2])) {
            int failures = all[i].run();
            printf("%d failures\n", failures);
            return failures != 0;
        }
    return 2;
}
