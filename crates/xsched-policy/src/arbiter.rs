//! The arbiter: holds the groups of all devices and turns events into actions. For each device that an event concerns, the stages of a
//! decision ([`stages`]) say which groups may run.

mod device;
mod dormant;
mod events;
mod jobs;
mod member;
mod stages;
mod starvation;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use xsched_proto::device::DeviceState;
use xsched_proto::trace::Why;

use self::device::{Device, Settings};
pub use self::events::{Action, ClassRule, Drains, Event, GroupSpec, GroupStatus};
use self::jobs::Jobs;
use self::member::Member;
use self::stages::Round;
use self::stages::evenness::Count;
use crate::share::Node;
use crate::tuning::GUARD_US;
use crate::{Choice, GroupId, GroupView, Micros, PoolId, ProgramId, Question};

/// Scheduler of all devices: see [`Arbiter::event`].
pub struct Arbiter {
    /// Policy of devices that have none of their own.
    choice: Choice,
    /// Policies of single devices, by device key.
    chosen: BTreeMap<String, Choice>,
    seed: u64,
    guard_us: Option<Micros>,
    evenness: u32,
    devices: Vec<Device>,
    device_of: HashMap<GroupId, usize>,
    held: BTreeSet<ProgramId>,
    jobs: Jobs,
    classes: Vec<ClassRule>,
    /// Devices to decide again; kept to spare the allocation.
    dirty: Vec<usize>,
}

impl std::fmt::Debug for Arbiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arbiter")
            .field("policy", &self.choice.entry.name)
            .field("groups", &self.device_of.len())
            .finish()
    }
}

impl Arbiter {
    /// An arbiter without groups. `seed` is for policies that act at random.
    pub fn new(choice: Choice, seed: u64) -> Arbiter {
        Arbiter {
            choice,
            chosen: BTreeMap::new(),
            seed,
            guard_us: Some(GUARD_US),
            evenness: 100,
            devices: Vec::new(),
            device_of: HashMap::new(),
            held: BTreeSet::new(),
            jobs: Jobs::default(),
            classes: Vec::new(),
            dirty: Vec::new(),
        }
    }

    /// Sets the longest time, in µs, for which a group waits for a device that others have, whatever the policy says; then it gets one
    /// turn. None = no limit.
    pub fn set_guard(&mut self, guard_us: Option<Micros>) {
        self.guard_us = guard_us;
        for device in &mut self.devices {
            device.stages.guard.limit_us = guard_us;
        }
    }

    /// Sets the evenness of the groups of a pool ([`GroupView::pool`]), in percent: 100 = all make progress by their weights, 0 = as they
    /// come, e = none makes less progress for its weight than e % of what another one makes.
    pub fn set_evenness(&mut self, percent: u32) {
        self.evenness = percent;
        for device in &mut self.devices {
            device.stages.evenness.set(percent);
        }
    }

    /// True if [`Event::Counted`] is due for the groups that [`Arbiter::is_counted`] names.
    pub fn counts_due(&self, now: Micros) -> bool {
        self.devices.iter().any(|d| d.stages.evenness.counts_due(now))
    }

    /// True if the number of commands that a group completes matters.
    pub fn is_counted(&self, id: GroupId) -> bool {
        self.device_of.get(&id).is_some_and(|&at| self.devices[at].stages.evenness.is_counted(id))
    }

    /// Groups for which [`Event::Executes`] is due.
    pub fn drains_due(&self, now: Micros) -> impl Iterator<Item = GroupId> {
        self.devices.iter().flat_map(move |device| device.drains_due(now))
    }

    /// Takes in an event, decides, and appends the actions, in order, to `actions`.
    pub fn event(&mut self, now: Micros, event: Event, actions: &mut Vec<Action>) {
        self.take(now, event);
        self.decide(now, actions);
    }

    /// Takes in an event and leaves the decision to [`Arbiter::decide`]: many events that come together cost one decision. A decision costs
    /// as much as there are groups on the device that wanted something lately, whatever has changed.
    pub fn take(&mut self, now: Micros, event: Event) {
        match event {
            Event::Add(spec) => self.add(now, spec),
            Event::Remove(id) => self.remove(now, id),
            Event::Ready(id) => self.change(now, id, |m, now| m.ready(now)),
            Event::Idle(id) => self.change(now, id, |m, now| m.idle(now)),
            Event::Drained(id) => self.change(now, id, |m, now| m.drained(now)),
            Event::Progress(id) => self.progress(now, id),
            Event::Counted { group, completed, limited, longest_us, drained } => {
                if let Some(&at) = self.device_of.get(&group) {
                    self.devices[at].stages.evenness.count(
                        now,
                        group,
                        Count { completed, limited, longest_us, drained },
                    );
                }
            }
            Event::Stalled(id) if self.is_hindered(id) => {}
            Event::Stalled(id) => self.change(now, id, |m, _| m.watch.stalled |= m.group.granted && m.group.ready),
            Event::Hint { group, priority, hints } => {
                self.change(now, group, |m, _| {
                    m.own_priority = priority.unwrap_or(m.own_priority);
                    m.group.hints = hints.or(m.group.hints);
                });
                self.inherit(group);
            }
            Event::Nice(program, nice) => self.change_program(now, program, |g| g.nice = nice),
            Event::Active(program, active) => self.change_program(now, program, |g| g.active = active),
            // No decision before the group is idle: an allowance for the next burst is none for the rest of this one.
            Event::Burst { group, us } => {
                if let Some(m) = self.device_of.get(&group).and_then(|&at| self.devices[at].member_mut(group)) {
                    m.group.bursts += 1;
                    m.group.burst_us = us;
                }
            }
            Event::Inherit { group, priority } => {
                self.change(now, group, |m, _| m.lent = priority);
                self.inherit(group);
            }
            Event::TooLong(id) => self.change(now, id, |m, _| m.group.holds_up = true),
            Event::Drains(id, how) => self.change(now, id, |m, _| m.drain.how = how),
            Event::Executes(id, it_does) => self.change(now, id, |m, _| m.drain.executes = Some(it_does)),
            Event::Hold(program) => self.hold(program, true),
            Event::Release(program) => self.hold(program, false),
            Event::Answer { device, answer } => {
                if let Some(at) = self.devices.iter().position(|d| d.name == device) {
                    self.devices[at].stages.policy.policy.answer(now, &answer);
                    self.dirty.push(at);
                }
            }
            Event::Timer => {
                let due = |d: &Device| d.decision.next.is_some_and(|t| t <= now);
                self.dirty.extend((0..self.devices.len()).filter(|&d| due(&self.devices[d])));
            }
        }
    }

    /// Passes the state of a device on to its policy: see [`crate::Policy::observe`]. Not kept for a device without groups.
    pub fn observe(&mut self, now: Micros, device: &str, state: Option<&DeviceState>) {
        if let Some(device) = self.devices.iter_mut().find(|d| d.name == device) {
            device.observe(now, state);
        }
    }

    /// Questions of policies, by device. Each expects an [`Event::Answer`].
    pub fn questions(&mut self) -> Vec<(String, Question)> {
        let asked = |d: &mut Device| d.stages.policy.policy.question().map(|question| (d.name.clone(), question));
        self.devices.iter_mut().filter_map(asked).collect()
    }

    /// Time at which [`Event::Timer`] is due; none = never.
    pub fn next_timer(&self) -> Option<Micros> {
        self.devices.iter().filter_map(|d| d.decision.next).min()
    }

    /// Changes the policy of one device, or of all (and of those that come); no group is lost, all gates are decided again.
    pub fn set_policy(&mut self, now: Micros, device: Option<&str>, choice: Choice, actions: &mut Vec<Action>) {
        match device {
            Some(device) => {
                self.chosen.insert(device.to_owned(), choice);
            }
            None => {
                self.choice = choice;
                self.chosen.clear();
            }
        }
        for at in 0..self.devices.len() {
            let choice = self.policy_of(&self.devices[at].name).clone();
            if *self.devices[at].choice() != choice {
                self.devices[at].charge(now);
                self.devices[at].choose(choice);
                self.dirty.push(at);
            }
        }
        self.decide(now, actions);
    }

    /// Sets the rules for classes. Their ranges must not overlap.
    pub fn set_classes(&mut self, now: Micros, classes: Vec<ClassRule>, actions: &mut Vec<Action>) {
        self.classes = classes;
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.stages.guarantees.set(&self.classes);
            self.dirty.push(at);
        }
        self.decide(now, actions);
    }

    /// True if a program's part of a device is measured in time: there, work that waits at a gate on the device would count as having it.
    pub fn shares_time(&self, device: &str) -> bool {
        self.policy_of(device).entry.takes_turns || self.classes.iter().any(|c| c.guarantee_percent > 0)
    }

    /// The policy in force on devices that have none of their own.
    pub fn policy(&self) -> &Choice {
        &self.choice
    }

    /// The policy in force on a device.
    pub fn policy_of(&self, device: &str) -> &Choice {
        self.chosen.get(device).unwrap_or(&self.choice)
    }

    /// The devices that have a policy of their own.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Choice)> {
        self.chosen.iter().map(|(device, choice)| (device.as_str(), choice))
    }

    /// The policies in force somewhere: that of devices without one of their own, and the others.
    pub fn policies_in_force(&self) -> impl Iterator<Item = &Choice> {
        std::iter::once(&self.choice).chain(self.chosen.values())
    }

    /// State of one group. The device time that it used is up to `now`.
    pub fn status(&self, now: Micros, id: GroupId) -> Option<GroupStatus> {
        let device = &self.devices[*self.device_of.get(&id)?];
        let m = device.member(id)?;
        Some(GroupStatus {
            priority: m.group.priority,
            granted: m.group.granted,
            ready: m.group.ready,
            held: m.is_held(),
            used_us: m.group.used_us + if m.group.busy { device.uncharged(now) } else { 0.0 },
            suspensions: m.gate.closures,
            scrutinised: m.watch.stalled || m.group.granted && m.group.ready && device.any_waits(),
            interactive: device.stages.policy.policy.is_interactive(id),
            alone_us: device.stages.evenness.alone_us(id),
        })
    }

    /// Steps from the top of the shares of a group's device to its party, see [`crate::share`]; none = there is no such group.
    pub fn way(&self, id: GroupId) -> Option<Vec<Node>> {
        let device = &self.devices[*self.device_of.get(&id)?];
        Some(device.choice().way(&device.member(id)?.group))
    }

    /// Device time charged to each group by now, in µs, in no order.
    pub fn used_us(&self, now: Micros) -> impl Iterator<Item = (GroupId, f64)> {
        self.devices.iter().flat_map(move |device| {
            let uncharged = device.uncharged(now);
            device.all().map(move |m| (m.group.id, m.group.used_us + if m.group.busy { uncharged } else { 0.0 }))
        })
    }

    /// Reason for the state of a group's gate, as the last decision left it, and the index of the policy in force in
    /// [`crate::registry::POLICIES`].
    pub fn why(&self, id: GroupId) -> (Why, u8) {
        let Some(device) = self.device_of.get(&id).map(|&at| &self.devices[at]) else { return (Why::Unsaid, 0) };
        let is_it = |entry: &&crate::registry::Entry| std::ptr::eq(*entry, device.choice().entry);
        let policy = crate::registry::POLICIES.iter().position(is_it).unwrap_or(0);
        (device.why(id), policy as u8)
    }

    /// True if closed gates on the device of a group may yield. Policies of turns do not allow it, since turns are parts of a device's
    /// time, nor does a policy while company is too much for a target.
    pub fn lets_yield(&self, id: GroupId) -> bool {
        self.device_of
            .get(&id)
            .map(|&at| &self.devices[at])
            .is_some_and(|device| !device.choice().entry.takes_turns && device.stages.policy.policy.lets_yield())
    }

    /// True if the evenness stage holds a group, also one that would go on beside a more urgent one.
    pub fn holds_back(&self, id: GroupId) -> bool {
        self.device_of.get(&id).is_some_and(|&at| self.devices[at].member(id).is_some_and(|m| m.paced))
    }

    /// Takes in that the closed gate of a group yields, or would but for [`Arbiter::holds_back`]. `has_work` = the group has work on the
    /// device, and is charged for it; `gets_on` = it has completed something since the last call, so that the guard does not count it as
    /// waiting.
    pub fn beside(&mut self, now: Micros, id: GroupId, has_work: bool, gets_on: bool) {
        let Some(device) = self.device_of.get(&id).map(|&at| &mut self.devices[at]) else { return };
        if device.member(id).is_some_and(|m| m.group.busy != has_work) {
            device.charge(now);
        }
        let Some(m) = device.member_mut(id) else { return };
        m.group.busy = has_work;
        m.goes_on(now, gets_on);
    }

    /// Takes in that the closed gate of a group yields no more.
    pub fn beside_no_more(&mut self, id: GroupId) {
        if let Some(m) = self.device_of.get(&id).and_then(|&at| self.devices[at].member_mut(id)) {
            m.yields = false;
        }
    }

    /// Sets the server, not xsched's own, beside whose other groups a group runs; none = it runs beside no others.
    pub fn set_spatial(&mut self, now: Micros, id: GroupId, spatial: Option<PoolId>) {
        self.change(now, id, |m, _| m.group.spatial = spatial);
    }

    /// True if some gate is closed.
    pub fn any_closed(&self) -> bool {
        self.devices.iter().any(|d| d.all().any(|m| !m.group.granted))
    }

    /// Groups whose progress matters ([`GroupStatus::scrutinised`]).
    pub fn scrutinised(&self) -> impl Iterator<Item = GroupId> {
        self.devices.iter().flat_map(|d| {
            let waits = d.any_waits();
            let is = move |m: &&Member| m.watch.stalled || m.group.granted && m.group.ready && waits;
            d.members.iter().filter(is).map(|m| m.group.id)
        })
    }

    /// True if the progress of some group matters ([`GroupStatus::scrutinised`]).
    pub fn any_scrutinised(&self) -> bool {
        self.devices.iter().any(|d| d.any_waits() || d.members.iter().any(|m| m.watch.stalled))
    }

    fn add(&mut self, now: Micros, mut spec: GroupSpec) {
        if self.device_of.contains_key(&spec.id) {
            return;
        }
        let at = self.devices.iter().position(|d| d.name == spec.device).unwrap_or_else(|| {
            let choice = self.policy_of(&spec.device).clone();
            let settings = Settings {
                seed: self.seed,
                guard_us: self.guard_us,
                evenness_percent: self.evenness,
                classes: &self.classes,
            };
            let device = Device::new(spec.device.clone(), choice, now, &settings);
            self.devices.push(device);
            self.devices.len() - 1
        });
        let id = spec.id;
        let held = self.held.contains(&spec.program);
        self.devices[at].charge(now);
        let job = spec.job.take().map(|name| self.jobs.number(name));
        self.devices[at].insert(Member::new(now, spec, job, held));
        self.device_of.insert(id, at);
        self.dirty.push(at);
        if let Some(job) = job {
            self.jobs.came(job, at, &mut self.devices);
        }
        self.inherit(id);
    }

    fn remove(&mut self, now: Micros, id: GroupId) {
        let Some(at) = self.device_of.remove(&id) else { return };
        self.devices[at].charge(now);
        let gone = self.devices[at].remove(id);
        let program = gone.as_ref().map(|m| m.group.program);
        self.dirty.push(at);
        // The removed group may have kept its job from other devices, and that job others.
        if let Some(job) = gone.and_then(|m| m.job.number) {
            self.jobs.went(job, at, &mut self.devices, &mut self.dirty);
        }
        self.devices[at].wake_few();
        if self.devices[at].members.is_empty() && self.devices[at].dormant.is_empty() {
            self.devices.swap_remove(at);
            let last = self.devices.len();
            self.dirty.retain(|dirty| *dirty != at);
            if let Some(moved) = self.devices.get(at) {
                for m in moved.all() {
                    self.device_of.insert(m.group.id, at);
                }
                self.jobs.moved(last, moved, at);
                self.dirty.iter_mut().filter(|dirty| **dirty == last).for_each(|dirty| *dirty = at);
            }
            // A program that had groups there may not go before others elsewhere any more.
            let looks_across = |at: &usize| self.devices[*at].choice().entry.across_devices;
            self.dirty.extend((0..last).filter(looks_across));
        }
        let relative = self.devices.iter().flat_map(Device::all).find(|m| Some(m.group.program) == program);
        if let Some(relative) = relative.map(|m| m.group.id) {
            self.inherit(relative);
        }
    }

    fn change(&mut self, now: Micros, id: GroupId, change: impl FnOnce(&mut Member, Micros)) {
        let Some(&at) = self.device_of.get(&id) else { return };
        self.devices[at].charge(now);
        self.devices[at].wake(id);
        if let Some(member) = self.devices[at].member_mut(id) {
            change(member, now);
            self.dirty.push(at);
        }
    }

    fn change_program(&mut self, now: Micros, program: ProgramId, change: impl Fn(&mut GroupView)) {
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.charge(now);
            for m in device.all_mut().filter(|m| m.group.program == program) {
                change(&mut m.group);
                self.dirty.push(at);
            }
        }
    }

    fn is_hindered(&self, id: GroupId) -> bool {
        self.device_of.get(&id).is_some_and(|&at| self.devices[at].is_hindered(id))
    }

    fn progress(&mut self, now: Micros, id: GroupId) {
        let Some(&at) = self.device_of.get(&id) else { return };
        let Some(member) = self.devices[at].member_mut(id) else { return };
        member.watch.progress_at = now;
        if std::mem::take(&mut member.watch.stalled) {
            self.dirty.push(at);
        }
    }

    fn hold(&mut self, program: ProgramId, hold: bool) {
        if hold {
            self.held.insert(program)
        } else {
            self.held.remove(&program)
        };
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.wake_if(|m| m.group.program == program);
            for m in device.members.iter_mut().filter(|m| m.group.program == program && m.held != hold) {
                m.held = hold;
                self.dirty.push(at);
            }
        }
    }

    /// Computes the effective priorities of the program that `id` belongs to.
    fn inherit(&mut self, id: GroupId) {
        let Some(&at) = self.device_of.get(&id) else { return };
        let Some(program) = self.devices[at].member(id).map(|m| m.group.program) else { return };
        let of_program = self.devices.iter().flat_map(Device::all).filter(|m| m.group.program == program);
        let cap = of_program.map(|m| m.own_priority).max().unwrap_or(i32::MIN);
        for (at, device) in self.devices.iter_mut().enumerate() {
            for m in device.all_mut().filter(|m| m.group.program == program) {
                let effective = m.own_priority.max(m.lent.unwrap_or(i32::MIN).min(cap));
                if m.group.priority != effective {
                    m.group.priority = effective;
                    self.dirty.push(at);
                }
            }
        }
    }

    /// Decides for all devices that something changed on, and appends the actions, in order, to `actions`.
    pub fn decide(&mut self, now: Micros, actions: &mut Vec<Action>) {
        if self.dirty.is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        self.look_across(&mut dirty);
        // A change on one device may let a job go on on all of its own.
        self.jobs.connect(&self.devices, &mut dirty);
        for &at in &dirty {
            self.devices[at].decide(now, Round::All);
        }
        // The decision may have found groups without progress, which want the device no more.
        let decided = dirty.clone();
        self.look_across(&mut dirty);
        if dirty.len() > decided.len() {
            let mut again = dirty[decided.len()..].to_vec();
            again.sort_unstable();
            self.jobs.connect(&self.devices, &mut dirty);
            let is_due = |at: &&usize| again.binary_search(at).is_ok() || decided.binary_search(at).is_err();
            for &at in dirty.iter().filter(is_due) {
                self.devices[at].decide(now, Round::All);
            }
        }
        self.jobs.reconcile(now, &dirty, &mut self.devices);
        for &at in &dirty {
            self.devices[at].close(now, actions);
        }
        for &at in &dirty {
            self.devices[at].open(now, actions);
            self.devices[at].set_aside(now, actions);
        }
        dirty.clear();
        self.dirty = dirty;
    }

    /// Updates [`GroupView::wanted_elsewhere`] on devices whose policy looks across devices, and marks those that change as dirty.
    fn look_across(&mut self, dirty: &mut Vec<usize>) {
        if !self.devices.iter().any(|d| d.choice().entry.across_devices) {
            return;
        }
        let wants = |d: &Device| d.members.iter().filter(|m| m.wants()).map(|m| m.group.program).collect();
        let wanting: Vec<HashSet<ProgramId>> = self.devices.iter().map(wants).collect();
        for (at, device) in self.devices.iter_mut().enumerate().filter(|(_, d)| d.choice().entry.across_devices) {
            for m in &mut device.members {
                let mut others = wanting.iter().enumerate().filter(|(other, _)| *other != at);
                let elsewhere = others.any(|(_, programs)| programs.contains(&m.group.program));
                if std::mem::replace(&mut m.group.wanted_elsewhere, elsewhere) != elsewhere {
                    dirty.push(at);
                }
            }
        }
    }

    /// Groups of all devices with their device keys, for tests and tools.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &GroupView)> {
        self.devices.iter().flat_map(|d| d.all().map(|m| (d.name.as_str(), &m.group)))
    }
}
