//! Conditions of the process under which gates on the device stand open.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use xsched_flow::watchdog;

use crate::clock::now_ns;

/// Conditions of the process under which gates on the device stand open; see [`crate::device_gates`].
#[derive(Default)]
pub(crate) struct GateConditions {
    /// Calls under way in which the driver may load code.
    loading: AtomicU32,
    /// Time at which queues last had a cross-stream dependency, in ns; 0 = never.
    cross_stream_at: AtomicU64,
}

impl GateConditions {
    /// Begins a call in which the driver may load code.
    pub(crate) fn begin_load(&self) {
        self.loading.fetch_add(1, SeqCst);
    }

    /// Ends a call in which the driver may load code.
    pub(crate) fn end_load(&self) {
        self.loading.fetch_sub(1, SeqCst);
    }

    /// True: the driver may load code now.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(SeqCst) > 0
    }

    /// Notes a cross-stream dependency.
    pub(crate) fn note_cross_stream(&self) {
        self.cross_stream_at.store(now_ns(), SeqCst);
    }

    /// True: queues had cross-stream dependencies lately.
    pub(crate) fn is_cross_stream(&self) -> bool {
        let at = self.cross_stream_at.load(SeqCst);
        at != 0 && watchdog::is_cross_stream(at, now_ns())
    }
}
