/* Libraries of the folder that a test program was told, and what they offer; or the end of the program. */
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *folder;

static void *load(const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *handle = dlopen(path, flags);
    if (!handle)
        printf("dlopen: %s\n", dlerror()), exit(1);
    return handle;
}

static void *find(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    if (!found)
        printf("dlsym: %s\n", dlerror()), exit(1);
    return found;
}
