/* A preload library that does what a scheduler's must not: it sends some of the functions that it stands before to a runtime
 * that it opens by a path of its own, and the rest on to the one that the program has. BINDINGS_PATH is that runtime,
 * BINDINGS the functions, with commas between. With -DOPENS_ONLY it stands before nothing, and only uses both. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef OPENS_ONLY
#define FUNCTIONS(X)                                                                                                   \
    X(hipLaunchKernel) X(hipModuleLaunchKernel) X(hipExtModuleLaunchKernel) X(hipModuleLoad) X(hipModuleLoadData)      \
    X(hipModuleGetFunction) X(hipStreamCreate) X(hipStreamCreateWithFlags) X(hipStreamSynchronize)                     \
    X(hipStreamDestroy) X(hipMalloc) X(hipFree) X(hipMemset) X(hipMemsetAsync) X(hipMemcpy) X(hipMemcpyAsync)          \
    X(hipEventCreate) X(hipEventRecord)

#define ADDRESS(name) static void *to_##name __attribute__((used));
FUNCTIONS(ADDRESS)

/* An entry point without a signature: arguments stay where they are. */
#define ENTRY(name)                                                                                                    \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n    jmp *to_" #name "(%rip)\n.size " #name      \
            ", .-" #name "\n");
FUNCTIONS(ENTRY)

/* Where a function goes. */
static void *find(const char *name, void *second)
{
    char list[1024];
    snprintf(list, sizeof list, "%s", getenv("BINDINGS"));
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        if (!strcmp(word, name)) {
            return dlsym(second, name);
        }
    }
    return dlsym(RTLD_NEXT, name);
}
#endif

__attribute__((constructor)) static void bind(void)
{
    void *second = dlopen(getenv("BINDINGS_PATH"), RTLD_NOW | RTLD_LOCAL);
    if (!second) {
        fprintf(stderr, "bindings: %s\n", dlerror());
        exit(3);
    }
#ifdef OPENS_ONLY
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(second, "hipMalloc");
    void *memory;
    if (!allocate || allocate(&memory, 4096)) {
        fprintf(stderr, "bindings: the second runtime does not work\n");
        exit(3);
    }
#else
#define BIND(name) to_##name = find(#name, second);
    FUNCTIONS(BIND)
#endif
}
