/* A program under the daemon that says what its queue is worth, and then does what its standard input says: "give N" submits so
 * many commands and waits for them, "priority P" hints, "end" ends it. Each is answered. */
#include "device.h"

int main(void)
{
    Queue q;
    char line[64];
    open_device();
    make(&q, kPreemptLevelBlock, 0, 200);
    OK(XHintPriority(q.xq, 77));
    OK(XHintUtilization(q.xq, 30));
    puts("ok made");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int n;
        if (sscanf(line, "give %d", &n) == 1) {
            submit(&q, n);
            GIVES("given", kXSchedSuccess, XQueueWaitAll(q.xq));
        } else if (sscanf(line, "priority %d", &n) == 1) {
            GIVES("hinted", kXSchedSuccess, XHintPriority(q.xq, n));
        } else {
            break;
        }
    }
    OK(XQueueDestroy(q.xq));
    CHECKS_DONE;
}
