/**
 * @file
 * Handles, results and numbers of xsched's C interface. Names and values are those of XSched 1.2.0.
 */
#ifndef XSCHED_TYPES_H
#define XSCHED_TYPES_H

#include <stddef.h>
#include <stdint.h>

/** A kind of device and its address. */
typedef uint64_t XDevice;
/** PCI address of a device. */
typedef uint32_t XDeviceId;

/** An XQueue: a number, never a pointer, and never used again. 0 is none. */
typedef uint64_t XQueueHandle;
/** A queue of the hardware's as its vendor's interface has it: a CUDA or HIP stream, an OpenCL command queue. */
typedef uint64_t HwQueueHandle;
/** A command. */
typedef uint64_t HwCommandHandle;

/** -255 to 255, greater is more urgent; 0 unless said otherwise. ::XSCHED_PRIORITY_NOT_EXECUTED beside. */
typedef int32_t Priority;
/** Part of a device, 0 to 100 percent; 100 unless said otherwise. */
typedef int32_t Utilization;
/** Microseconds, 100 to 10000000; 5000 unless said otherwise. */
typedef int64_t Timeslice;
/** Microseconds, 1 to 3600000000; -1 = none. */
typedef int64_t Laxity;
/** Microseconds from the begin of a request, 1 to 3600000000; -1 = none. */
typedef int64_t Deadline;

/** The priority of a queue that is not to be executed until it gets another one. */
#define XSCHED_PRIORITY_NOT_EXECUTED (-256)

/** What a function answers. */
typedef enum {
    kXSchedSuccess = 0,
    kXSchedErrorHardware = 1,     /**< The vendor's interface refused, or there is none in the process. */
    kXSchedErrorInvalidValue = 2, /**< An argument is out of range, or a null pointer. */
    kXSchedErrorNotFound = 3,     /**< A handle stands for nothing (any more); or there is no libxsched.so. */
    kXSchedErrorNotAllowed = 4,   /**< Not in this state, or not from within a command. */
    kXSchedErrorNotSupported = 5, /**< The device cannot. */
    kXSchedErrorBadResponse = 6,  /**< The scheduler did not answer as it should. */
    kXSchedErrorUnknown = 999     /**< An error of xsched's own: scheduling is off from here on. */
} XResult;

/** A vendor's interface. CUDA, HIP and OpenCL are scheduled; the others are named for programs that print them. */
typedef enum {
    kPlatformUnknown = 0,
    kPlatformVPI = 1,
    kPlatformCUDA = 2,
    kPlatformCUDLA = 3,
    kPlatformHIP = 4,
    kPlatformAscend = 5,
    kPlatformOpenCL = 6,
    kPlatformLevelZero = 7
} XPlatform;

/** A kind of device. */
typedef enum {
    kDeviceTypeUnknown = 0,
    kDeviceTypeCPU = 1,
    kDeviceTypeGPU = 2,
    kDeviceTypeNPU = 3,
    kDeviceTypeFPGA = 4,
    kDeviceTypeASIC = 5,
    kDeviceTypeMCA = 6
} XDeviceType;

/** What a suspended queue stops. */
typedef enum {
    kPreemptLevelUnknown = 0,
    kPreemptLevelBlock = 1,      /**< Commands that are not launched yet. */
    kPreemptLevelDeactivate = 2, /**< Also launched ones, but for the one that runs. */
    kPreemptLevelInterrupt = 3,  /**< Also the one that runs, where the scheduler takes the device away. */
    kPreemptLevelMax = 4
} XPreemptLevel;

/** Whether a queue has work. */
typedef enum {
    kQueueStateUnknown = 0,
    kQueueStateIdle = 1, /**< All that it was given is complete. */
    kQueueStateReady = 2 /**< Commands are buffered, or run. */
} XQueueState;

/** What queues can do: bits. */
typedef enum {
    kQueueFeatureAsyncSubmit = 1,
    kQueueFeatureDynamicLevel = 2,
    kQueueFeatureDynamicThreshold = 4,
    kQueueFeatureDynamicBatchSize = 8,
    kQueueFeatureSyncSuspend = 16,
    kQueueFeatureResumeDropCommands = 32
} XQueueFeature;

/** Bits of XQueueCreate(). */
typedef enum {
    kQueueCreateFlagNone = 0,
    kQueueCreateFlagBlockingSubmit = 1 /**< Commands are launched by the thread that submits them. */
} XQueueCreateFlag;

/** Bits of XQueueSuspend(). */
typedef enum {
    kQueueSuspendFlagNone = 0,
    kQueueSuspendFlagSyncHwQueue = 1, /**< Afterwards, wait for what was launched and is not held. */
    kQueueSuspendFlagWaitAll = 2,     /**< First wait for all that was submitted so far. */
    kQueueSuspendFlagWaitIdle = 4     /**< First wait until nothing is left, also of what is submitted meanwhile. */
} XQueueSuspendFlag;

/** Bits of XQueueResume(). */
typedef enum {
    kQueueResumeFlagNone = 0,
    kQueueResumeFlagDropCommands = 1 /**< Forget what is buffered; ignored at level 1. */
} XQueueResumeFlag;

/** What decides which queue runs. */
typedef enum {
    kSchedulerUnknown = 0,
    kSchedulerAppManaged = 1, /**< The program, by XQueueSuspend() and XQueueResume(). */
    kSchedulerLocal = 2,      /**< A scheduler inside the process. */
    kSchedulerGlobal = 3,     /**< The daemon. */
    kSchedulerMax = 4
} XSchedulerType;

/** By what a scheduler inside the process decides; docs/reference/policies.md has each. */
typedef enum {
    kPolicyUnknown = 0,
    kPolicyHighestPriorityFirst = 1,
    kPolicyHeterogeneousHighestPriorityFirst = 2,
    kPolicyCPUHighestPriorityFirst = 3,
    kPolicyUtilizationPartition = 4,
    kPolicyProcessUtilizationPartition = 5,
    kPolicyStrictProcessUtilizationPartition = 6,
    kPolicyKEarliestDeadlineFirst = 7,
    kPolicyLaxity = 8,
    kPolicyActiveWindowFirst = 9,
    kPolicyCompletelyFairScheduler = 10,
    kPolicyMultiLevelFeedbackQueue = 11
} XPolicyType;

/**
 * What a command does: launches work on its queue, and returns kXSchedSuccess or why not. It is called on a thread of
 * xsched's (or, with kQueueCreateFlagBlockingSubmit and HwQueueLaunch(), on the caller's), with the context of the queue as
 * that thread's. It must not throw, nor wait for its own queue.
 */
typedef XResult (*LaunchCallback)(HwQueueHandle hwq, void *data);

#endif
