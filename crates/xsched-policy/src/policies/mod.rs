//! One file per policy.

pub(crate) mod chaos;
pub(crate) mod external;
pub(crate) mod fair;
pub(crate) mod hpf;
