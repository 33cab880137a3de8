//! Jobs: granted on all their devices together or on none.
//!
//! A job is served on a device when one of its ready groups there may run (groups of one job may well take turns on
//! a device). If a job is not served everywhere, it is refused everywhere, and the devices that had chosen it are
//! filled with others until the choices of all its devices agree. They come to agree because a policy keeps thinking
//! that the job was chosen: a group that waits falls behind, and the one that is behind is chosen.

use super::device::{Device, Member};
use crate::Micros;

/// A job that lives on more than one device, by its number: members know theirs ([`super::device::Member::spanning`]).
#[derive(Clone, Copy)]
struct Job(usize);

/// Finds the jobs with groups on more than one device, tells their members, and returns how many there are.
pub(super) fn spanning(devices: &mut [Device]) -> usize {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        seen.extend(device.all().filter_map(|m| Some((m.job.as_deref()?, at))));
    }
    seen.sort_unstable();
    seen.dedup();
    let mut jobs: Vec<&str> = Vec::new();
    for pair in seen.windows(2) {
        if pair[0].0 == pair[1].0 && jobs.last().is_none_or(|job| *job != pair[0].0) {
            jobs.push(pair[0].0);
        }
    }
    // They are in order.
    let jobs: Vec<String> = jobs.into_iter().map(str::to_owned).collect();
    let number = |m: &Member| {
        let job = m.job.as_deref()?;
        jobs.binary_search_by(|known| known.as_str().cmp(job)).ok()
    };
    for device in devices {
        device.wake_if(|m| number(m).is_some());
        device.members.iter_mut().for_each(|m| m.spanning = number(m));
    }
    jobs.len()
}

/// Which jobs want some device and would not get it, by number.
fn unserved(jobs: usize, devices: &[Device]) -> Vec<bool> {
    let mut all = vec![false; jobs];
    let mut served = Served::new(jobs);
    for device in devices {
        served.of(device).for_each(|job| all[job] = true);
    }
    all
}

/// Which jobs want a device, and which of them get it.
struct Served {
    wanted: Vec<bool>,
    served: Vec<bool>,
}

impl Served {
    fn new(jobs: usize) -> Served {
        Served { wanted: vec![false; jobs], served: vec![false; jobs] }
    }

    /// The jobs that want the device and would not get it.
    fn of(&mut self, device: &Device) -> impl Iterator<Item = usize> {
        self.wanted.fill(false);
        self.served.fill(false);
        for (m, verdict) in device.members.iter().zip(&device.verdicts) {
            if let Some(job) = m.spanning.filter(|_| m.wants()) {
                self.wanted[job] = true;
                self.served[job] |= verdict.run;
            }
        }
        let both = self.wanted.iter().zip(&self.served).enumerate();
        both.filter(|(_, (wanted, served))| **wanted && !**served).map(|(job, _)| job)
    }
}

impl Job {
    fn owns(self, member: &Member) -> bool {
        member.spanning == Some(self.0)
    }

    /// Refuses it. Devices on which it was to run decide again.
    fn give_way(self, now: Micros, devices: &mut [Device], seed: u64) {
        self.mark(true, devices);
        for device in devices {
            let mut ours = device.members.iter().zip(&device.verdicts).filter(|(m, _)| self.owns(m));
            if ours.any(|(m, v)| m.group.ready && v.run) {
                device.decide_without_refused(now, seed);
            }
        }
    }

    /// Takes the refusal back if each device can serve it beside all that it serves by now. Most that cannot come back meet
    /// the one that keeps them out on their first device, and the others do not decide again.
    fn come_back(self, now: Micros, devices: &mut [Device], seed: u64, served: &mut Served) {
        self.mark(false, devices);
        let mut before = Vec::new();
        for at in 0..devices.len() {
            let device = &mut devices[at];
            if !device.members.iter().any(|m| self.owns(m) && m.group.ready) {
                continue;
            }
            before.push((at, device.decision()));
            device.decide_without_refused(now, seed);
            if served.of(device).next().is_some() {
                self.mark(true, devices);
                return before.into_iter().for_each(|(at, decision)| devices[at].put_back(decision));
            }
        }
    }

    fn mark(self, refuse: bool, devices: &mut [Device]) {
        let ready = devices.iter_mut().flat_map(|d| &mut d.members).filter(|m| m.group.ready);
        for m in ready.filter(|m| self.owns(m)) {
            m.refused = refuse;
        }
    }
}

/// The priority of each job: the highest of its groups that want a device.
fn priorities(jobs: usize, devices: &[Device]) -> Vec<i32> {
    let mut priorities = vec![i32::MIN; jobs];
    for m in devices.iter().flat_map(|d| &d.members).filter(|m| m.group.ready) {
        if let Some(job) = m.spanning {
            priorities[job] = priorities[job].max(m.group.priority);
        }
    }
    priorities
}

/// Refuses all jobs at once that want a device on which only groups of no job are to run: no job's giving way lets them on it. Says
/// which those are.
fn shut_out(now: Micros, jobs: usize, devices: &mut [Device], seed: u64) -> Vec<bool> {
    let mut out = vec![false; jobs];
    for device in devices.iter() {
        let runs_none = device.members.iter().zip(&device.verdicts).all(|(m, v)| m.spanning.is_none() || !v.run);
        if runs_none {
            device.members.iter().filter(|m| m.wants()).filter_map(|m| m.spanning).for_each(|job| out[job] = true);
        }
    }
    if !out.contains(&true) {
        return out;
    }
    for device in devices {
        let mut ran = false;
        for (m, verdict) in device.members.iter_mut().zip(&device.verdicts) {
            if m.group.ready && m.spanning.is_some_and(|job| out[job]) {
                m.refused = true;
                ran |= verdict.run;
            }
        }
        if ran {
            device.decide_without_refused(now, seed);
        }
    }
    out
}

/// Makes the verdicts of all devices fit each other. `jobs` is how many there are.
pub(super) fn reconcile(now: Micros, jobs: usize, devices: &mut [Device], seed: u64) {
    let out = shut_out(now, jobs, devices, seed);
    // The order in which jobs give way and come back: the least urgent gives way first.
    let others = priorities(jobs, devices).into_iter().enumerate().filter(|(j, _)| !out[*j]);
    let mut order: Vec<(i32, usize, bool)> = others.map(|(j, priority)| (priority, j, false)).collect();
    order.sort_unstable();
    loop {
        let unserved = unserved(jobs, devices);
        let Some(at) = order.iter().position(|&(_, j, refused)| !refused && unserved[j]) else { break };
        order[at].2 = true;
        Job(order[at].1).give_way(now, devices, seed);
    }
    // One that gave way to another that had to give way itself may come back, if all others can stay.
    let mut served = Served::new(jobs);
    for (_, job, _) in order.into_iter().rev().filter(|(_, _, refused)| *refused) {
        Job(job).come_back(now, devices, seed, &mut served);
    }
}
