//! The daemon's heartbeat page, as this process reads it: signs of life, the daemon's clock, and the programs on a device.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use xsched_flow::journal::Record;
use xsched_flow::watchdog::is_silent;
use xsched_proto::segment::{Heartbeat, device_place};

use crate::journal;

/// Heartbeat page of the daemon that this process is attached to, if it is attached to one.
pub(crate) struct DaemonPage {
    page: AtomicPtr<Heartbeat>,
    /// The newest beat, and the time of this process's clock at which it was first seen, in ns.
    beat_seen: AtomicU64,
    beat_seen_at: AtomicU64,
    /// See [`xsched_proto::clock::offset_ns`].
    clock_offset_ns: i64,
}

impl DaemonPage {
    /// No page yet.
    pub(crate) fn new() -> DaemonPage {
        DaemonPage {
            page: AtomicPtr::new(core::ptr::null_mut()),
            beat_seen: AtomicU64::new(0),
            beat_seen_at: AtomicU64::new(0),
            clock_offset_ns: xsched_proto::clock::offset_ns(),
        }
    }

    /// Sets the page of the daemon from now on; null = there is none. A page must stay mapped until the process ends.
    pub(crate) fn set(&self, page: *mut Heartbeat) {
        self.page.store(page, Release);
    }

    fn page(&self) -> Option<&Heartbeat> {
        // SAFETY: null, or a page that the agent maps and never unmaps while it is published here.
        unsafe { self.page.load(Acquire).as_ref() }
    }

    /// True: the daemon knows best-effort programs whose contexts on this device have time slices.
    pub(crate) fn has_best_effort_contention(&self, device: &str) -> bool {
        self.page().is_some_and(|page| page.best_effort[device_place(device)].load(Acquire) > 0)
    }

    /// True: the daemon missed so many beats that it holds no program any more. It beats only while some gate is closed, so that
    /// its silence counts from `since`, when this gate was seen closed.
    pub(crate) fn is_silent(&self, now: u64, since: u64) -> bool {
        let Some(page) = self.page() else { return false };
        let beat = page.beat_ns.load(Acquire);
        // By this process's clock: the daemon's may be another one, and a beat that could be ahead would never grow old.
        if self.beat_seen.load(Acquire) != beat {
            self.beat_seen_at.store(now, Release);
            self.beat_seen.store(beat, Release);
        }
        let seen_at = self.beat_seen_at.load(Acquire);
        let silent = is_silent(seen_at, since, now);
        journal::record(|| Record::Silent(seen_at, since, now, silent));
        silent
    }

    /// Converts a time of this process's clock, in ns, to that of the daemon, if there is one.
    pub(crate) fn daemons_ns(&self, own_ns: u64) -> u64 {
        let Some(page) = self.page() else { return own_ns };
        let offset_ns = page.clock_offset_ns.load(Relaxed);
        own_ns.wrapping_add_signed(offset_ns.wrapping_sub(self.clock_offset_ns))
    }
}
