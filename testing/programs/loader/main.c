/* One scenario per run, `main FOLDER SCENARIO`: who is loaded how, and who calls whom. What each call reached is printed
 * by the libraries themselves. -DLINKED: linked against copy 1 in the ordinary way. */
#define _GNU_SOURCE
#include "fakecl.h"
#include "load.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plugin {
    void *handle, *queue;
    int (*work)(void *), (*elsewhere)(void *), (*release)(void *);
    finish_fn (*finish)(void);
    launch_fn (*launch)(void);
    void *(*look_up)(void *, const char *);
};

static struct plugin plugin(const char *name, int flags)
{
    struct plugin p = {.handle = load(name, flags)};
    p.queue = ((void *(*)(void))find(p.handle, "plugin_make"))();
    p.work = (int (*)(void *))find(p.handle, "plugin_work");
    p.elsewhere = (int (*)(void *))find(p.handle, "plugin_work_elsewhere");
    p.release = (int (*)(void *))find(p.handle, "plugin_release");
    p.finish = (finish_fn(*)(void))find(p.handle, "plugin_finish");
    p.launch = (launch_fn(*)(void))find(p.handle, "plugin_launch");
    p.look_up = (void *(*)(void *, const char *))find(p.handle, "plugin_look_up");
    return p;
}

static void work(struct plugin *p)
{
    int first = p->work(p->queue), second = p->elsewhere(p->queue), third = p->work(p->queue);
    printf("-> %d %d %d\n", first, second, third);
}

static const char *same(void *a, void *b)
{
    return a == b ? "same" : "different";
}

static void launch_and_finish(launch_fn launch, finish_fn finish, void *queue)
{
    void *event = NULL;
    int rc = launch(queue, (void *)0x1234, 3, NULL, NULL, NULL, 0, NULL, &event);
    printf("-> %d, event %s\n", rc, event ? "given" : "missing");
    rc = finish(queue);
    printf("-> %d\n", rc);
}

/* A copy by its own path, all through dlsym. */
struct copy {
    void *handle, *queue;
    launch_fn launch;
    finish_fn finish;
};

static struct copy copy(int n, int flags)
{
    char name[64];
    snprintf(name, sizeof name, n % 2 ? "copy%d/libOpenCL.so.1" : "copy%d/libOpenCL-abc%d.so", n, n);
    struct copy c = {.handle = load(name, flags)};
    c.launch = (launch_fn)find(c.handle, "clEnqueueNDRangeKernel");
    c.finish = (finish_fn)find(c.handle, "clFinish");
    c.queue = ((create_fn)find(c.handle, "clCreateCommandQueue"))(NULL, NULL, 0, NULL);
    return c;
}

static void one_plugin(void)
{
    struct plugin p = plugin("plugin1.so", RTLD_NOW | RTLD_LOCAL);
    work(&p);
}

static void two_plugins(void)
{
    struct plugin p[2] = {plugin("plugin1.so", RTLD_NOW), plugin("plugin2.so", RTLD_NOW)};
    for (int i = 0; i < 6; i++)
        work(&p[i % 2]);
}

/* Function pointers of two plugins, called from one call site of the program. */
static void two_plugins_by_pointer(void)
{
    struct plugin p[2] = {plugin("plugin1.so", RTLD_NOW), plugin("plugin2.so", RTLD_NOW)};
    for (int i = 0; i < 6; i++)
        launch_and_finish(p[i % 2].launch(), p[i % 2].finish(), p[i % 2].queue);
}

static void one_plugin_by_pointer(void)
{
    struct plugin p = plugin("plugin2.so", RTLD_NOW);
    launch_and_finish(p.launch(), p.finish(), p.queue);
}

static void global_first(void)
{
    load("copy1/libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    struct plugin p = plugin("plugin2.so", RTLD_NOW);
    work(&p);
}

static void global_later(int flags, int before)
{
    struct plugin p = {.handle = load("plugin2.so", flags)};
    if (before) {
        p = plugin("plugin2.so", flags);
        printf("-> %d\n", p.work(p.queue));
    }
    load("copy1/libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!before)
        p = plugin("plugin2.so", flags);
    work(&p);
    struct plugin q = plugin("plugin3.so", RTLD_NOW);
    work(&q);
    work(&p);
}

static void global_later_after_calls(void)
{
    global_later(RTLD_NOW, 1);
}

static void global_later_before_calls(void)
{
    global_later(RTLD_NOW, 0);
}

static void global_later_lazy_after_calls(void)
{
    global_later(RTLD_LAZY, 1);
}

static void global_later_lazy_before_calls(void)
{
    global_later(RTLD_LAZY, 0);
}

/* The global copy is closed, but who was bound to it keeps it. */
static void global_closed(void)
{
    void *global = load("copy1/libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    struct plugin p = plugin("unlinked.so", RTLD_NOW);
    work(&p);
    dlclose(global);
    work(&p);
}

static void by_path(void)
{
    struct copy a = copy(1, RTLD_NOW), b = copy(2, RTLD_NOW);
    launch_and_finish(a.launch, a.finish, a.queue);
    launch_and_finish(b.launch, b.finish, b.queue);
    struct copy again = copy(1, RTLD_NOW);
    printf("%s %s %s\n", same(a.launch, again.launch), same(a.finish, again.finish), same(a.finish, b.finish));
    struct plugin p = plugin("plugin3.so", RTLD_NOW);
    work(&p);
    for (int i = 0; i < 3; i++) {
        launch_and_finish(a.launch, a.finish, a.queue);
        launch_and_finish(b.launch, b.finish, b.queue);
    }
}

static void nine_copies(void)
{
    struct copy copies[9];
    for (int i = 0; i < 9; i++)
        copies[i] = copy(i + 1, RTLD_NOW);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 9; i++)
            launch_and_finish(copies[i].launch, copies[i].finish, copies[i].queue);
}

/* Opened and closed over and over, more often than copies can be told apart. */
static void opened_and_closed(void)
{
    for (int i = 0; i < 12; i++) {
        struct copy c = copy(i % 9 + 1, RTLD_NOW);
        launch_and_finish(c.launch, c.finish, c.queue);
        dlclose(c.handle);
    }
}

static void looked_up_and_closed(void)
{
    for (int i = 0; i < 20; i++) {
        char name[64];
        snprintf(name, sizeof name, i % 2 ? "copy%d/libOpenCL.so.1" : "copy%d/libOpenCL-abc%d.so", 2 - i % 2, 2 - i % 2);
        void *handle = load(name, RTLD_NOW);
        find(handle, "clFinish");
        dlclose(handle);
        load("plugin_nothing.so", RTLD_NOW); /* keeps a place of its own */
    }
    struct copy c = copy(5, RTLD_NOW);
    launch_and_finish(c.launch, c.finish, c.queue);
}

static void plugins_replaced(void)
{
    static const char *const names[] = {"plugin1.so", "plugin2.so", "plugin3.so"};
    for (int i = 0; i < 6; i++) {
        struct plugin p = plugin(names[i % 3], RTLD_NOW);
        work(&p);
        dlclose(p.handle);
    }
}

/* Modules come and go in one thread while two others call theirs. Who prints when is up to chance. */
static void *call_often(void *data)
{
    struct plugin *p = data;
    for (int i = 0; i < 300; i++)
        p->work(p->queue), p->elsewhere(p->queue);
    return NULL;
}

static void closed_while_others_call(void)
{
    struct plugin p[2] = {plugin("plugin1.so", RTLD_NOW), plugin("plugin2.so", RTLD_NOW)};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, call_often, &p[i]);
    for (int i = 0; i < 100; i++) {
        struct plugin q = plugin(i % 2 ? "chain1.so" : "plugin3.so", RTLD_NOW);
        q.work(q.queue);
        dlclose(q.handle);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void chain(void)
{
    struct plugin p = plugin("chain1.so", RTLD_NOW);
    work(&p);
}

static void chain_of_two_copies(void)
{
    struct plugin p = plugin("both1.so", RTLD_NOW);
    work(&p);
}

static void deepbind(void)
{
    struct plugin p = plugin("plugin1.so", RTLD_NOW | RTLD_DEEPBIND), q = plugin("plugin2.so", RTLD_NOW);
    work(&p);
    work(&q);
}

static void other_namespace(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/plugin1.so", folder);
    void *handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    if (!handle)
        printf("dlmopen: %s\n", dlerror()), exit(1);
    void *queue = ((void *(*)(void))find(handle, "plugin_make"))();
    int (*work_there)(void *) = (int (*)(void *))find(handle, "plugin_work");
    printf("-> %d\n", work_there(queue));
    struct plugin p = plugin("plugin2.so", RTLD_NOW);
    work(&p);
}

static void failures(void)
{
    void *local = load("plugin1.so", RTLD_NOW);
    const char *const names[] = {"clNoSuchFunction", "clEnqueueSVMMap", "simNothing", "nothing", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *handles[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen(NULL, RTLD_NOW), local};
        for (size_t h = 0; h < 4; h++) {
            dlerror();
            void *found = dlsym(handles[h], names[i]);
            const char *error = dlerror();
            /* Where the preload library defines the name, the message names another file. */
            const char *tail = error ? strstr(error, "undefined symbol") : NULL;
            printf("%s: %p %s\n", names[i], found, tail ? tail : "no message");
            found = dlvsym(handles[h], names[i], "OPENCL_1.0");
            error = dlerror();
            tail = error ? strstr(error, "undefined symbol") : NULL;
            printf("%s: %p %s\n", names[i], found, tail ? tail : "no message");
        }
    }
    printf("%s\n", dlerror() ? "a message is left" : "no message is left");
    printf("%s\n", same(dlsym(RTLD_DEFAULT, "puts"), (void *)puts));
    printf("%s\n", same(dlsym(local, "clGetPlatformIDs"), dlsym(local, "clGetPlatformIDs")));
}

/* dlerror's whole text where the preload library defines nothing of that name. */
static void messages(void)
{
    void *local = load("plugin1.so", RTLD_NOW), *handles[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen(NULL, RTLD_NOW), local};
    for (size_t h = 0; h < 4; h++) {
        printf("%p", dlsym(handles[h], "clNoSuchFunction"));
        printf(" %s\n", dlerror());
        printf("%p", dlvsym(handles[h], "clNoSuchFunction", "OPENCL_1.0"));
        printf(" %s\n", dlerror());
    }
    printf("%p", dlsym(local, "clEnqueueSVMMap"));
    printf(" %s\n", dlerror());
}

static void versions(void)
{
    void *handle = load("versioned/libOpenCL.so.1", RTLD_NOW);
    void *queue = ((create_fn)find(handle, "clCreateCommandQueue"))(NULL, NULL, 0, NULL);
    finish_fn finish = (finish_fn)dlvsym(handle, "clFinish", "OPENCL_1.0");
    launch_fn launch = (launch_fn)dlvsym(handle, "clEnqueueNDRangeKernel", "OPENCL_1.0");
    launch_and_finish(launch, finish, queue);
    printf("%s\n", same(finish, dlsym(handle, "clFinish")));
    printf("%p\n", dlvsym(handle, "clFinish", "OPENCL_9.9"));
    printf("%s\n", strstr(dlerror(), "undefined symbol"));
}

static void versions_global(void)
{
    load("versioned/libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    void *queue = ((create_fn)find(RTLD_DEFAULT, "clCreateCommandQueue"))(NULL, NULL, 0, NULL);
    finish_fn finish = (finish_fn)dlvsym(RTLD_DEFAULT, "clFinish", "OPENCL_1.0");
    launch_fn launch = (launch_fn)dlvsym(dlopen(NULL, RTLD_NOW), "clEnqueueNDRangeKernel", "OPENCL_1.0");
    launch_and_finish(launch, finish, queue);
    printf("%p\n", dlvsym(RTLD_DEFAULT, "clFinish", "OPENCL_9.9"));
    printf("%s\n", strstr(dlerror(), "undefined symbol"));
    printf("%p\n", dlvsym(dlopen(NULL, RTLD_NOW), "clFinish", "OPENCL_9.9"));
    printf("%s\n", strstr(dlerror(), "undefined symbol"));
}

/* What RTLD_DEFAULT and RTLD_NEXT mean to a module depends on the module. */
static void look_ups_of_plugin(void)
{
    struct plugin p = plugin("plugin1.so", RTLD_NOW), q = plugin("plugin2.so", RTLD_NOW);
    void *const handles[] = {RTLD_DEFAULT, RTLD_NEXT};
    for (int i = 0; i < 4; i++) {
        struct plugin *of = i % 2 ? &q : &p;
        void *handle = handles[i / 2];
        launch_and_finish((launch_fn)of->look_up(handle, "clEnqueueNDRangeKernel"),
            (finish_fn)of->look_up(handle, "clFinish"), of->queue);
    }
    printf("%p\n", dlsym(RTLD_DEFAULT, "clFinish"));
    printf("%p\n", dlsym(dlopen(NULL, RTLD_NOW), "clFinish"));
    launch_and_finish((launch_fn)find(p.handle, "clEnqueueNDRangeKernel"), (finish_fn)find(p.handle, "clFinish"), p.queue);
}

static void extensions_of(void *(*get)(const char *), void *queue)
{
    launch_fn launch = (launch_fn)get("clEnqueueNDRangeKernel");
    finish_fn finish = (finish_fn)get("clFinish");
    launch_and_finish(launch, finish, queue);
    printf("%p\n", get("clNoSuchFunction"));
}

static void extensions(void)
{
    struct copy a = copy(1, RTLD_NOW), b = copy(2, RTLD_NOW);
    for (int i = 0; i < 2; i++) {
        extensions_of((void *(*)(const char *))find(a.handle, "clGetExtensionFunctionAddress"), a.queue);
        extensions_of((void *(*)(const char *))find(b.handle, "clGetExtensionFunctionAddress"), b.queue);
    }
    void *(*get)(void *, const char *) =
        (void *(*)(void *, const char *))find(b.handle, "clGetExtensionFunctionAddressForPlatform");
    launch_and_finish((launch_fn)get(NULL, "clEnqueueNDRangeKernel"), (finish_fn)get(NULL, "clFinish"), b.queue);
}

static void arguments(void)
{
    errno = 77;
    struct copy c = copy(2, RTLD_NOW);
    __typeof__(clEnqueueReadBufferRect) *call =
        (__typeof__(clEnqueueReadBufferRect) *)find(c.handle, "clEnqueueReadBufferRect");
    for (int i = 0; i < 3; i++) {
        void *event = NULL;
        errno = 77;
        int rc = call(c.queue, (void *)2, 3, (void *)4, (void *)5, (void *)6, 7, 8, 9, 10, (void *)11, 12, (void *)13, &event);
        printf("-> %d event %d errno %d\n", rc, event != NULL, errno);
        rc = c.finish(c.queue);
        printf("-> %d errno %d\n", rc, errno);
        int (*wait)(unsigned, void *const *) = (int (*)(unsigned, void *const *))find(c.handle, "clWaitForEvents");
        rc = wait(1, &event);
        printf("-> %d errno %d\n", rc, errno);
        find(c.handle, "clEnqueueNDRangeKernel");
        printf("errno %d\n", errno);
    }
}

#ifdef LINKED
static void linked(void)
{
    void *queue = clCreateCommandQueueWithProperties(NULL, NULL, NULL, NULL);
    launch_and_finish(clEnqueueNDRangeKernel, clFinish, queue);
    printf("-> %d\n", clEnqueueNDRangeKernel(queue, NULL, 1, NULL, NULL, NULL, 0, NULL, NULL));
    printf("-> %d\n", clFinish(queue));
    struct plugin p = plugin("plugin2.so", RTLD_NOW), q = plugin("unlinked.so", RTLD_NOW);
    work(&p);
    work(&q);
    extensions_of(clGetExtensionFunctionAddress, queue);
    printf("-> %d\n", clReleaseCommandQueue(queue));
    unsigned n;
    clGetPlatformIDs(0, NULL, &n);
}

static void linked_look_ups(void)
{
    void *queue = clCreateCommandQueue(NULL, NULL, 0, NULL), *all = dlopen(NULL, RTLD_NOW);
    void *const handles[] = {RTLD_DEFAULT, RTLD_NEXT, all};
    for (int i = 0; i < 3; i++)
        launch_and_finish(
            (launch_fn)find(handles[i], "clEnqueueNDRangeKernel"), (finish_fn)find(handles[i], "clFinish"), queue);
    struct plugin p = plugin("plugin2.so", RTLD_NOW);
    printf("default %s, next %s, all %s, plugin %s\n", same(clFinish, dlsym(RTLD_DEFAULT, "clFinish")),
        same(clFinish, dlsym(RTLD_NEXT, "clFinish")), same(clFinish, dlsym(all, "clFinish")), same(clFinish, p.finish()));
    struct copy second = copy(2, RTLD_NOW), first = copy(1, RTLD_NOW);
    printf("copy 1 %s, copy 2 %s\n", same(clFinish, first.finish), same(clFinish, second.finish));
    launch_and_finish(second.launch, second.finish, second.queue);
    launch_and_finish(first.launch, first.finish, first.queue);
}

/* The name's own address from the library: what an untouched process sees. */
static void untouched(void)
{
    Dl_info info;
    void *handle = load("copy2/libOpenCL-abc2.so", RTLD_NOW);
    dladdr(find(handle, "clFinish"), &info);
    printf("%s %s\n", strrchr(info.dli_fname, '/') + 1, info.dli_sname);
    dladdr(dlvsym(load("versioned/libOpenCL.so.1", RTLD_NOW), "clFinish", "OPENCL_1.0"), &info);
    printf("%s %s\n", strrchr(info.dli_fname, '/') + 1, info.dli_sname);
    dladdr(clGetExtensionFunctionAddress("clFinish"), &info);
    printf("%s\n", strrchr(info.dli_fname, '/') + 1);
}

void early_threads(void);
static void early(void)
{
    early_threads();
    linked();
}
#endif

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define S(name) {#name, name}
    S(one_plugin), S(two_plugins), S(one_plugin_by_pointer), S(two_plugins_by_pointer), S(global_first),
    S(global_later_after_calls), S(global_later_before_calls), S(global_later_lazy_after_calls),
    S(global_later_lazy_before_calls), S(global_closed), S(by_path), S(nine_copies), S(opened_and_closed),
    S(looked_up_and_closed), S(plugins_replaced), S(closed_while_others_call), S(chain), S(chain_of_two_copies), S(deepbind), S(other_namespace),
    S(failures), S(messages), S(versions), S(versions_global), S(look_ups_of_plugin), S(extensions), S(arguments),
#ifdef LINKED
    S(linked), S(linked_look_ups), S(untouched), S(early),
#endif
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc == 3 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[2]) == 0) {
            folder = argv[1];
            scenarios[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: main FOLDER SCENARIO\n");
    return 2;
}
