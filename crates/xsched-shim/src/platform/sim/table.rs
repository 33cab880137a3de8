//! Every function of simdev.h in its class.

use crate::platform::Class;

/// Class and names.
pub static CLASSES: &[(Class, &[&str])] = &[
    (Class::Launch, &["simLaunchKernel"]),
    (Class::Copy, &["simMemcpy", "simMemcpyAsync", "simMemset", "simMemsetAsync"]),
    (Class::Sync, &["simDeviceSynchronize", "simEventSynchronize", "simFree", "simHostFree", "simStreamSynchronize"]),
    (Class::Create, &["simStreamCreate", "simStreamCreateWithPriority"]),
    (Class::Destroy, &["simDeviceReset", "simStreamDestroy"]),
    (Class::Lookup, &["simGetProcAddress"]),
    (
        Class::NoDeviceWork,
        &[
            // In-order gating keeps what follows a held command behind it: these order commands of their stream and
            // take no device time themselves.
            "simEventRecord",
            "simLaunchHostFunc",
            "simStreamWaitEvent",
            "simStreamWaitValue32",
            "simStreamWriteValue32",
            // These ask, or set up.
            "simContextGetTimeslice",
            "simContextSetRunnable",
            "simContextSetTimeslice",
            "simDeviceGetCount",
            "simDeviceGetName",
            "simEventCreate",
            "simEventDestroy",
            "simEventElapsedTime",
            "simEventQuery",
            "simGetCounters",
            "simGetDevice",
            "simHostAlloc",
            "simHostRegister",
            "simHostUnregister",
            "simInit",
            "simMalloc",
            "simSetDevice",
            "simStreamGetPriority",
            "simStreamQuery",
        ],
    ),
];
