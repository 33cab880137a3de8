//! Jobs: granted on all their devices together or on none.
//!
//! A job is served on a device when one of its ready groups there may run (groups of one job may well take turns on
//! a device). If a job is not served everywhere, it is refused everywhere, and the devices that had chosen it are
//! filled with others until the choices of all its devices agree. They come to agree because a policy keeps thinking
//! that the job was chosen: a group that waits falls behind, and the one that is behind is chosen.
//!
//! A change on a device concerns the devices that jobs connect with it, and no others. That is a bounded piece of work:
//! beyond [`RECONCILE_COST`] jobs give way together instead of one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::device::Device;
use super::stages::Round;
use crate::Micros;
use crate::tuning::RECONCILE_COST;

/// The jobs that have groups.
#[derive(Default)]
pub(super) struct Jobs {
    /// Number of each job, by name.
    numbers: HashMap<String, usize>,
    /// Jobs by number. A new job takes the number of one that is gone.
    jobs: Vec<Job>,
    free: Vec<usize>,
    /// Number of jobs with groups on several devices.
    spanning: usize,
}

#[derive(Default)]
struct Job {
    name: String,
    /// Number of its groups on each device, by the device's index.
    groups: BTreeMap<usize, usize>,
}

impl Job {
    fn spans(&self) -> bool {
        self.groups.len() > 1
    }
}

impl Jobs {
    /// The number of a job that is about to get a group.
    pub(super) fn number(&mut self, name: String) -> usize {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let job = Job { name: name.clone(), groups: BTreeMap::new() };
        let number = self.free.pop().unwrap_or(self.jobs.len());
        match self.jobs.get_mut(number) {
            Some(place) => *place = job,
            None => self.jobs.push(job),
        }
        self.numbers.insert(name, number);
        number
    }

    /// Adds a group of a job to the device with this index.
    pub(super) fn came(&mut self, number: usize, at: usize, devices: &mut [Device]) {
        let job = &mut self.jobs[number];
        let (spanned, is_first) = (job.spans(), !job.groups.contains_key(&at));
        *job.groups.entry(at).or_default() += 1;
        if !job.spans() {
            return;
        }
        self.spanning += usize::from(!spanned);
        // All other groups of a job that spans devices are marked already.
        let changed = if spanned && !is_first { vec![at] } else { job.groups.keys().copied().collect() };
        for at in changed {
            devices[at].wake_if(|m| m.job.number == Some(number));
            devices[at]
                .members
                .iter_mut()
                .filter(|m| m.job.number == Some(number))
                .for_each(|m| m.job.spanning = Some(number));
        }
    }

    /// Removes a group of a job from the device with this index. Adds the devices that the job may have been kept from to `dirty`.
    pub(super) fn went(&mut self, number: usize, at: usize, devices: &mut [Device], dirty: &mut Vec<usize>) {
        let job = &mut self.jobs[number];
        if !job.spans() {
            dirty.push(at);
        } else {
            dirty.extend(job.groups.keys());
        }
        let spanned = job.spans();
        if let Some(groups) = job.groups.get_mut(&at) {
            *groups -= 1;
            if *groups == 0 {
                job.groups.remove(&at);
            }
        }
        if spanned && !job.spans() {
            self.spanning -= 1;
            for at in job.groups.keys() {
                devices[*at]
                    .members
                    .iter_mut()
                    .filter(|m| m.job.number == Some(number))
                    .for_each(|m| m.job.spanning = None);
            }
        }
        if job.groups.is_empty() {
            let gone = std::mem::take(job);
            self.numbers.remove(&gone.name);
            self.free.push(number);
        }
    }

    /// Follows the move of the last device to the index of a removed one.
    pub(super) fn moved(&mut self, from: usize, to: &Device, at: usize) {
        for number in to.all().filter_map(|m| m.job.number) {
            let groups = &mut self.jobs[number].groups;
            if let Some(count) = groups.remove(&from) {
                groups.insert(at, count);
            }
        }
    }

    /// Adds the devices that jobs connect with those in `dirty`, each once, in order.
    pub(super) fn connect(&self, devices: &[Device], dirty: &mut Vec<usize>) {
        dirty.sort_unstable();
        dirty.dedup();
        if self.spanning == 0 {
            return;
        }
        let (mut found, mut known) = (vec![false; devices.len()], vec![false; self.jobs.len()]);
        dirty.iter().for_each(|at| found[*at] = true);
        let mut next = 0;
        while let Some(&at) = dirty.get(next) {
            next += 1;
            for number in devices[at].members.iter().filter_map(|m| m.job.spanning) {
                if !std::mem::replace(&mut known[number], true) {
                    let others =
                        self.jobs[number].groups.keys().filter(|at| !std::mem::replace(&mut found[**at], true));
                    dirty.extend(others);
                }
            }
        }
        dirty.sort_unstable();
    }

    /// Makes the verdicts of devices agree with each other. `at` holds all devices that jobs connect, each just decided.
    pub(super) fn reconcile(&self, now: Micros, at: &[usize], devices: &mut [Device]) {
        if self.spanning > 0 {
            Reconciling::new(now, self, at, devices).run();
        }
    }
}

/// Jobs that want one device and are served there, by their positions in [`Reconciling::order`].
struct Served {
    /// Number of the last call in which a job was found to want the device.
    wanted: Vec<u32>,
    /// Number of the last call in which a job was found to get the device.
    served: Vec<u32>,
    /// Number of calls so far.
    calls: u32,
}

impl Served {
    fn new(jobs: usize) -> Served {
        Served { wanted: vec![0; jobs], served: vec![0; jobs], calls: 0 }
    }

    /// Finds the jobs that want the device and would not get it.
    fn lacking(&mut self, device: &Device, place: &[usize]) -> Vec<usize> {
        self.calls += 1;
        let mut lacking = Vec::new();
        for (m, verdict) in device.members.iter().zip(&device.decision.verdicts) {
            let Some(job) = m.job.spanning.filter(|_| m.wants()).map(|number| place[number]).filter(|job| *job != NONE)
            else {
                continue;
            };
            if std::mem::replace(&mut self.wanted[job], self.calls) != self.calls {
                lacking.push(job);
            }
            if verdict.run {
                self.served[job] = self.calls;
            }
        }
        lacking.retain(|job| self.served[*job] != self.calls);
        lacking
    }
}

/// Position of a job that is not in the order.
const NONE: usize = usize::MAX;

struct Reconciling<'a> {
    now: Micros,
    jobs: &'a Jobs,
    devices: &'a mut [Device],
    /// Indices of the devices concerned.
    at: &'a [usize],
    /// Jobs that want a device, by number, in the order in which they give way: the least urgent first.
    order: Vec<usize>,
    /// Position of each job in that order, by number.
    place: Vec<usize>,
    refused: Vec<bool>,
    served: Served,
    /// Jobs not served on each device, as of its last decision.
    lacking: HashMap<usize, Vec<usize>>,
    /// Number of devices that do not serve each job.
    lacks: Vec<usize>,
    /// Jobs with such a device that are not refused.
    unserved: BTreeSet<usize>,
    /// Cost of further decisions so far, in members.
    cost: usize,
}

impl<'a> Reconciling<'a> {
    fn new(now: Micros, jobs: &'a Jobs, at: &'a [usize], devices: &'a mut [Device]) -> Reconciling<'a> {
        let mut it = Reconciling {
            now,
            jobs,
            devices,
            at,
            order: Vec::new(),
            place: vec![NONE; jobs.jobs.len()],
            refused: Vec::new(),
            served: Served::new(0),
            lacking: HashMap::new(),
            lacks: Vec::new(),
            unserved: BTreeSet::new(),
            cost: 0,
        };
        let out = it.shut_out();
        // The priority of each job: the highest of its groups that want a device.
        let mut priorities: HashMap<usize, i32> = HashMap::new();
        for m in at.iter().flat_map(|at| &it.devices[*at].members).filter(|m| m.group.ready) {
            if let Some(number) = m.job.spanning.filter(|number| !out[*number]) {
                let priority = priorities.entry(number).or_insert(i32::MIN);
                *priority = m.group.priority.max(*priority);
            }
        }
        let mut order: Vec<(i32, usize)> =
            priorities.into_iter().map(|(number, priority)| (priority, number)).collect();
        order.sort_unstable();
        it.order = order.into_iter().map(|(_, number)| number).collect();
        it.order.iter().enumerate().for_each(|(place, number)| it.place[*number] = place);
        it.refused = vec![false; it.order.len()];
        it.lacks = vec![0; it.order.len()];
        it.served = Served::new(it.order.len());
        it
    }

    /// Refuses all jobs at once that want a device on which only groups of no job are to run: refusing some of them would serve none.
    /// Returns true for each such job, by number.
    fn shut_out(&mut self) -> Vec<bool> {
        let mut out = vec![false; self.jobs.jobs.len()];
        for device in self.at.iter().map(|at| &self.devices[*at]) {
            let runs_none =
                device.members.iter().zip(&device.decision.verdicts).all(|(m, v)| m.job.spanning.is_none() || !v.run);
            if runs_none {
                device
                    .members
                    .iter()
                    .filter(|m| m.wants())
                    .filter_map(|m| m.job.spanning)
                    .for_each(|job| out[job] = true);
            }
        }
        if out.contains(&true) {
            self.refuse_all(&out);
        }
        out
    }

    /// Refuses jobs, given by number. Devices on which one of them was to run decide again, once.
    fn refuse_all(&mut self, these: &[bool]) -> Vec<usize> {
        let mut decided = Vec::new();
        for &at in self.at {
            let device = &mut self.devices[at];
            let mut ran = false;
            for (m, verdict) in device.members.iter_mut().zip(&device.decision.verdicts) {
                if m.group.ready && m.job.spanning.is_some_and(|job| these[job]) {
                    m.job.refused = true;
                    ran |= verdict.run;
                }
            }
            if ran {
                self.cost += device.decide(self.now, Round::Refill);
                decided.push(at);
            }
        }
        decided
    }

    /// Updates the jobs that are not served on a device.
    fn note(&mut self, at: usize) {
        let lacking = self.served.lacking(&self.devices[at], &self.place);
        for &job in &lacking {
            self.lacks[job] += 1;
            if !self.refused[job] {
                self.unserved.insert(job);
            }
        }
        for job in self.lacking.insert(at, lacking).unwrap_or_default() {
            self.lacks[job] -= 1;
            if self.lacks[job] == 0 {
                self.unserved.remove(&job);
            }
        }
    }

    fn run(mut self) {
        if self.order.is_empty() {
            return;
        }
        self.at.iter().for_each(|at| self.note(*at));
        while let Some(&job) = self.unserved.first() {
            if self.cost > RECONCILE_COST {
                return self.give_way_together();
            }
            self.give_way(job);
        }
        // A job that gave way to another which had to give way itself may come back, if all others can stay.
        for job in (0..self.order.len()).rev().filter(|job| self.refused[*job]).collect::<Vec<_>>() {
            if self.cost > RECONCILE_COST {
                return;
            }
            self.come_back(job);
        }
    }

    /// Refuses one job. Devices on which it was to run decide again.
    fn give_way(&mut self, job: usize) {
        self.refused[job] = true;
        self.unserved.remove(&job);
        let (jobs, number) = (self.jobs, self.order[job]);
        for &at in jobs.jobs[number].groups.keys() {
            let device = &mut self.devices[at];
            let mut ran = false;
            for (m, verdict) in device.members.iter_mut().zip(&device.decision.verdicts) {
                if m.job.spanning == Some(number) && m.group.ready {
                    m.job.refused = true;
                    ran |= verdict.run;
                }
            }
            if ran {
                self.cost += device.decide(self.now, Round::Refill);
                self.note(at);
            }
        }
    }

    /// Refuses all jobs at once that are not served, and in the end all.
    fn give_way_together(&mut self) {
        for round in 0..TOGETHER_ROUNDS {
            if self.unserved.is_empty() {
                return;
            }
            let mut these = vec![false; self.jobs.jobs.len()];
            let all: Vec<usize> = match round + 1 < TOGETHER_ROUNDS {
                true => std::mem::take(&mut self.unserved).into_iter().collect(),
                false => (0..self.order.len()).collect(),
            };
            for job in all {
                (self.refused[job], these[self.order[job]]) = (true, true);
            }
            self.refuse_all(&these).into_iter().for_each(|at| self.note(at));
        }
    }

    /// Withdraws the refusal of a job if each device can serve it beside all that it serves by now. Most jobs for which that fails fail on
    /// their first device, so that the others do not decide again.
    fn come_back(&mut self, job: usize) {
        let (jobs, number) = (self.jobs, self.order[job]);
        let places = &jobs.jobs[number].groups;
        let mark = |devices: &mut [Device], refuse: bool| {
            let members = places.keys().copied().collect::<Vec<_>>();
            for at in members {
                let ours = devices[at].members.iter_mut().filter(|m| m.job.spanning == Some(number) && m.group.ready);
                ours.for_each(|m| m.job.refused = refuse);
            }
        };
        mark(self.devices, false);
        let mut before = Vec::new();
        for &at in places.keys() {
            let device = &mut self.devices[at];
            if !device.members.iter().any(|m| m.job.spanning == Some(number) && m.group.ready) {
                continue;
            }
            before.push((at, device.save()));
            self.cost += device.decide(self.now, Round::Refill);
            if !self.served.lacking(&self.devices[at], &self.place).is_empty() {
                mark(self.devices, true);
                return before.into_iter().for_each(|(at, decision)| self.devices[at].restore(decision));
            }
        }
    }
}

/// Number of rounds in which jobs that are not served give way together: in the last one all do.
const TOGETHER_ROUNDS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::DECISION_COST;
    use crate::{Action, Arbiter, Choice, Event, GroupId, GroupSpec, ProgramId};

    /// Cost of all decisions so far, in members.
    fn cost(arbiter: &Arbiter) -> usize {
        arbiter.devices.iter().map(|d| d.cost).sum()
    }

    fn cost_of(arbiter: &mut Arbiter, now: Micros, event: Event) -> usize {
        arbiter.devices.iter_mut().for_each(|d| d.cost = 0);
        arbiter.event(now, event, &mut Vec::new());
        cost(arbiter)
    }

    fn spec(id: u64, device: &str, job: &str) -> GroupSpec {
        GroupSpec { job: Some(job.to_owned()), ..GroupSpec::new(GroupId(id), ProgramId(id), device) }
    }

    fn arbiter() -> Arbiter {
        of("up")
    }

    fn of(policy: &str) -> Arbiter {
        Arbiter::new(Choice::named(policy).expect("it is listed"), 1)
    }

    /// Each job has all of its devices, or none.
    fn assert_together(arbiter: &Arbiter) {
        let mut jobs: HashMap<usize, BTreeMap<usize, bool>> = HashMap::new();
        for (at, device) in arbiter.devices.iter().enumerate() {
            for m in device.members.iter().filter(|m| m.group.ready && !m.watch.stalled) {
                *jobs.entry(m.job.number.expect("all have one")).or_default().entry(at).or_default() |= m.group.granted;
            }
        }
        for (job, devices) in jobs {
            let granted = devices.values().filter(|granted| **granted).count();
            assert!(granted == 0 || granted == devices.len(), "job {job}: {devices:?}");
        }
    }

    #[test]
    fn a_change_concerns_the_devices_that_jobs_connect_with_it_and_no_others() {
        let (mut arbiter, pairs) = (arbiter(), 100);
        for n in 0..pairs {
            for side in 0..2 {
                for member in 0..3 {
                    let id = 1 + n * 10 + side * 5 + member;
                    let spec = spec(id, &format!("gpu:{n}.{side}"), &format!("job {n}"));
                    let looked_at = cost_of(&mut arbiter, 0, Event::Add(spec));
                    assert!(looked_at <= 2 * (DECISION_COST + 3), "group {id}: {looked_at}");
                }
            }
        }
        let ready = cost_of(&mut arbiter, 10, Event::Ready(GroupId(1)));
        assert_eq!(ready, 2 * (DECISION_COST + 3), "the two devices of its job");
        assert_together(&arbiter);
        // Where the last group of a device goes, those that its job connected are decided, and no others.
        for member in 0..3 {
            assert!(cost_of(&mut arbiter, 20, Event::Remove(GroupId(1 + member))) <= 2 * (DECISION_COST + 3));
        }
        assert_eq!(arbiter.devices.len(), 2 * pairs as usize - 1);
        assert_eq!(arbiter.jobs.spanning, pairs as usize - 1);
        let last = cost_of(&mut arbiter, 30, Event::Ready(GroupId(1 + 99 * 10)));
        assert_eq!(last, 2 * (DECISION_COST + 3), "its device has another place by now");
        let alone = cost_of(&mut arbiter, 40, Event::Ready(GroupId(1 + 5)));
        assert_eq!(alone, DECISION_COST + 3, "its job has one device only by now");
    }

    #[test]
    fn jobs_leave_nothing_behind() {
        let mut arbiter = arbiter();
        for round in 0..3 {
            for n in 0..40 {
                let spec = spec(1 + round * 100 + n, &format!("gpu:{}", n % 7), &format!("job {round} {}", n % 5));
                arbiter.event(0, Event::Add(spec), &mut Vec::new());
            }
            assert_eq!(arbiter.jobs.spanning, 5);
            for n in (0..40).rev() {
                arbiter.event(0, Event::Remove(GroupId(1 + round * 100 + n)), &mut Vec::new());
            }
            assert!(arbiter.devices.is_empty() && arbiter.jobs.numbers.is_empty());
            assert_eq!((arbiter.jobs.spanning, arbiter.jobs.free.len(), arbiter.jobs.jobs.len()), (0, 5, 5));
        }
    }

    /// As many jobs as some users may have, each on as many devices as it may, all of which want all of them.
    fn crowd(arbiter: &mut Arbiter, jobs: u64, devices: u64, others: u64) -> usize {
        let mut id = 0;
        let mut add = |device: u64, job: String| {
            id += 1;
            let group =
                GroupSpec { job: Some(job), ..GroupSpec::new(GroupId(id), ProgramId(id), &format!("gpu:{device}")) };
            arbiter.take(0, Event::Add(group));
            arbiter.take(0, Event::Ready(GroupId(id)));
        };
        for job in 0..jobs {
            // Some devices are those of other jobs, too.
            (0..devices).for_each(|n| add((job * 5 + n * n * 3) % (devices * 4), format!("job {job}")));
        }
        for n in 0..others {
            add(n % (devices * 4), format!("alone {n}"));
        }
        id as usize
    }

    #[test]
    fn jobs_that_do_not_agree_give_way_in_a_bounded_piece_of_work() {
        let mut arbiter = arbiter();
        let members = crowd(&mut arbiter, 256, 30, 400);
        let mut actions: Vec<Action> = Vec::new();
        let mut most = 0;
        for round in 0..40 {
            let before = cost(&arbiter);
            arbiter.decide(round * 1_000, &mut actions);
            most = most.max(cost(&arbiter) - before);
            assert_together(&arbiter);
            arbiter.take(round * 1_000 + 500, Event::Idle(GroupId(1 + round * 7)));
        }
        let all = members + 120 * DECISION_COST;
        // One decision on each device, one without those shut out, and one in each round in which the rest give way.
        let bound = RECONCILE_COST + all * (2 + TOGETHER_ROUNDS) + 2_000;
        assert!(most > RECONCILE_COST, "{most}: there is too little to decide");
        assert!(most <= bound, "{most} of {bound}");
    }

    #[test]
    #[ignore = "a measurement; `cargo test --release -p xsched-policy --lib longest -- --ignored --nocapture`"]
    fn longest_decision_about_jobs() {
        let mixes = [(16, 16, 64), (64, 30, 0), (256, 30, 400)];
        for (policy, (jobs, devices, others)) in mixes.into_iter().flat_map(|mix| [("up", mix), ("hpf", mix)]) {
            let mut arbiter = of(policy);
            let members = crowd(&mut arbiter, jobs, devices, others);
            let (mut longest, mut most) = (std::time::Duration::ZERO, 0);
            for round in 0..200 {
                let (start, before) = (std::time::Instant::now(), cost(&arbiter));
                arbiter.decide(round * 1_000, &mut Vec::new());
                // A daemon decides about each group as it comes, not about all of them at once.
                if round > 2 {
                    longest = longest.max(start.elapsed());
                    most = most.max(cost(&arbiter) - before);
                }
                arbiter.take(round * 1_000 + 500, Event::Idle(GroupId(1 + round * 7 % members as u64)));
            }
            let ms = longest.as_secs_f64() * 1e3;
            println!("{policy}: {jobs} jobs, {members} groups: {most} looked at, {ms:.1} ms at most");
        }
    }
}
