//! Jobs: granted on all their devices together or on none.
//!
//! A job is served on a device when one of its ready groups there may run (groups of one job may well take turns on
//! a device). If a job is not served everywhere, it is refused everywhere, and the devices that had chosen it are
//! filled with others until the choices of all its devices agree. They come to agree because a policy keeps thinking
//! that the job was chosen: a group that waits falls behind, and the one that is behind is chosen.

use super::device::Device;
use crate::Micros;

/// A job that lives on more than one device.
pub(super) struct Job {
    name: String,
}

/// The jobs with groups on more than one device, whose members are told.
pub(super) fn spanning(devices: &mut [Device]) -> Vec<Job> {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        seen.extend(device.members.iter().filter_map(|m| Some((m.job.as_deref()?, at))));
    }
    seen.sort_unstable();
    seen.dedup();
    let mut jobs: Vec<Job> = Vec::new();
    for pair in seen.windows(2) {
        if pair[0].0 == pair[1].0 && jobs.last().is_none_or(|j| j.name != pair[0].0) {
            jobs.push(Job { name: pair[0].0.to_owned() });
        }
    }
    for m in devices.iter_mut().flat_map(|d| &mut d.members) {
        // They are in order.
        let owns = |job: &str| jobs.binary_search_by(|j| j.name.as_str().cmp(job)).is_ok();
        m.spans = m.job.as_deref().is_some_and(owns);
    }
    jobs
}

impl Job {
    /// Whether it wants some device and would not get it.
    fn unserved(&self, devices: &[Device]) -> bool {
        devices.iter().any(|d| {
            let mut ours = d.members.iter().zip(&d.verdicts).filter(|(m, _)| self.owns(m.job.as_deref()) && m.wants());
            let wanted = ours.clone().next().is_some();
            wanted && !ours.any(|(_, v)| v.run)
        })
    }

    fn owns(&self, job: Option<&str>) -> bool {
        job == Some(self.name.as_str())
    }

    fn priority(&self, devices: &[Device]) -> i32 {
        let ours = devices.iter().flat_map(|d| &d.members).filter(|m| self.owns(m.job.as_deref()) && m.group.ready);
        ours.map(|m| m.group.priority).max().unwrap_or(i32::MIN)
    }

    /// Refuses it, or takes that back. Devices on which this makes a difference decide again.
    fn refuse(&self, refuse: bool, now: Micros, devices: &mut [Device], seed: u64) {
        self.mark(refuse, devices);
        for device in devices {
            let mut ours = device.members.iter().zip(&device.verdicts).filter(|(m, _)| self.owns(m.job.as_deref()));
            if ours.any(|(m, v)| m.group.ready && (v.run || !refuse)) {
                device.decide_without_refused(now, seed);
            }
        }
    }

    fn mark(&self, refuse: bool, devices: &mut [Device]) {
        let ready = devices.iter_mut().flat_map(|d| &mut d.members).filter(|m| m.group.ready);
        for m in ready.filter(|m| self.owns(m.job.as_deref())) {
            m.refused = refuse;
        }
    }
}

/// Makes the verdicts of all devices fit each other.
pub(super) fn reconcile(now: Micros, jobs: &[Job], devices: &mut [Device], seed: u64) {
    // The order in which jobs give way and come back: the least urgent gives way first.
    let mut order: Vec<(i32, usize, bool)> =
        jobs.iter().enumerate().map(|(at, j)| (j.priority(devices), at, false)).collect();
    order.sort_unstable();
    while let Some(at) = order.iter().position(|&(_, j, refused)| !refused && jobs[j].unserved(devices)) {
        order[at].2 = true;
        jobs[order[at].1].refuse(true, now, devices, seed);
    }
    // One that gave way to another that had to give way itself may come back, if all others can stay.
    for at in (0..order.len()).rev().filter(|&at| order[at].2).collect::<Vec<_>>() {
        let job = &jobs[order[at].1];
        let before: Vec<_> = devices.iter().map(Device::decision).collect();
        order[at].2 = false;
        job.refuse(false, now, devices, seed);
        if order.iter().any(|&(_, j, refused)| !refused && jobs[j].unserved(devices)) {
            order[at].2 = true;
            job.mark(true, devices);
            devices.iter_mut().zip(before).for_each(|(device, decision)| device.put_back(decision));
        }
    }
}
