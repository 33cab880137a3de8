/**
 * @file
 * Handles, results and constants of xsched's C interface. Names and values are those of XSched 1.2.0.
 */
#ifndef XSCHED_TYPES_H
#define XSCHED_TYPES_H

#include <stddef.h>
#include <stdint.h>

/** Kind of a device and its address. */
typedef uint64_t XDevice;
/** PCI address of a device. */
typedef uint32_t XDeviceId;

/** Handle of an XQueue: a number, never a pointer, and never used again. 0 is none. */
typedef uint64_t XQueueHandle;
/** Handle of a hardware queue: a CUDA or HIP stream, an OpenCL command queue. */
typedef uint64_t HwQueueHandle;
/** Handle of a command. */
typedef uint64_t HwCommandHandle;

/** Priority, -255 to 255, greater is more urgent, 0 by default; or ::XSCHED_PRIORITY_NOT_EXECUTED. */
typedef int32_t Priority;
/** Part of a device, 0 to 100 percent, 100 by default. */
typedef int32_t Utilization;
/** Length of a turn in microseconds, 100 to 10000000, 5000 by default. */
typedef int64_t Timeslice;
/** Longest wait of a request in microseconds, 1 to 3600000000; -1 = none. */
typedef int64_t Laxity;
/** Time from the begin of a request until it is due in microseconds, 1 to 3600000000; -1 = none. */
typedef int64_t Deadline;

/** Priority of a queue that is not executed until it gets another one. */
#define XSCHED_PRIORITY_NOT_EXECUTED (-256)

/** Result of a function. */
typedef enum {
    kXSchedSuccess = 0,
    kXSchedErrorHardware = 1,     /**< Refused by the vendor's interface, or none in the process. */
    kXSchedErrorInvalidValue = 2, /**< Argument out of range, or null pointer. */
    kXSchedErrorNotFound = 3,     /**< Unknown handle, or no libxsched.so. */
    kXSchedErrorNotAllowed = 4,   /**< Not in this state, or not within a command. */
    kXSchedErrorNotSupported = 5, /**< The device cannot, the policy needs a daemon, or the process has 64 groups. */
    kXSchedErrorBadResponse = 6,  /**< The former scheduler did not end within 2 s. */
    kXSchedErrorUnknown = 999     /**< Internal error: scheduling is off from here on. */
} XResult;

/** Interface of a vendor. CUDA, HIP and OpenCL are scheduled; the others are named for programs that print them. */
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

/** Kind of device. */
typedef enum {
    kDeviceTypeUnknown = 0,
    kDeviceTypeCPU = 1,
    kDeviceTypeGPU = 2,
    kDeviceTypeNPU = 3,
    kDeviceTypeFPGA = 4,
    kDeviceTypeASIC = 5,
    kDeviceTypeMCA = 6
} XDeviceType;

/** Preemption level: the commands that a suspended queue stops. */
typedef enum {
    kPreemptLevelUnknown = 0,
    kPreemptLevelBlock = 1,      /**< Commands that are not launched yet. */
    kPreemptLevelDeactivate = 2, /**< Also launched ones, but for the one that runs. */
    kPreemptLevelInterrupt = 3,  /**< Also the one that runs, where the scheduler takes the device away. */
    kPreemptLevelMax = 4
} XPreemptLevel;

/** State of a queue. */
typedef enum {
    kQueueStateUnknown = 0,
    kQueueStateIdle = 1, /**< All commands are complete. */
    kQueueStateReady = 2 /**< Commands are buffered, or run. */
} XQueueState;

/** Features of queues: bits. */
typedef enum {
    kQueueFeatureAsyncSubmit = 1,
    kQueueFeatureDynamicLevel = 2,
    kQueueFeatureDynamicThreshold = 4,
    kQueueFeatureDynamicBatchSize = 8,
    kQueueFeatureSyncSuspend = 16,
    kQueueFeatureResumeDropCommands = 32
} XQueueFeature;

/** Flags of XQueueCreate(). */
typedef enum {
    kQueueCreateFlagNone = 0,
    kQueueCreateFlagBlockingSubmit = 1 /**< Commands are launched by the thread that submits them. */
} XQueueCreateFlag;

/** Flags of XQueueSuspend(). */
typedef enum {
    kQueueSuspendFlagNone = 0,
    kQueueSuspendFlagSyncHwQueue = 1, /**< Afterwards, wait for launched commands that are not held. */
    kQueueSuspendFlagWaitAll = 2,     /**< First wait for all commands submitted so far. */
    kQueueSuspendFlagWaitIdle = 4     /**< First wait until nothing is left, later submissions included. */
} XQueueSuspendFlag;

/** Flags of XQueueResume(). */
typedef enum {
    kQueueResumeFlagNone = 0,
    kQueueResumeFlagDropCommands = 1 /**< Drop buffered commands; ignored at level 1. */
} XQueueResumeFlag;

/** Scheduler: the part that decides which queue runs. */
typedef enum {
    kSchedulerUnknown = 0,
    kSchedulerAppManaged = 1, /**< The program, by XQueueSuspend() and XQueueResume(). */
    kSchedulerLocal = 2,      /**< A scheduler inside the process. */
    kSchedulerGlobal = 3,     /**< The daemon. */
    kSchedulerMax = 4
} XSchedulerType;

/** Policies of a scheduler inside the process; docs/reference/policies.md describes each. */
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
 * Function of a command: launches work on the queue, and returns kXSchedSuccess or an error. It is called on a thread of
 * xsched (with kQueueCreateFlagBlockingSubmit and HwQueueLaunch() on the caller's), with the queue's context current. It must
 * not throw, nor wait for its own queue.
 */
typedef XResult (*LaunchCallback)(HwQueueHandle hwq, void *data);

#endif
