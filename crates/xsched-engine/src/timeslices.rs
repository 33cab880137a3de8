//! Time slices of the hardware, which are level 3 where a driver has them: which context gets which.
//!
//! A program gives its context the slice of its class when it makes the context (see `hardware_timeslice_us`). Whether there are other
//! best-effort programs then, it reads on the heartbeat page. Later changes are told from here: another class, or several best-effort
//! programs on the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use xsched_policy::GroupId;
use xsched_proto::class::{Class, Contention, hardware_timeslice_us};
use xsched_proto::segment::device_place;
use xsched_proto::wire::DaemonMsg;

use crate::group::are_short;
use crate::io::Effect;
use crate::memory::Memory;
use crate::state::Engine;
use crate::tuning::REASSERT_NS;

impl<M: Memory> Engine<M> {
    /// Assigns slices anew on some devices, and tells every program whose slice changes. One pass over all groups, however many devices
    /// there are.
    pub(crate) fn assign_timeslices(&mut self, devices: &[Arc<str>]) {
        // One group speaks for all of its program's on a device: a slice belongs to the context.
        let mut speakers: BTreeMap<(&str, u64), GroupId> = BTreeMap::new();
        // Names may be long: to compare two of them takes a look at their first letters mostly, to hash one takes them all.
        let mut changed: Vec<&str> = devices.iter().map(|device| &**device).collect();
        changed.sort_unstable();
        let is_changed = |device: &str| changed.binary_search(&device).is_ok();
        let of_changed = self.groups.iter().filter(|(_, g)| g.is_sliced() && is_changed(&g.device));
        for (id, group) in of_changed {
            let speaker = speakers.entry((&group.device, group.program.0)).or_insert(*id);
            *speaker = (*speaker).min(*id);
        }
        let mut told: Vec<(u64, GroupId, Class, Option<u64>, bool)> = Vec::new();
        for device in devices {
            let of_device = speakers.range((&**device, 0)..=(&**device, u64::MAX)).filter_map(|((_, id), group)| {
                let program = self.programs.get(id)?;
                Some((*id, *group, program.class(), program.asked.timeslice_us))
            });
            let of_device: Vec<_> = of_device.collect();
            let best_effort = of_device.iter().filter(|(_, _, class, _)| class.is_best_effort()).count();
            self.heartbeat.best_effort[device_place(device)].store(best_effort as u32, Release);
            told.extend(
                of_device.into_iter().map(|(id, group, class, asked)| (id, group, class, asked, best_effort > 1)),
            );
        }
        for (id, group, class, asked, has_contention) in told {
            let contention = if has_contention { self.contention_of(id) } else { Contention::None };
            let us = asked.unwrap_or_else(|| hardware_timeslice_us(class, contention));
            let Some(program) = self.programs.get_mut(&id) else { continue };
            program.has_contention = has_contention;
            if program.told_timeslice_us.replace(us) == Some(us) {
                continue;
            }
            let Some(slot) = self.groups.get(&group).map(|g| g.slot) else { continue };
            self.send(id, DaemonMsg::Timeslice { slot, us });
        }
    }

    /// The contention of a program among several best-effort ones.
    fn contention_of(&self, id: u64) -> Contention {
        let groups = self.programs.get(&id).into_iter().flat_map(|program| self.groups_of(program));
        let (mut known, mut all_short) = (false, true);
        for short in groups.filter_map(|(_, group)| are_short(&group.words)) {
            (known, all_short) = (true, all_short && short);
        }
        Contention::BestEffort { short: known && all_short }
    }

    /// Has a program among several best-effort ones set its slice again; not where policies take turns. Another slice, if more is
    /// known of its commands by now. Else the same, if they may be long: measured on an H200 beside a 50 Hz BERT, a ResNet-50
    /// and GEMMs: median latency 1.00 instead of 1.14 times what it is alone, and more work done. The reason is inferred: the driver
    /// chooses anew who is to run. Not for idle groups: each time takes the driver's lock for a millisecond.
    pub(crate) fn reassert_timeslice(&mut self, id: GroupId) {
        let now_ns = self.now_ns;
        let is_busy = !self.gatekeeper.is_idle(id);
        let Some(group) = self.groups.get(&id) else { return };
        if !(group.is_sliced() && group.words.level.load(Relaxed) == 3 && is_busy) {
            return;
        }
        let (program_id, slot) = (group.program.0, group.slot);
        let Some(program) = self.programs.get(&program_id) else { return };
        let is_due = now_ns.saturating_sub(program.reasserted_ns) >= REASSERT_NS;
        if !(program.has_contention && program.asked.timeslice_us.is_none() && is_due) {
            return;
        }
        let (class, contention, before_us) =
            (program.class(), self.contention_of(program_id), program.told_timeslice_us);
        let us = hardware_timeslice_us(class, contention);
        let matters = us != hardware_timeslice_us(class, Contention::None);
        let pays = contention == Contention::BestEffort { short: false } || before_us != Some(us);
        if !(matters && pays) {
            return;
        }
        if let Some(program) = self.programs.get_mut(&program_id) {
            program.reasserted_ns = now_ns;
            program.told_timeslice_us = Some(us);
        }
        self.emit(Effect::Timeslice { program: program_id, slot, us, before_us });
    }

    /// A slice was not told: the program keeps the one before, and the next grant tries again.
    pub(crate) fn timeslice_unsent(&mut self, id: u64, before_us: Option<u64>) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.reasserted_ns = 0;
            program.told_timeslice_us = before_us;
        }
    }
}
