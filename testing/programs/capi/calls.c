/* Every function of the C API once, with what it must refuse. */
#include "device.h"

#include <dlfcn.h>
#include <sys/wait.h>

static void handles(void)
{
    Queue q;
    HwQueueHandle again = 0;
    XQueueHandle found = 0, second = 0;
    GIVES("a queue at no place", kXSchedErrorInvalidValue, handle_of(NULL, new_native()));
    make_bare(&q, 100);
    GIVES("the same stream again", kXSchedSuccess, handle_of(&again, q.native));
    CHECK("has the same handle", again == q.hwq);
    GIVES("an XQueue that is not there", kXSchedErrorNotFound, XQueueGet(&found, q.hwq));
    GIVES("an XQueue over nothing", kXSchedErrorNotFound, XQueueCreate(&q.xq, 987654, kPreemptLevelBlock, 0));
    GIVES("an XQueue at no place", kXSchedErrorInvalidValue, XQueueCreate(NULL, q.hwq, kPreemptLevelBlock, 0));
    GIVES("flags that there are not", kXSchedErrorInvalidValue, XQueueCreate(&q.xq, q.hwq, kPreemptLevelBlock, 64));
    GIVES("no level", kXSchedErrorNotSupported, XQueueCreate(&q.xq, q.hwq, kPreemptLevelUnknown, 0));
    GIVES("a level beyond", kXSchedErrorNotSupported, XQueueCreate(&q.xq, q.hwq, kPreemptLevelMax, 0));
    GIVES("an XQueue", kXSchedSuccess, XQueueCreate(&q.xq, q.hwq, kPreemptLevelBlock, 0));
    GIVES("another over the same", kXSchedErrorNotAllowed, XQueueCreate(&second, q.hwq, kPreemptLevelBlock, 0));
    GIVES("the XQueue by its stream", kXSchedSuccess, XQueueGet(&found, q.hwq));
    CHECK("is the same", found == q.xq);
    GIVES("a queue with an XQueue is not given up", kXSchedErrorNotAllowed, HwQueueDestroy(q.hwq));
    GIVES("the end of an XQueue", kXSchedSuccess, XQueueDestroy(q.xq));
    GIVES("another end", kXSchedErrorNotFound, XQueueDestroy(q.xq));
    GIVES("the end of a queue", kXSchedSuccess, HwQueueDestroy(q.hwq));
    GIVES("another end of it", kXSchedErrorNotFound, HwQueueDestroy(q.hwq));
    GIVES("a wait for it", kXSchedErrorNotFound, HwQueueSynchronize(q.hwq));
}

static void levels(void)
{
    Queue q;
    make(&q, kPreemptLevelBlock, 0, 100);
    for (int level = kPreemptLevelBlock; level <= kPreemptLevelInterrupt; level++) {
        int got = XQueueSetPreemptLevel(q.xq, level);
        int is_there = got == kXSchedSuccess && level <= MAYBE_LEVEL;
        check_that(is_there || (got == kXSchedErrorNotSupported && level > HIGHEST_LEVEL), "level %d", level);
    }
    GIVES("level 0", kXSchedErrorNotSupported, XQueueSetPreemptLevel(q.xq, 0));
    GIVES("level -1", kXSchedErrorNotSupported, XQueueSetPreemptLevel(q.xq, -1));
    GIVES("a configuration", kXSchedSuccess, XQueueSetLaunchConfig(q.xq, 4, 2));
    GIVES("a batch of nothing", kXSchedErrorInvalidValue, XQueueSetLaunchConfig(q.xq, 4, 0));
    GIVES("a batch beyond the threshold", kXSchedErrorInvalidValue, XQueueSetLaunchConfig(q.xq, 4, 5));
    submit(&q, 20);
    GIVES("a wait for all", kXSchedSuccess, XQueueWaitAll(q.xq));
    CHECK("all are complete", complete(&q) == 20);
    OK(XQueueDestroy(q.xq));
}

static XResult fails(HwQueueHandle hwq, void *data)
{
    (void)hwq, (void)data;
    return kXSchedErrorNotSupported;
}

static XResult waits_for_itself(HwQueueHandle hwq, void *data)
{
    (void)hwq;
    return XQueueWaitAll(*(XQueueHandle *)data);
}

static void commands(void)
{
    Queue q, other;
    HwCommandHandle command, failing, selfish;
    XQueueState state = kQueueStateUnknown;
    int64_t count = -1;
    make(&q, kPreemptLevelBlock, 0, 1000);
    make(&other, kPreemptLevelBlock, 0, 100);
    GIVES("a command of no function", kXSchedErrorInvalidValue, HwCommandCreateCallback(&command, NULL, &q));
    GIVES("a command at no place", kXSchedErrorInvalidValue, HwCommandCreateCallback(NULL, work, &q));
    GIVES("a command", kXSchedSuccess, HwCommandCreateCallback(&command, work, &q));
    GIVES("is not submitted yet", kXSchedErrorNotFound, XQueueWait(q.xq, command));
    OK(XQueueSuspend(q.xq, 0));
    GIVES("a submission", kXSchedSuccess, XQueueSubmit(q.xq, command));
    GIVES("another one of the same", kXSchedErrorNotAllowed, XQueueSubmit(q.xq, command));
    GIVES("elsewhere", kXSchedErrorNotFound, XQueueWait(other.xq, command));
    GIVES("a count", kXSchedSuccess, XQueueProfileHwCommandCount(q.xq, &count));
    CHECK("of one", count == 1);
    GIVES("a count at no place", kXSchedErrorInvalidValue, XQueueProfileHwCommandCount(q.xq, NULL));
    GIVES("a query", kXSchedSuccess, XQueueQuery(q.xq, &state));
    CHECK("says ready", state == kQueueStateReady);
    GIVES("a query for no place", kXSchedErrorInvalidValue, XQueueQuery(q.xq, NULL));
    OK(XQueueResume(q.xq, 0));
    GIVES("a wait for the command", kXSchedSuccess, XQueueWait(q.xq, command));
    CHECK("it is complete", complete(&q) == 1);
    GIVES("a second submission", kXSchedSuccess, XQueueSubmit(q.xq, command));
    GIVES("a second wait", kXSchedSuccess, XQueueWait(q.xq, command));
    CHECK("it is complete twice", complete(&q) == 2);
    UNTIL("the queue is idle", XQueueQuery(q.xq, &state) == kXSchedSuccess && state == kQueueStateIdle);
    OK(HwCommandCreateCallback(&failing, fails, NULL));
    OK(XQueueSubmit(q.xq, failing));
    GIVES("what the callback says", kXSchedErrorNotSupported, XQueueWait(q.xq, failing));
    OK(HwCommandCreateCallback(&selfish, waits_for_itself, &q.xq));
    OK(XQueueSubmit(q.xq, selfish));
    GIVES("a command does not wait for its queue", kXSchedErrorNotAllowed, XQueueWait(q.xq, selfish));
    GIVES("a launch by hand", kXSchedSuccess, HwQueueLaunch(q.hwq, command));
    GIVES("of what fails", kXSchedErrorNotSupported, HwQueueLaunch(q.hwq, failing));
    GIVES("a wait for the stream", kXSchedSuccess, HwQueueSynchronize(q.hwq));
    CHECK("it is complete thrice", complete(&q) == 3);
    GIVES("the end of a command", kXSchedSuccess, HwCommandDestroy(command));
    GIVES("which is no more", kXSchedErrorNotFound, XQueueSubmit(q.xq, command));
    GIVES("nor for another end", kXSchedErrorNotFound, HwCommandDestroy(command));
    /* One that is given up is launched all the same. */
    OK(HwCommandDestroy(submit(&q, 1)));
    OK(XQueueWaitAll(q.xq));
    CHECK("it is complete four times", complete(&q) == 4);
    OK(XQueueDestroy(q.xq));
    OK(XQueueDestroy(other.xq));
}

static void blocking(void)
{
    Queue q;
    make(&q, kPreemptLevelBlock, kQueueCreateFlagBlockingSubmit, 100);
    for (int i = 1; i <= 40; i++) {
        submit(&q, 1);
        if (atomic_load(&q.launched) != i) {
            CHECK("a blocking submission has launched", 0);
        }
    }
    OK(XQueueWaitAll(q.xq));
    CHECK("blocking submissions are complete", complete(&q) == 40);
    HwCommandHandle failing;
    OK(HwCommandCreateCallback(&failing, fails, NULL));
    GIVES("a blocking submission says what the callback says", kXSchedErrorNotSupported, XQueueSubmit(q.xq, failing));
    OK(XQueueDestroy(q.xq));
}

static void hints(void)
{
    Queue q;
    make(&q, kPreemptLevelBlock, 0, 100);
    GIVES("a priority", kXSchedSuccess, XHintPriority(q.xq, 100));
    GIVES("a priority beyond", kXSchedErrorInvalidValue, XHintPriority(q.xq, 256));
    GIVES("a priority below", kXSchedErrorInvalidValue, XHintPriority(q.xq, -257));
    GIVES("a priority of nothing", kXSchedErrorNotFound, XHintPriority(987654, 1));
    GIVES("a utilization", kXSchedSuccess, XHintUtilization(q.xq, 30));
    GIVES("a utilization beyond", kXSchedErrorInvalidValue, XHintUtilization(q.xq, 101));
    GIVES("a time slice", kXSchedSuccess, XHintTimeslice(2000));
    GIVES("a time slice too short", kXSchedErrorInvalidValue, XHintTimeslice(99));
    GIVES("a laxity", kXSchedSuccess, XHintLaxity(q.xq, 5000, -10, 10));
    GIVES("no laxity", kXSchedSuccess, XHintLaxity(q.xq, -1, 0, 0));
    GIVES("a laxity of no time", kXSchedErrorInvalidValue, XHintLaxity(q.xq, 0, 0, 0));
    GIVES("a laxity with a priority beyond", kXSchedErrorInvalidValue, XHintLaxity(q.xq, 5000, 0, 256));
    GIVES("a deadline", kXSchedSuccess, XHintDeadline(q.xq, 8000));
    GIVES("no deadline", kXSchedSuccess, XHintDeadline(q.xq, -1));
    GIVES("a deadline in the past", kXSchedErrorInvalidValue, XHintDeadline(q.xq, -2));
    GIVES("a k", kXSchedSuccess, XHintKDeadline(2));
    GIVES("a k of nothing", kXSchedErrorInvalidValue, XHintKDeadline(0));
    GIVES("a k beyond", kXSchedErrorInvalidValue, XHintKDeadline(65));
    /* Not to be executed: nothing is launched until it has a priority again. */
    GIVES("no execution", kXSchedSuccess, XHintPriority(q.xq, XSCHED_PRIORITY_NOT_EXECUTED));
    submit(&q, 3);
    usleep(20000); /* a window in which nothing may happen */
    CHECK("nothing is launched", atomic_load(&q.launched) == 0);
    GIVES("execution", kXSchedSuccess, XHintPriority(q.xq, 0));
    OK(XQueueWaitAll(q.xq));
    CHECK("all is complete after", complete(&q) == 3);
    OK(XQueueDestroy(q.xq));
    GIVES("a scheduler that there is not", kXSchedErrorInvalidValue, XHintSetScheduler(kSchedulerMax, 0));
    GIVES("a policy that there is not", kXSchedErrorInvalidValue, XHintSetScheduler(kSchedulerLocal, 12));
    GIVES("no policy", kXSchedErrorInvalidValue, XHintSetScheduler(kSchedulerLocal, kPolicyUnknown));
}

/* Each scheduler after each, with work under way. */
static void schedulers(void)
{
    Queue q;
    make(&q, kPreemptLevelBlock, 0, 200);
    OK(XHintPriority(q.xq, 5));
    for (int policy = kPolicyHighestPriorityFirst; policy <= kPolicyMultiLevelFeedbackQueue; policy++) {
        submit(&q, 10);
        int got = XHintSetScheduler(kSchedulerLocal, policy);
        check_that(got == kXSchedSuccess, "policy %d in the process", policy);
    }
    GIVES("the program itself", kXSchedSuccess, XHintSetScheduler(kSchedulerAppManaged, kPolicyUnknown));
    submit(&q, 10);
    GIVES("the daemon", kXSchedSuccess, XHintSetScheduler(kSchedulerGlobal, kPolicyUnknown));
    submit(&q, 10);
    OK(XQueueWaitAll(q.xq));
    CHECK("nothing is lost", complete(&q) == 130);
    OK(XQueueDestroy(q.xq));
}

/* XQueues over streams of all kinds at the same time. */
static void default_stream(void)
{
#ifdef DEFAULT_STREAM
    Queue q = { .native = DEFAULT_STREAM, .us = 50, .cell = cells_used++ }, other;
    make(&other, kPreemptLevelBlock, 0, 50);
    OK(handle_of(&q.hwq, DEFAULT_STREAM));
    OK(XQueueCreate(&q.xq, q.hwq, kPreemptLevelBlock, 0));
    submit(&q, 20);
    submit(&other, 20);
    GIVES("the default stream's commands", kXSchedSuccess, XQueueWaitAll(q.xq));
    OK(XQueueWaitAll(other.xq));
    CHECK("are complete", complete(&q) == 20 && complete(&other) == 20);
    OK(XQueueDestroy(q.xq));
    OK(XQueueDestroy(other.xq));
#endif
}

/* A child has none of its parent's queues, and its parent goes on. */
static void forks(void)
{
    Queue q;
    int64_t count;
    int status = -1;
    make(&q, kPreemptLevelBlock, 0, 100);
    submit(&q, 10);
    pid_t child = fork();
    if (!child) {
        _exit(XQueueProfileHwCommandCount(q.xq, &count) == kXSchedErrorNotFound ? 0 : 1);
    }
    CHECK("a child has no queue", waitpid(child, &status, 0) == child && status == 0);
    OK(XQueueWaitAll(q.xq));
    CHECK("its parent has", complete(&q) == 10);
    OK(XQueueDestroy(q.xq));
}

/* Whether the first definition in the global scope lies in libxsched.so. */
static int is_interposed(const char *name)
{
    Dl_info found;
    void *function = dlsym(RTLD_DEFAULT, name);
    return function && dladdr(function, &found) && strstr(found.dli_fname, "libxsched");
}

/* Linking the libraries puts nothing between the program and its driver, nor its C library; the preload does. */
static void scope(void)
{
    const char *preload = getenv("LD_PRELOAD");
    int preloaded = preload && strstr(preload, "libxsched");
    CHECK("only a preload stands between", is_interposed(A_FUNCTION) == !!preloaded && is_interposed("dlsym") == !!preloaded);
}

int main(void)
{
    open_device();
    handles();
    scope();
    levels();
    commands();
    blocking();
    default_stream();
    forks();
    hints();
    schedulers();
    CHECKS_DONE;
}
