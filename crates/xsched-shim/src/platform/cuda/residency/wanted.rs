//! Programs whose memory is to be movable.

use crate::enabled::{MOVING, platform_enabled};

/// Reports whether this program's memory is to be movable.
pub(in super::super) fn is_wanted() -> bool {
    platform_enabled(MOVING)
}
