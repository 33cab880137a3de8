/* For the test of count.c: with -DDRIVER a driver that says which stream is capturing, with -DCUPTI a CUPTI that
 * announces a few calls when asked to, else the program that loads count.so and asks. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCH_ID = 307, LAUNCH_EX_ID = 652, COPY_ID = 277, CAPTURING = 64, IDLE = 128 };

#if defined(DRIVER)

int cuStreamIsCapturing(void *stream, int *status) {
    *status = (intptr_t)stream == CAPTURING;
    return 0;
}

#elif defined(CUPTI)

struct data {
    int site;
    const char *function;
    const void *parameters;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *correlation;
};

static void (*callback)(void *, int, uint32_t, const struct data *);
static void *user;
static int enabled[4096];

int cuptiSubscribe(void **subscriber, void (*function)(void *, int, uint32_t, const struct data *), void *with) {
    *subscriber = &callback;
    callback = function;
    user = with;
    return 0;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id) {
    enabled[id] = (int)enable;
    return subscriber == &callback && domain == 1 ? 0 : 1;
}

int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    *name = id == LAUNCH_ID      ? "cuLaunchKernel"
            : id == LAUNCH_EX_ID ? "cuLaunchKernelEx"
            : id == COPY_ID      ? "cuMemcpyHtoDAsync_v2"
            : id == 1            ? "cuInit"
                                 : NULL;
    return domain == 1 && *name ? 0 : 1;
}

/* One call, with another inside of it if `inner` is not 0. */
static void call(uint32_t id, const void *parameters, int result, uint32_t inner, const void *inner_parameters) {
    uint64_t kept = 0;
    struct data data = {.site = 0, .parameters = parameters, .result = &result, .correlation = &kept};
    if (!enabled[id])
        abort();
    callback(user, 1, id, &data);
    if (inner)
        call(inner, inner_parameters, 0, 0, NULL);
    data.site = 1;
    callback(user, 1, id, &data);
}

static const char *launch_on(char *room, intptr_t stream) {
    memcpy(room + 40, &stream, sizeof stream);
    return room;
}

void announce(void) {
    char room[64] = {0}, other[64] = {0}, config[64] = {0}, capturing_config[64] = {0}, copy[64] = {0};
    const void *configured = config, *capturing_configured = capturing_config;
    intptr_t capturing = CAPTURING, idle = IDLE;
    memcpy(config + 32, &idle, sizeof idle);
    memcpy(capturing_config + 32, &capturing, sizeof capturing);
    call(LAUNCH_ID, launch_on(room, IDLE), 0, 0, NULL);
    call(LAUNCH_ID, launch_on(room, CAPTURING), 0, 0, NULL);
    call(LAUNCH_ID, launch_on(room, IDLE), 1, 0, NULL);
    call(LAUNCH_EX_ID, &configured, 0, 0, NULL);
    call(LAUNCH_EX_ID, &capturing_configured, 0, 0, NULL);
    call(COPY_ID, copy, 0, LAUNCH_ID, launch_on(other, IDLE));
}

#else

int main(int argc, char **argv) {
    void *count = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*begin)(void) = count ? (int (*)(void))dlsym(count, "InitializeInjection") : NULL;
    const char *path = getenv("COUNT_CUPTI");
    if (!begin || begin() != 1 || begin() != 1 || !path)
        return 1;
    void (*announce)(void) = (void (*)(void))dlsym(dlopen(path, RTLD_NOW), "announce");
    announce();
    return 0;
}

#endif
