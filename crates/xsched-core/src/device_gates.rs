//! Gates on the device: the conditions under which they hold the commands behind them, and under which they must not. A bit of the
//! gate word then opens them all.
//!
//! A stream that waits at a gate costs the device nothing. But anything that waits *for such a stream* on the device keeps it:
//! measured on an H200, a stream that waits for an event of another one that is held, or code that is being loaded behind held
//! commands, takes 2 to 6 ms whenever the other programs' time slices end, and a rival's requests of 5 ms took 17. So
//! - while the driver loads code, gates stand open; a thread that would have it load while commands are held first waits for the
//!   group's grant;
//! - queues with cross-stream dependencies are held on the host alone, until they have had none for a while;
//! - commands that are held for long are released, for the sake of anything unknown that may wait for them: they may slow a rival
//!   down so much that it is never idle, and would stay held for ever.
//!
//! The last two do not hold where the user asked for a level by number: then gates hold.

use core::sync::atomic::Ordering::*;

use xsched_flow::journal::Record;
use xsched_flow::watchdog::{Bypass, bypasses, epoch, release_patience_ns, releases};

use crate::group::Group;
use crate::journal;
use crate::queue::{XQueue, is_default};
use crate::runtime::Runtime;

impl Group {
    /// Notes that a recorded command is about to be launched in which gates wait for this group's word.
    pub fn hold_inside(&self, rt: &Runtime) {
        if !self.device_gates.inside.load(Relaxed) {
            self.device_gates.inside.store(true, Release);
        }
        self.set_device_gates(rt);
    }

    /// Notes that gates may hold commands of this group without a fence that announces them to the daemon.
    pub fn note_untold_gates(&self, rt: &Runtime) {
        self.slot(rt).untold_gates.store(1, Relaxed);
    }

    /// True: gates inside recorded commands hold them now, if there are such commands.
    pub fn is_held_inside(&self, rt: &Runtime) -> bool {
        self.device_gates.inside.load(Acquire) && !self.slot(rt).gate.load().is_open_on_device()
    }

    /// Opens the gates that this group's commands have on the device, regardless of its grant, or lets them follow its grants. The
    /// agent calls this too: gates may hold commands already when the condition for opening them ends.
    pub fn set_device_gates(&self, rt: &Runtime) {
        let slot = self.slot(rt);
        let mut gate = slot.gate.load_in_order();
        loop {
            let ask = Bypass {
                word: gate.bits(),
                gates_inside: self.device_gates.inside.load(Acquire),
                fits_inside: rt.has_one_group() && slot.level.load(Relaxed) >= 2,
                released: self.device_gates.released_epoch.load(Acquire) == epoch(slot.grants.load(Acquire)),
                loading: rt.gate_conditions.is_loading(),
                cross_stream: rt.gate_conditions.is_cross_stream(),
            };
            let bypassed = bypasses(&ask);
            journal::record(|| Record::Bypasses(ask, bypassed));
            if bypassed == gate.is_bypassed() {
                return;
            }
            // The conditions are checked again after the change: another thread may have begun to load meanwhile, and found the
            // gates open.
            gate = match slot.gate.bypass(gate, bypassed) {
                Ok(now) | Err(now) => now,
            };
        }
    }

    /// Agent: releases commands that gates on the device have held for long.
    pub fn release_held(&self, rt: &Runtime, now: u64) {
        let slot = self.slot(rt);
        let grant = epoch(slot.grants.load(Acquire));
        if rt.forced_level().is_some() || !rt.queues_of(self).any(|q| q.waits_for_turn(rt)) {
            return;
        }
        let before = self.device_gates.epoch.swap(grant, Relaxed);
        let patience = self.device_gates.patience.load(Relaxed);
        let learn = |released| {
            let after = release_patience_ns(patience, released);
            journal::record(|| Record::ReleasePatience(patience, released, after));
            self.device_gates.patience.store(after, Relaxed);
        };
        if before != grant {
            if before != self.device_gates.released_epoch.load(Acquire) {
                learn(false);
            }
            self.device_gates.since.store(now, Relaxed);
            return;
        }
        if before == self.device_gates.released_epoch.load(Acquire) {
            return;
        }
        let since = self.device_gates.since.load(Relaxed);
        let out = releases(since, now, patience);
        journal::record(|| Record::Releases(since, now, patience, out));
        if out {
            learn(true);
            slot.releases.fetch_add(1, Relaxed);
            self.device_gates.released_epoch.store(grant, Release);
            self.set_device_gates(rt);
        }
    }
}

impl Runtime {
    /// Begins a call in which the driver may load code, and have the context finish its commands for that.
    pub fn begin_load(&self) {
        self.gate_conditions.begin_load();
        self.set_device_gates();
    }

    /// Ends a call of [`Runtime::begin_load`].
    pub fn end_load(&self) {
        self.gate_conditions.end_load();
        self.set_device_gates();
    }

    /// Notes a cross-stream dependency: a command that makes its queue wait for another one on the device. A level that the user
    /// asked for is not given up for that.
    pub fn note_cross_stream(&self) {
        if self.forced_level().is_none() && self.groups().any(|g| g.slot(self).level.load(Relaxed) >= 2) {
            self.gate_conditions.note_cross_stream();
            self.set_device_gates();
        }
    }

    fn set_device_gates(&self) {
        self.groups().for_each(|group| group.set_device_gates(self));
    }
}

impl XQueue {
    /// True: the queue's next command may wait for other queues that have work. Default streams and others wait for each other,
    /// except streams made not to, which are not distinguished here.
    pub(crate) fn has_cross_stream_dependency(&self, rt: &Runtime) -> bool {
        let is_default = |q: &XQueue| is_default(q.handle());
        for other in rt.queues_of(self.group(rt)) {
            if other.index != self.index && (is_default(self) || is_default(other)) && other.timeline.open() > 0 {
                return true;
            }
        }
        false
    }
}
