/* A queue's last reference of the application goes while an event of the queue is still held. Drivers count the event as a
 * reference to the queue, so CL_QUEUE_REFERENCE_COUNT does not tell; the queue dies with the event, unseen. Work on another
 * queue goes on meanwhile: nobody may touch the dead one. */
#include "check.h"

enum { ROUNDS = 100, N = 256, EACH = 4 };

int main(void)
{
    setup();
    cl_kernel kernel = kernel_from(STEP_SOURCE, "advance");
    cl_command_queue steady = queue_with(0);
    cl_int zero = 0;
    static cl_int back[N];
    cl_mem data = buffer_of(sizeof back, NULL);
    OK(clEnqueueFillBuffer(steady, data, &zero, sizeof zero, 0, sizeof back, 0, NULL, NULL));
    OK(clFinish(steady));
    for (int i = 0; i < ROUNDS; i++) {
        cl_command_queue brief = queue_with(i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
        cl_event last;
        step(brief, kernel, data, N, 1, 1, 0, NULL, &last);
        OK(clFlush(brief));
        OK(clReleaseCommandQueue(brief));
        OK(clWaitForEvents(1, &last));
        OK(clReleaseEvent(last));
        for (int k = 0; k < EACH; k++)
            step(steady, kernel, data, N, 1, 1, 0, NULL, NULL);
        OK(clFinish(steady));
    }
    OK(clEnqueueReadBuffer(steady, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == ROUNDS * (EACH + 1));
    puts("queues that die with their events: ok");
    return 0;
}
