//! Holds the groups of all devices and turns events into actions by asking a policy per device.

mod classes;
mod device;
mod dormant;
mod drain;
mod jobs;
mod shares;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

#[cfg(doc)]
use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::device::DeviceState;
use xsched_proto::hint::Hints;
use xsched_proto::trace::Why;

use self::device::{Device, Member};
use self::jobs::Jobs;
use crate::share::Node;
use crate::tuning::GUARD_US;
use crate::{Answer, Choice, Group, GroupId, Lineage, Micros, PoolId, ProgramId, Question};

/// What is known of a group when it comes to be.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSpec {
    /// Which; never used before.
    pub id: GroupId,
    /// Its process.
    pub program: ProgramId,
    /// Device key; groups with equal keys compete.
    pub device: String,
    /// Own priority, -255..=255, or [`PRIORITY_NEVER`].
    pub priority: i32,
    /// What was said for the policy.
    pub hints: Hints,
    /// Nice value of its process, -20..=19.
    pub nice: i32,
    /// Its process has the active window.
    pub active: bool,
    /// Where its program stands among users and cgroups; none = alone at the top.
    pub lineage: Option<Arc<Lineage>>,
    /// Groups with the same job are granted on all their devices together or on none.
    pub job: Option<String>,
    /// See [`Group::spatial`].
    pub spatial: Option<PoolId>,
    /// See [`Group::pool`].
    pub pool: Option<PoolId>,
    /// Of the system domain: while it wants the device, other groups of its process of the same priority wait.
    pub system: bool,
}

impl GroupSpec {
    /// A group of which nothing is known but who and where it is: every value at its default.
    pub fn new(id: GroupId, program: ProgramId, device: &str) -> GroupSpec {
        GroupSpec {
            id,
            program,
            device: device.to_owned(),
            priority: 0,
            hints: Hints::default(),
            nice: 0,
            active: false,
            lineage: None,
            job: None,
            spatial: None,
            pool: None,
            system: false,
        }
    }
}

/// What holds for all groups whose own priority lies in a range, whatever the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassRule {
    /// First and last priority of the range.
    pub lowest: i32,
    /// As above.
    pub highest: i32,
    /// As long as a turn by guarantee lasts, and as a group that is not preemptible keeps the device, in µs.
    pub quantum_us: u64,
    /// Taken off the device as soon as the policy says so; otherwise at the end of a quantum.
    pub preemptible: bool,
    /// At least this part of the device while it wants it; 0 = what the policy leaves.
    pub guarantee_percent: u32,
}

/// Something happened. Events about a group that is not known are ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A group came to be; idle until said otherwise.
    Add(GroupSpec),
    /// It is gone, and with it what it had on the device.
    Remove(GroupId),
    /// It wants the device.
    Ready(GroupId),
    /// It has nothing on the device and wants nothing.
    Idle(GroupId),
    /// Its gate is closed, it has nothing on the device any more, and still wants it.
    Drained(GroupId),
    /// Change what was said in its [`GroupSpec`]; absent values stay.
    Hint {
        /// Whom.
        group: GroupId,
        /// New own priority.
        priority: Option<i32>,
        /// New values.
        hints: Hints,
    },
    /// The nice value of a program's process is another one, -20..=19.
    Nice(ProgramId, i32),
    /// A program's process has the active window, or not any more.
    Active(ProgramId, bool),
    /// A group wanted the device for so long, in µs: from its first launch to its last completion. Told before [`Event::Idle`].
    Burst {
        /// Whose.
        group: GroupId,
        /// In µs.
        us: u64,
    },
    /// A group of the same program waits for this group and lends it a priority; none = takes it back.
    /// No group gets more than the highest own priority among the groups of its program.
    Inherit {
        /// Whom.
        group: GroupId,
        /// What.
        priority: Option<i32>,
    },
    /// An operator keeps a program off its devices,
    Hold(ProgramId),
    /// and lets it go on.
    Release(ProgramId),
    /// The group issued or completed something since the last look.
    Progress(GroupId),
    /// The group has the device, others wait for it, and it neither issued nor completed anything for a while.
    Stalled(GroupId),
    /// How many commands a group has completed so far, and how long its longest kind takes, in µs; 0 = not known. To be told of each
    /// group that [`Arbiter::is_counted`] names, before any other event, when [`Arbiter::counts_due`] says so. Nothing is decided.
    Counted {
        /// Whose.
        group: GroupId,
        /// Commands, from any beginning.
        completed: u64,
        /// Commands for which the device was what held it up, from any beginning and modulo 2^32.
        limited: u32,
        /// In µs.
        longest_us: u64,
        /// Nothing of it is on the device for sure, should its gate be closed.
        drained: bool,
    },
    /// Its commands are too long for others to run beside it: it is treated as if it did not.
    TooLong(GroupId),
    /// Whether what it has in flight when its gate closes is short, and gets on in short slices of the hardware while another has the
    /// device.
    DrainsInSlices(GroupId, bool),
    /// Whether the device executes something of it, though its gate is closed. To be told of each group that
    /// [`Arbiter::drains_due`] names, before [`Event::Timer`].
    Executes(GroupId, bool),
    /// The answer from outside to a policy's question.
    Answer {
        /// Device key.
        device: String,
        /// What is answered.
        answer: Answer,
    },
    /// The time told by [`Arbiter::next_timer`] has come.
    Timer,
}

/// What the caller has to do. Each comes only on a change; a new group starts closed, unbounded, unwatched, not alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open its gate.
    Open(GroupId),
    /// Close its gate.
    Close(GroupId),
    /// Bound its device time in flight to this part (1/n) of what the device may have in flight at a time; 0 = no bound.
    Bound(GroupId, u32),
    /// Another group is registered on the same device, or not.
    Contended(GroupId, bool),
    /// It is taken for idle because it shows no progress, though it never said that it is idle: its next launch must
    /// say so at once ([`Event::Progress`]), or it would be found out at the next look only. Or not any more.
    Stalled(GroupId, bool),
    /// Watched, and no other group has work on the device; or not.
    Exclusive(GroupId, bool),
}

/// What an observer may know of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupStatus {
    /// Effective priority.
    pub priority: i32,
    /// Its gate is open.
    pub granted: bool,
    /// It wants the device.
    pub ready: bool,
    /// An operator holds it, or its own priority is [`PRIORITY_NEVER`].
    pub held: bool,
    /// Device time charged to it, in µs.
    pub used_us: f64,
    /// Times its gate was closed.
    pub suspensions: u64,
    /// Others wait for the device it has: its progress is of interest (see [`Event::Progress`], [`Event::Stalled`]).
    pub scrutinised: bool,
    /// True where the policy lets it go before others of its priority because it pauses.
    pub interactive: bool,
    /// What a command takes while the group is alone in its pool, in µs; none = not known, or not looked at.
    pub alone_us: Option<f64>,
}

/// The arbiter.
pub struct Arbiter {
    /// Of devices that have none of their own.
    choice: Choice,
    /// By device key.
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

    /// How long a group may wait for a device that others have, whatever the policy says, in µs; then it gets one turn. None = for
    /// ever.
    pub fn set_guard(&mut self, guard_us: Option<Micros>) {
        self.guard_us = guard_us;
        for device in &mut self.devices {
            device.guard_us = guard_us;
        }
    }

    /// How evenly the groups of a pool get on ([`Group::pool`]), in %: 100 = all make progress by their weights, 0 = as they come,
    /// e = none makes less progress for its weight than e % of what another one makes.
    pub fn set_evenness(&mut self, percent: u32) {
        self.evenness = percent;
        for device in &mut self.devices {
            device.shares.set(percent);
        }
    }

    /// Whether the groups that [`Arbiter::is_counted`] names are to be counted now, by [`Event::Counted`].
    pub fn counts_due(&self, now: Micros) -> bool {
        self.devices.iter().any(|d| d.shares.counts_due(now))
    }

    /// Whether it matters how many commands a group completes.
    pub fn is_counted(&self, id: GroupId) -> bool {
        self.device_of.get(&id).is_some_and(|&at| self.devices[at].shares.is_counted(id))
    }

    /// The groups of which it matters now whether the device still executes something of them: [`Event::Executes`].
    pub fn drains_due(&self, now: Micros) -> impl Iterator<Item = GroupId> {
        let due = self.devices.iter().filter(move |d| d.drains_at.is_some_and(|at| at <= now));
        due.flat_map(move |d| d.members.iter().filter(move |m| drain::is_due(m, now)).map(|m| m.group.id))
    }

    /// Takes in an event and appends what has to be done, in this order, to `actions`.
    pub fn event(&mut self, now: Micros, event: Event, actions: &mut Vec<Action>) {
        self.take(now, event);
        self.decide(now, actions);
    }

    /// Takes in an event and leaves the decision to [`Arbiter::decide`]: of many that come together, only the state that they
    /// end in is decided. One decision costs as much as there are groups on the device that wanted something lately, whatever has
    /// changed.
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
                    self.devices[at].shares.count(
                        now,
                        group,
                        shares::Count { completed, limited, longest_us, drained },
                    );
                }
            }
            Event::Stalled(id) if self.is_hindered(id) => {}
            Event::Stalled(id) => self.change(now, id, |m, _| m.stalled |= m.group.granted && m.group.ready),
            Event::Hint { group, priority, hints } => {
                self.change(now, group, |m, _| {
                    m.own_priority = priority.unwrap_or(m.own_priority);
                    m.group.hints = hints.or(m.group.hints);
                });
                self.inherit(group);
            }
            Event::Nice(program, nice) => self.change_program(now, program, |g| g.nice = nice),
            Event::Active(program, active) => self.change_program(now, program, |g| g.active = active),
            // Nothing to decide before the group is idle: what a policy allows the next burst is not for the rest of this one.
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
            Event::DrainsInSlices(id, it_does) => self.change(now, id, |m, _| m.drains_in_slices = it_does),
            Event::Executes(id, it_does) => self.change(now, id, |m, _| m.drain.executes = Some(it_does)),
            Event::Hold(program) => self.hold(program, true),
            Event::Release(program) => self.hold(program, false),
            Event::Answer { device, answer } => {
                if let Some(at) = self.devices.iter().position(|d| d.name == device) {
                    self.devices[at].policy.answer(now, &answer);
                    self.dirty.push(at);
                }
            }
            Event::Timer => {
                let due = |d: &Device| d.next.is_some_and(|t| t <= now);
                self.dirty.extend((0..self.devices.len()).filter(|&d| due(&self.devices[d])));
            }
        }
    }

    /// The state of a device, for its policy: see [`crate::Policy::observe`]. Not kept for a device without groups.
    pub fn observe(&mut self, now: Micros, device: &str, state: Option<&DeviceState>) {
        if let Some(device) = self.devices.iter_mut().find(|d| d.name == device) {
            device.observe(now, state);
        }
    }

    /// What policies ask, by device; to be answered by [`Event::Answer`].
    pub fn questions(&mut self) -> Vec<(String, Question)> {
        let asked = |d: &mut Device| d.policy.question().map(|question| (d.name.clone(), question));
        self.devices.iter_mut().filter_map(asked).collect()
    }

    /// When [`Event::Timer`] is due.
    pub fn next_timer(&self) -> Option<Micros> {
        self.devices.iter().filter_map(|d| d.next).min()
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
            if self.devices[at].choice != choice {
                self.devices[at].charge(now);
                self.devices[at].choose(choice, self.seed);
                self.dirty.push(at);
            }
        }
        self.decide(now, actions);
    }

    /// What holds for classes from now on. The ranges must not overlap.
    pub fn set_classes(&mut self, now: Micros, classes: Vec<ClassRule>, actions: &mut Vec<Action>) {
        self.classes = classes;
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.fairness.set(&self.classes);
            self.dirty.push(at);
        }
        self.decide(now, actions);
    }

    /// Whether a program's part of a device is measured in time: what waits at a gate on the device would count as having it.
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

    /// A look at one group; what it used is told up to `now`.
    pub fn status(&self, now: Micros, id: GroupId) -> Option<GroupStatus> {
        let device = &self.devices[*self.device_of.get(&id)?];
        let m = device.member(id)?;
        Some(GroupStatus {
            priority: m.group.priority,
            granted: m.group.granted,
            ready: m.group.ready,
            held: m.is_held(),
            used_us: m.group.used_us + if m.group.busy { device.uncharged(now) } else { 0.0 },
            suspensions: m.suspensions,
            scrutinised: m.stalled || m.group.granted && m.group.ready && device.somebody_waits(),
            interactive: device.policy.is_interactive(id),
            alone_us: device.shares.alone_us(id),
        })
    }

    /// Steps from the top of the shares of a group's device to its party, see [`crate::share`]; none = there is no such group.
    pub fn way(&self, id: GroupId) -> Option<Vec<Node>> {
        let device = &self.devices[*self.device_of.get(&id)?];
        Some(device.choice.way(&device.member(id)?.group))
    }

    /// What is charged to each group by now, in µs, in no order.
    pub fn used_us(&self, now: Micros) -> impl Iterator<Item = (GroupId, f64)> {
        self.devices.iter().flat_map(move |device| {
            let uncharged = device.uncharged(now);
            device.all().map(move |m| (m.group.id, m.group.used_us + if m.group.busy { uncharged } else { 0.0 }))
        })
    }

    /// Why a group's gate is as the last decision left it, and the place of the policy in force in [`crate::registry::POLICIES`].
    pub fn why(&self, id: GroupId) -> (Why, u8) {
        let Some(device) = self.device_of.get(&id).map(|&at| &self.devices[at]) else { return (Why::Unsaid, 0) };
        let is_it = |entry: &&crate::registry::Entry| std::ptr::eq(*entry, device.choice.entry);
        let policy = crate::registry::POLICIES.iter().position(is_it).unwrap_or(0);
        (device.why(id), policy as u8)
    }

    /// True if the policy has nothing against closed gates on the device of a group that yield: not one of turns, which are parts of a
    /// device's time, nor one that finds company too much for a target.
    pub fn lets_yield(&self, id: GroupId) -> bool {
        self.device_of
            .get(&id)
            .map(|&at| &self.devices[at])
            .is_some_and(|device| !device.choice.entry.takes_turns && device.policy.lets_yield())
    }

    /// A group is held so that others of its pool get on evenly, beside a more urgent one too.
    pub fn holds_back(&self, id: GroupId) -> bool {
        self.device_of.get(&id).is_some_and(|&at| self.devices[at].shares.holds(id))
    }

    /// A group goes on though its gate is closed, since it yields, or would but for [`Arbiter::holds_back`]. `has_work` = it has something to do there, and is charged for it;
    /// `gets_on` = it has completed something since the last time, so that it does not wait for the guard.
    pub fn beside(&mut self, now: Micros, id: GroupId, has_work: bool, gets_on: bool) {
        let Some(device) = self.device_of.get(&id).map(|&at| &mut self.devices[at]) else { return };
        if device.member(id).is_some_and(|m| m.group.busy != has_work) {
            device.charge(now);
        }
        let Some(m) = device.member_mut(id) else { return };
        m.group.busy = has_work;
        m.goes_on(now, gets_on);
    }

    /// A group does not go on so any more.
    pub fn beside_no_more(&mut self, id: GroupId) {
        if let Some(m) = self.device_of.get(&id).and_then(|&at| self.devices[at].member_mut(id)) {
            m.yields = false;
        }
    }

    /// From now on a group runs beside all others of a server that is not xsched's, or beside none.
    pub fn set_spatial(&mut self, now: Micros, id: GroupId, spatial: Option<PoolId>) {
        self.change(now, id, |m, _| m.group.spatial = spatial);
    }

    /// Whether some gate is closed.
    pub fn any_closed(&self) -> bool {
        self.devices.iter().any(|d| d.all().any(|m| !m.group.granted))
    }

    /// The groups whose progress is of interest ([`GroupStatus::scrutinised`]).
    pub fn scrutinised(&self) -> impl Iterator<Item = GroupId> {
        self.devices.iter().flat_map(|d| {
            let waits = d.somebody_waits();
            let is = move |m: &&Member| m.stalled || m.group.granted && m.group.ready && waits;
            d.members.iter().filter(is).map(|m| m.group.id)
        })
    }

    /// Whether the progress of some group is of interest ([`GroupStatus::scrutinised`]).
    pub fn any_scrutinised(&self) -> bool {
        self.devices.iter().any(|d| d.somebody_waits() || d.members.iter().any(|m| m.stalled))
    }

    fn add(&mut self, now: Micros, mut spec: GroupSpec) {
        if self.device_of.contains_key(&spec.id) {
            return;
        }
        let at = self.devices.iter().position(|d| d.name == spec.device).unwrap_or_else(|| {
            let choice = self.policy_of(&spec.device).clone();
            let mut device = Device::new(spec.device.clone(), choice, self.seed, now, self.evenness);
            device.fairness.set(&self.classes);
            device.guard_us = self.guard_us;
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
        // The group that is gone may have kept its job from other devices, and that job others.
        if let Some(job) = gone.and_then(|m| m.job) {
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
            // It may have been the one on which a program goes before others.
            let looks_across = |at: &usize| self.devices[*at].choice.entry.across_devices;
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

    fn change_program(&mut self, now: Micros, program: ProgramId, change: impl Fn(&mut Group)) {
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
        member.progress_at = now;
        if std::mem::take(&mut member.stalled) {
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

    /// Decides for all devices that something changed on, and appends what has to be done, in this order, to `actions`.
    pub fn decide(&mut self, now: Micros, actions: &mut Vec<Action>) {
        if self.dirty.is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        self.look_across(&mut dirty);
        // A change on one device may let a job go on on all of its own.
        self.jobs.connect(&self.devices, &mut dirty);
        for &at in &dirty {
            self.devices[at].decide(now);
        }
        // A group found to get nowhere wants the device no more.
        let decided = dirty.clone();
        self.look_across(&mut dirty);
        if dirty.len() > decided.len() {
            let mut again = dirty[decided.len()..].to_vec();
            again.sort_unstable();
            self.jobs.connect(&self.devices, &mut dirty);
            let is_due = |at: &&usize| again.binary_search(at).is_ok() || decided.binary_search(at).is_err();
            for &at in dirty.iter().filter(is_due) {
                self.devices[at].decide(now);
            }
        }
        self.jobs.reconcile(now, &dirty, &mut self.devices, self.seed);
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

    /// Tells groups on devices whose policy looks across devices whether their programs want another one, and decides for those
    /// devices, too.
    fn look_across(&mut self, dirty: &mut Vec<usize>) {
        if !self.devices.iter().any(|d| d.choice.entry.across_devices) {
            return;
        }
        let wants = |d: &Device| d.members.iter().filter(|m| m.wants()).map(|m| m.group.program).collect();
        let wanting: Vec<HashSet<ProgramId>> = self.devices.iter().map(wants).collect();
        for (at, device) in self.devices.iter_mut().enumerate().filter(|(_, d)| d.choice.entry.across_devices) {
            for m in &mut device.members {
                let mut others = wanting.iter().enumerate().filter(|(other, _)| *other != at);
                let elsewhere = others.any(|(_, programs)| programs.contains(&m.group.program));
                if std::mem::replace(&mut m.group.wanted_elsewhere, elsewhere) != elsewhere {
                    dirty.push(at);
                }
            }
        }
    }

    /// The groups of all devices as the policy would see them, for tests and tools.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.devices.iter().flat_map(|d| d.all().map(|m| (d.name.as_str(), &m.group)))
    }
}
