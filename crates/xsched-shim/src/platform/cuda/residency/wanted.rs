//! Programs whose memory is to be movable.

use std::sync::OnceLock;

use xsched_proto::variables;

use crate::enabled::{CUDA, platform_enabled};

/// Reports whether this program's memory is to be movable.
pub(in super::super) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| variables::text("XSCHED_MEMORY").as_deref() == Some("swap") && platform_enabled(CUDA))
}
