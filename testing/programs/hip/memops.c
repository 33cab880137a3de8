/* Waits for and writes of values by streams. */
#include "hip.h"

int main(void)
{
    need_device();
    hipStream_t stream = 0, other = 0;
    volatile uint32_t *word = 0;
    uint64_t *on_device = 0, value = 0;
    int can = 0;
    OK(hipDeviceGetAttribute(&can, 10013, 0));
    CHECK("the device can", can == 1);
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipStreamCreateWithFlags(&other, 1));
    OK(hipHostMalloc(&word, 64, 0));
    OK(hipMalloc(&on_device, 64));
    memset((void *)word, 0, 64);

    GIVES("a wait", SUCCESS, hipStreamWaitValue32(stream, (void *)word, 5, WAIT_EQ, ~0u));
    GIVES("a write after it", SUCCESS, hipStreamWriteValue32(stream, (void *)(word + 1), 77, 0));
    CHECK("holds the stream", hipStreamQuery(stream) == NOT_READY && word[1] == 0);
    *word = 5;
    OK(hipStreamSynchronize(stream));
    CHECK("until the word is there", word[1] == 77);

    OK(hipStreamWaitValue64(stream, on_device, 9, WAIT_GTE, ~0ull));
    OK(hipStreamWriteValue64(other, on_device, 10, 0));
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(&value, on_device, sizeof value, DEVICE_TO_HOST));
    CHECK("one stream waits for another", value == 10);
    *word = 0x100;
    GIVES("bits, with a mask", SUCCESS, hipStreamWaitValue32(stream, (void *)word, 0x101, WAIT_AND, 0xff00));
    OK(hipStreamSynchronize(stream));
    uint32_t unknown = 0;
    CHECK("memory that the runtime does not know is refused",
          hipStreamWaitValue32(stream, &unknown, 1, WAIT_EQ, ~0u) == INVALID_VALUE);
    CHECK("so is a condition that is none",
          hipStreamWaitValue32(stream, (void *)word, 1, 9, ~0u) == INVALID_VALUE);
    OK(hipStreamDestroy(stream));
    CHECK("and a stream that is gone",
          hipStreamWriteValue32(stream, (void *)word, 1, 0) == CONTEXT_IS_DESTROYED);
    CHECKS_DONE;
}
