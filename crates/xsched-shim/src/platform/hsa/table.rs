//! Every hooked function of AMD's runtime (ROCr 5.2) in its class. One that is in none, or in two, fails the audit test, and so does one that a
//! new header brings. Those that are not hooked: `no_device_work.txt`.

use crate::platform::Class;

/// Class and names.
pub static CLASSES: &[(Class, &[&str])] =
    &[(Class::Create, &["hsa_queue_create"]), (Class::Destroy, &["hsa_queue_destroy", "hsa_shut_down"])];
