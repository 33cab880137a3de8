//! The exchange of snapshots between the loop, which makes them, and the threads that answer monitors.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::snapshot::Snapshot;
use crate::guard::Fault;
use crate::tuning::FAULTS_WAITING_MAX;

/// A snapshot, as the loop and the answering threads share it.
pub(super) struct Exchange {
    state: Mutex<State>,
    changed: Condvar,
    /// Event by which the loop learns that a snapshot is wanted.
    pub(super) event: OwnedFd,
}

#[derive(Default)]
struct State {
    wanted: bool,
    /// The last one, and how many there were.
    snapshot: Option<Arc<Snapshot>>,
    count: u64,
    /// Faults of the answering threads since the loop last took them.
    faults: Vec<Fault>,
}

impl Exchange {
    pub(super) fn new() -> rustix::io::Result<Exchange> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Exchange { state: Mutex::default(), changed: Condvar::new(), event })
    }

    /// Takes the event. Returns true if a snapshot is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.lock().wanted
    }

    /// Keeps a fault of an answering thread for the loop.
    pub(super) fn report(&self, fault: Fault) {
        let mut state = self.lock();
        state.faults.push(fault);
        state.faults.truncate(FAULTS_WAITING_MAX);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Takes the faults.
    pub(super) fn take_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.lock().faults)
    }

    /// Gives a snapshot to the threads that wait for one.
    pub(super) fn put(&self, snapshot: Snapshot) {
        let mut state = self.lock();
        (state.wanted, state.snapshot) = (false, Some(Arc::new(snapshot)));
        state.count += 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot that was begun after this call, with its number; none = the loop does not answer.
    pub(super) fn snapshot(&self, patience: Duration) -> Option<(u64, Arc<Snapshot>)> {
        let mut state = self.lock();
        // A snapshot that is being made was begun before this request, so it does not count.
        let after = state.count + u64::from(state.wanted);
        state.wanted = true;
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        let waits = |state: &mut State| {
            let waits = state.count <= after;
            if waits && !state.wanted {
                state.wanted = true;
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            }
            waits
        };
        let (state, _) =
            self.changed.wait_timeout_while(state, patience, waits).unwrap_or_else(PoisonError::into_inner);
        (state.count > after).then(|| Some((state.count, state.snapshot.clone()?))).flatten()
    }
}
