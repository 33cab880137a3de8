//! Inputs are taken here, one at a time, each with its time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use xsched_policy::{Choice, Event};

use crate::Error;
use crate::io::{Effect, Input, Message};
use crate::memory::Memory;
use crate::parts::wants::Want;
use crate::state::Engine;
use crate::terms::{Settings, Terms};
use crate::tuning::PIECE_STEPS;

impl<M: Memory> Engine<M> {
    /// Sets the time of questions that follow, in ns of the monotonic clock.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Takes an input at a time in ns of the monotonic clock: decides, and stores the gates that change, before it returns. Everything else
    /// that follows is an effect ([`Engine::next_effect`]).
    pub fn handle(&mut self, now_ns: u64, input: Input<M>) {
        self.now_ns = now_ns;
        self.take_input(input);
        self.hand_on_outcomes();
    }

    fn take_input(&mut self, input: Input<M>) {
        match input {
            Input::Attached(id, arrival) => self.attach(id, *arrival),
            Input::Restored { program, changes, held } => self.restore(program, changes, held),
            Input::Left { program, by_itself } => self.detach(program, by_itself),
            Input::Message(id, message) => {
                if let Err(why) = self.take_message(id, message) {
                    self.emit(Effect::Drop(id, why));
                }
            }
            Input::Words(id) => self.read_words(id),
            Input::Decide => self.act(),
            Input::Look(id) => self.look(id),
            Input::LookTime => self.name_programs_to_look_at(),
            Input::PolicyTime => {
                self.read_drains();
                self.event(Event::Timer);
                self.act();
            }
            Input::Beat => self.heartbeat.beat_ns.store(self.now_ns, Release),
            Input::MemoryTime => {
                self.look_at_memory();
                self.end_late_moves();
                self.take_idle_memory();
            }
            Input::MemoryWork => self.continue_memory_work(PIECE_STEPS),
            Input::Memory(device, at_ns, processes) => self.measure_memory(&device, at_ns, &processes),
            Input::Unmeasured(device) => self.answer_measured(&device, u64::MAX),
            Input::Device(device, state) => {
                self.gatekeeper.observe(self.now_us(), &device, state.as_deref());
                self.note_size(&device, state.and_then(|state| state.memory_total_bytes));
            }
            Input::Nice(values) => self.take_nice(values),
            Input::ActiveWindow { user, pid } => self.active_window(user, pid),
            Input::Policy(device, choice) => self.set_policy(device.as_deref(), choice),
            Input::Answer(device, answer) => {
                self.event(Event::Answer { device, answer });
                self.act();
            }
            Input::Configured { settings, policies, terms } => self.configure(*settings, policies, terms),
            Input::Change(order) => self.begin_change(*order),
            Input::Start(command, start) => self.continue_change(command, start),
            Input::Continue(command) => self.continue_change(command, None),
            Input::Record { command, user, pids } => self.record(command, user, pids),
            Input::RecordEnds(command) => self.end_record(command),
            Input::TimesliceUnsent { program, before_us } => self.timeslice_unsent(program, before_us),
            Input::PageFailed(program) => self.page_failed(program),
            Input::BookClosed(program, device) => self.book_closed(xsched_policy::ProgramId(program), &device),
        }
    }

    fn take_message(&mut self, id: u64, message: Message) -> Result<(), Error> {
        match message {
            Message::GroupAdd(group) => {
                let group = self.in_server_of_its_user(id, group);
                self.add_group(id, group)
            }
            Message::Levels { slot, levels } => self.set_levels(id, slot, levels),
            Message::GroupHint { slot, priority, hints } => self.group_hint(id, slot, priority, hints),
            Message::ProgramHint(hints) => self.program_hint(id, hints),
            Message::GroupRemove(slot) => self.remove_group(id, slot),
            Message::QueueAdd { slot, group } => {
                let refused = self.add_queue(id, slot, group)?;
                refused.into_iter().for_each(|why| self.emit(Effect::Refuse(id, why)));
                Ok(())
            }
            Message::QueueRemove(slot) => self.remove_queue(id, slot),
            Message::MemoryDevice { slot, device, capacity_bytes } => {
                self.add_memory(id, slot, &device, capacity_bytes)?;
                // A later daemon learns here that the program is frozen.
                self.follow_frozen(id, false);
                self.act();
                Ok(())
            }
            Message::MemoryAsk { slot, number, bytes, lacking, returns, part } => {
                self.ask_memory(id, Want { slot, number, bytes, lacking, returns, part, ..Want::default() })
            }
            Message::MemoryMeasure { slot, number } => self.ask_measure((id, slot), number),
            Message::MemoryRefused { slot, bytes, by_driver } => self.memory_refused((id, slot), bytes, by_driver),
            Message::MemoryLeaving { number } => {
                self.memory_leaving(id, number);
                Ok(())
            }
            Message::MemoryMoved { number, why } => {
                self.memory_moved(id, number, why);
                Ok(())
            }
        }
    }

    fn set_policy(&mut self, device: Option<&str>, choice: Choice) {
        self.gatekeeper.set_policy(self.now_us(), device, choice);
        self.publish_levels();
        self.act();
    }

    /// Puts another configuration in force, for programs that run too.
    fn configure(&mut self, settings: Settings, policies: Vec<(Option<String>, Choice)>, terms: Vec<(u64, Terms)>) {
        let now_us = self.now_us();
        self.settings = settings;
        for (device, choice) in policies {
            self.gatekeeper.set_policy(now_us, device.as_deref(), choice);
        }
        let Settings { class_rules, guard_us, evenness, budget_us, .. } = &self.settings;
        self.gatekeeper.reconfigure(now_us, class_rules.clone(), *guard_us, *evenness, *budget_us);
        for (program, terms) in terms {
            self.reconsider(program, terms);
        }
        self.reconsider_company();
        self.look_at_memory();
        self.follow_switch();
        self.publish_levels();
        self.act();
        let devices: BTreeSet<Arc<str>> = self.groups.values().map(|group| group.device.clone()).collect();
        self.assign_timeslices(&Vec::from_iter(devices));
    }

    /// The time at which a policy wants [`Input::PolicyTime`], in µs.
    pub fn next_policy_us(&self) -> Option<u64> {
        self.arbiter().next_timer()
    }
}
