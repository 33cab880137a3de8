//! Programs and groups come and go.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::{Drains, Event, GroupId, GroupSpec, PoolId, ProgramId};
use xsched_proto::class::is_priority;
use xsched_proto::segment::GROUPS;
use xsched_proto::wire::{DaemonMsg, Levels, Sharing};

use crate::group::Group;
use crate::hints::overlooked_line;
use crate::io::{Effect, NewGroup};
use crate::memory::Memory;
use crate::program::{Arrival, Program};
use crate::state::Engine;
use crate::tuning::{BOOKS_MAX, DEVICE_GROUPS_MAX, DEVICES_MAX, GROUPS_MAX};
use crate::user::has_place;
use crate::{Error, all_taken, bound_met, check_name};

impl<M: Memory> Engine<M> {
    /// A process attaches. A second one with the same number is ignored: the groups of the first one would belong to none.
    pub(crate) fn attach(&mut self, id: u64, arrival: Arrival<M>) {
        if self.programs.contains_key(&id) {
            return;
        }
        let mut program = Program::new(ProgramId(id), arrival, &self.settings);
        program.account = self.account_of(id, &program);
        self.programs.insert(id, Box::new(program));
    }

    /// A group of a program comes.
    ///
    /// # Errors
    /// The program breaks the protocol.
    pub(crate) fn add_group(&mut self, id: u64, new: NewGroup) -> Result<(), Error> {
        let state = new.state.clone();
        let group = self.new_group(id, new)?;
        if group.fixed.is_some_and(|p| !is_priority(p)) {
            return Err(Error::input("it asks for a priority out of range"));
        }
        if let Some(why) = self.too_much(&group) {
            // As without a daemon: the program runs unscheduled, and asks again later.
            self.emit(Effect::Refuse(id, why));
            return Ok(());
        }
        self.end_interrupts(id);
        let group_id = GroupId(self.next_id());
        let spatial = self.runs_beside(group.spatial());
        let active = self.programs.get(&id).is_some_and(|program| self.has_active_window(program));
        let Some(program) = self.programs.get_mut(&id) else { return Ok(()) };
        program.groups.push(group_id);
        let spec = GroupSpec {
            id: group_id,
            program: program.id,
            device: group.device.to_string(),
            priority: program.group_priority(&group),
            hints: program.group_hints(&group),
            nice: program.nice,
            active,
            lineage: Some(program.lineage.clone()),
            job: program.job.clone(),
            system: group.system,
            spatial,
            // All pools of a user are one to the shares.
            pool: group.seat.map(|_| PoolId(group.user.uid.into())),
        };
        group.words.budget_commands.store(program.threshold, Relaxed);
        group.words.batch_commands.store(program.batch, Relaxed);
        let (slot, device, words, pooled) = (group.slot, group.device.clone(), group.words.clone(), group.is_pooled());
        let (number, user) = (program.id, program.user);
        self.groups.insert(group_id, group);
        self.publish_level(group_id);
        self.gatekeeper.add(self.now_us(), spec, words);
        if pooled {
            self.gatekeeper.set_budget(group_id, self.settings.pool_budget_us);
        }
        self.keep_company(group_id);
        self.follow_newcomer(group_id);
        self.open_book(number, &device, user);
        self.emit(Effect::DevicesInUse);
        self.gatekeeper.observe(self.now_us(), &device, state.as_deref());
        self.act();
        // The group may have become ready while it had no name.
        self.read_words(id);
        self.act();
        self.tell_added(id, group_id, slot, &device);
        Ok(())
    }

    /// Tells a program of its new group: priority, policy, slice, and hints that the policy ignores.
    fn tell_added(&mut self, id: u64, group_id: GroupId, slot: u16, device: &Arc<str>) {
        let priority = self.arbiter().status(self.now_us(), group_id).map_or(0, |status| status.priority);
        let policy = self.arbiter().policy_of(device).entry.name.to_owned();
        if self.settings.has_details
            && let Some((group, program)) = self.groups.get(&group_id).zip(self.programs.get(&id))
        {
            let line = format!(
                "debug: g{} of process {}: {} through {}, {}, level {}, priority {priority}, policy {policy}",
                group_id.0,
                program.pid,
                group.device,
                group.platform.name(),
                group.levels,
                group.level
            );
            self.emit(Effect::Log(program.user.uid, line));
        }
        self.send(id, DaemonMsg::GroupAdded { slot, id: group_id.0, priority, policy });
        self.assign_timeslices(std::slice::from_ref(device));
        if let Some(text) = self.overlooked(id, device) {
            self.send(id, DaemonMsg::Note { text });
        }
    }

    /// A line on hints of a program that the policy of a device ignores, unless it was told before.
    fn overlooked(&mut self, id: u64, device: &str) -> Option<String> {
        let entry = self.arbiter().policy_of(device).entry;
        let program = self.programs.get_mut(&id)?;
        let mut hints = entry.overlooks(program.asked.given());
        hints.retain(|hint| !program.overlooked.contains(hint));
        program.note_overlooked(hints.iter().copied());
        overlooked_line(entry, &hints)
    }

    fn new_group(&self, id: u64, new: NewGroup) -> Result<Group<M::Words>, Error> {
        let slot = new.slot;
        if usize::from(slot) >= GROUPS {
            return Err(Error::input(format!("it adds a group in slot {slot} of {GROUPS}")));
        }
        if self.group_at(id, slot).is_some() {
            return Err(Error::input(format!("it adds a group in slot {slot}, which is taken")));
        }
        check_name(&new.device, "device key")?;
        let program = self.programs.get(&id).ok_or_else(|| Error::input("it is gone"))?;
        Ok(Group {
            program: program.id,
            user: program.user,
            words: program.memory.group(slot),
            slot,
            device: new.device.into(),
            platform: new.platform,
            levels: new.levels,
            sharing: new.sharing,
            seat: new.pool.filter(|_| new.sharing == Sharing::Pool),
            level: program.group_level(new.platform, new.levels),
            steps: new.steps,
            fixed: new.fixed,
            system: new.system,
            interrupted: false,
            too_long: false,
            drains: Drains::ByItself,
            completed: Vec::new(),
        })
    }

    /// The bound that keeps a user from a further group: every decision, also for others, would take longer.
    fn too_much(&self, group: &Group<M::Words>) -> Option<Error> {
        let user = group.user;
        let bounds = self.program_of(group)?.terms.bounds;
        let has = |n: usize, what: &str| Some(bound_met(user, n, what));
        let (books, devices) = self.books.of(user, &group.device);
        if devices >= bounds.devices {
            return has(devices, "devices with time that is not recorded yet");
        }
        if books >= bounds.books {
            return has(books, "programs with time that is not recorded yet");
        }
        let of_user = || self.groups.values().filter(|g| g.user == user);
        let (all, here) = (of_user().count(), of_user().filter(|g| g.device == group.device).count());
        if self.books.devices_beside(&group.device).is_some_and(|all| !has_place(user, devices, all, DEVICES_MAX)) {
            return Some(all_taken("devices with time that is not recorded yet"));
        }
        if !has_place(user, books, self.books.len(), BOOKS_MAX) {
            return Some(all_taken("programs with time that is not recorded yet"));
        }
        if !has_place(user, all, self.groups.len(), GROUPS_MAX) {
            return Some(all_taken("groups"));
        }
        let on_device = self.groups.values().filter(|g| g.device == group.device).count();
        if !has_place(user, here, on_device, DEVICE_GROUPS_MAX) {
            return Some(all_taken(&format!("groups on {}", group.device)));
        }
        if here >= bounds.device_groups {
            return has(here, &format!("groups on {}", group.device));
        }
        if all >= bounds.groups {
            return has(all, "groups");
        }
        let job_of = |g: &Group<M::Words>| self.program_of(g).and_then(|program| program.job.as_deref());
        let job = job_of(group)?;
        let own: BTreeSet<&str> = of_user().filter(|g| job_of(g) == Some(job)).map(|g| &*g.device).collect();
        // Only a job that comes to its second device is one more.
        if own.len() != 1 || own.contains(&*group.device) {
            return None;
        }
        let mut devices: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for g in of_user() {
            if let Some(job) = job_of(g) {
                devices.entry(job).or_default().insert(&g.device);
            }
        }
        let jobs = devices.values().filter(|devices| devices.len() > 1).count();
        if jobs >= bounds.jobs { has(jobs, "jobs on several devices") } else { None }
    }

    /// A level was lost, or the program chose another: the group continues at the highest one there is. Below level 3 nothing stays
    /// interrupted. That is told even to a program whose driver refused: a further request to interrupt may have been under way to it
    /// while it told of the refusal.
    ///
    /// # Errors
    /// The program has no such group.
    pub(crate) fn set_levels(&mut self, program: u64, slot: u16, levels: Levels) -> Result<(), Error> {
        let id = self
            .group_at(program, slot)
            .ok_or_else(|| Error::input("it tells the levels of a group that it does not have"))?;
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        let Some(program) = self.programs.get(&program) else { return Ok(()) };
        group.levels = levels;
        group.level = program.group_level(group.platform, levels);
        if group.interrupted && group.level != 3 {
            self.interrupt(id, false);
        }
        self.publish_level(id);
        Ok(())
    }

    /// A group of a program goes.
    ///
    /// # Errors
    /// The program has no such group.
    pub(crate) fn remove_group(&mut self, program: u64, slot: u16) -> Result<(), Error> {
        let id =
            self.group_at(program, slot).ok_or_else(|| Error::input("it removes a group that it does not have"))?;
        self.end_interrupts(program);
        self.cut_burst(id);
        self.remember_gone(id);
        if let Some(program) = self.programs.get_mut(&program) {
            program.groups.retain(|group| *group != id);
        }
        if let Some(group) = self.take_group(id) {
            self.gatekeeper.remove(self.now_us(), id);
            self.close_blank_book(group.program, &group.device);
            self.emit(Effect::DevicesInUse);
            self.act();
            self.assign_timeslices(&[group.device]);
        }
        Ok(())
    }

    /// Has a program continue what it was told to interrupt, before it gets another group or loses one: an interruption stops all that it has
    /// on the device, so that the other group could not run, and for a group that is gone nothing would end it.
    fn end_interrupts(&mut self, program: u64) {
        let groups = self.programs.get(&program).map_or_else(Vec::new, |program| program.groups.clone());
        for id in groups {
            if self.groups.get(&id).is_some_and(|group| group.interrupted) {
                self.interrupt(id, false);
            }
        }
    }

    fn take_group(&mut self, id: GroupId) -> Option<Group<M::Words>> {
        self.groups.remove(&id)
    }

    /// Removes all that a program had.
    pub(crate) fn detach(&mut self, id: u64, by_itself: bool) {
        let now_us = self.now_us();
        let Some(program) = self.programs.get(&id) else { return };
        let (number, user, off) = (program.id, program.user, program.is_off());
        for group_id in program.groups.clone() {
            self.cut_burst(group_id);
            self.remember_gone(group_id);
        }
        let Some(program) = self.programs.remove(&id) else { return };
        self.left_in_move(id, &program);
        self.log_refusals(id, &program);
        self.release_memory(id);
        self.begin_memory_work();
        let mut devices: BTreeSet<Arc<str>> = BTreeSet::new();
        for group_id in program.groups {
            let group = self.take_group(group_id);
            // An MPS server that has to wait for 150 ms until nothing of a client that is gone is executed ends the whole pool, and beside an
            // urgent program a pool advances very little in that time. A client that lives opens its own gates.
            if by_itself && group.as_ref().is_some_and(|group| group.sharing != Sharing::Time) {
                self.gatekeeper.remove_dead(now_us, group_id);
            } else {
                self.gatekeeper.remove(now_us, group_id);
            }
            devices.extend(group.map(|group| group.device));
        }
        for device in &devices {
            self.close_blank_book(number, device);
        }
        self.remove_queues(user, program.queues.values().map(|queue| queue.id));
        self.follow_ups.drop_sum(id);
        if self.pages.remove(id) {
            self.emit(Effect::PageGone(id));
        }
        if off {
            self.event(Event::Release(number));
        }
        self.emit(Effect::DevicesInUse);
        // One decision for all of them.
        self.act();
        self.assign_timeslices(&Vec::from_iter(devices));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Deref;

    use xsched_policy::{Choice, Level, Lineage};
    use xsched_proto::account::MemorySlot;
    use xsched_proto::class::Class;
    use xsched_proto::hint::Hints;
    use xsched_proto::segment::{GroupSlot, Heartbeat};
    use xsched_proto::wire::Platform;

    use super::*;
    use crate::io::{Input, Message};
    use crate::memory::{GroupWords, LaunchSum};
    use crate::program::Wishes;
    use crate::terms::{Bounds, Ceilings, Given, Settings, Terms};
    use crate::user::{Rank, User};

    #[derive(Clone)]
    struct Words(Arc<GroupSlot>);

    impl Deref for Words {
        type Target = GroupSlot;
        fn deref(&self) -> &GroupSlot {
            &self.0
        }
    }

    impl GroupWords for Words {
        fn completed(&self, _: &mut Vec<u32>) {}
        fn is_executing(&self, _: &[u32]) -> bool {
            false
        }
    }

    struct Fresh;

    impl Memory for Fresh {
        type Words = Words;
        type Account = Box<MemorySlot>;
        type Heartbeat = Box<Heartbeat>;
        fn group(&self, _: u16) -> Words {
            Words(Arc::default())
        }
        fn account(&self, _: u16) -> Box<MemorySlot> {
            Box::default()
        }
        fn announce(&self, _: u16) {}
        fn add_launches(&self, _: &mut LaunchSum, _: usize) -> bool {
            true
        }
    }

    const OTHER: u32 = 60_000;

    fn engine() -> Engine<Fresh> {
        let settings = Settings {
            policy: Choice::named("hpf").expect("a policy"),
            devices: BTreeMap::new(),
            class_hints: [Hints::default(); Class::ALL.len()],
            class_rules: Vec::new(),
            guard_us: None,
            evenness: 100,
            budget_us: 500,
            pool_max_class: Class::Normal,
            pool_timeslice_us: 120,
            pool_budget_us: 400,
            yields: true,
            has_details: false,
            memory: Default::default(),
        };
        let best_effort = std::array::from_fn(|_| 0.into());
        let heartbeat = Heartbeat { beat_ns: 0.into(), best_effort, clock_offset_ns: 0.into() };
        Engine::new(settings, Box::new(heartbeat), 1, false)
    }

    fn attach(engine: &mut Engine<Fresh>, id: u64, user: User) {
        let most = usize::MAX;
        let bounds = Bounds {
            connections: most,
            groups: most,
            device_groups: most,
            jobs: most,
            queues: most,
            descriptors: most,
            mapped_mib: most,
            devices: most,
            books: most,
        };
        let lineage = Lineage { user: Level { id: 1, weight: 100 }, cgroup: Vec::new(), namespace: None };
        let arrival = Arrival {
            pid: 1,
            user,
            exe: String::new(),
            name: String::new(),
            start: None,
            ancestors: Vec::new(),
            nice: 0,
            lineage,
            memory: Fresh,
            wishes: Wishes::default(),
            terms: Terms { given: Given::default(), ceilings: Ceilings::NONE, bounds, memory: Default::default() },
        };
        engine.handle(1, Input::Attached(id, Box::new(arrival)));
    }

    /// Adds a group. Returns the reason if it is refused.
    fn add(engine: &mut Engine<Fresh>, id: u64, slot: u16, device: &str) -> Option<String> {
        let group = NewGroup {
            slot,
            device: device.into(),
            platform: Platform::Sim,
            steps: 0,
            fixed: None,
            system: false,
            levels: Levels::ONE,
            sharing: Sharing::Time,
            pool: None,
            state: None,
        };
        engine.handle(2, Input::Message(id, Message::GroupAdd(group)));
        let effects: Vec<Effect> = std::iter::from_fn(|| engine.next_effect()).collect();
        effects.into_iter().find_map(|effect| match effect {
            Effect::Refuse(_, why) => Some(why.to_string()),
            _ => None,
        })
    }

    #[test]
    fn all_users_together_have_so_many_devices_and_books_and_root_finds_a_place_beyond() {
        let mut engine = engine();
        let (other, root) = (User::unknown(OTHER), User { uid: 0, rank: Rank::Root, within: 0 });
        attach(&mut engine, 1, other);
        attach(&mut engine, 2, root);
        for n in 0..DEVICES_MAX {
            engine.books.open(ProgramId(1_000 + n as u64), &format!("made-up:{n}").into(), User::unknown(7));
        }
        assert_eq!(add(&mut engine, 1, 0, "made-up:0"), None, "a device that is known");
        let why = add(&mut engine, 1, 1, "another").expect("one device more");
        assert!(why.contains("all users together have as many devices"), "{why}");
        engine.books.close(ProgramId(1_005), "made-up:5");
        assert_eq!(add(&mut engine, 1, 1, "another"), None, "the place of one that is recorded");
        assert_eq!(add(&mut engine, 2, 0, "yet another"), None, "root");
        for n in 0..BOOKS_MAX {
            engine.books.open(ProgramId(10_000 + n as u64), &format!("made-up:{}", n % 20).into(), User::unknown(8));
        }
        let why = add(&mut engine, 1, 2, "made-up:0").expect("one book more");
        assert!(why.contains("all users together have as many programs with time"), "{why}");
        assert_eq!(add(&mut engine, 2, 1, "made-up:0"), None, "root");
    }
}
