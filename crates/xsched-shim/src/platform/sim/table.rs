//! Every hooked function of simdev.h in its class. One that is in none, or in two, fails the audit test, and so does one that a
//! new header brings. Those that are not hooked: `no_device_work.txt`.

use crate::platform::Class;

/// Class and names.
pub static CLASSES: &[(Class, &[&str])] = &[
    (Class::Launch, &["simLaunchKernel"]),
    (Class::Copy, &["simMemcpy", "simMemcpyAsync", "simMemset", "simMemsetAsync"]),
    (Class::Sync, &["simDeviceSynchronize", "simEventSynchronize", "simFree", "simHostFree", "simStreamSynchronize"]),
    (Class::Create, &["simStreamCreate", "simStreamCreateWithPriority"]),
    (Class::Destroy, &["simDeviceReset", "simStreamDestroy"]),
    (Class::Lookup, &["simGetProcAddress"]),
];
