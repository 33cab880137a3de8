//! Memory of this process on its devices: the slot of each device, and questions to the daemon for more of it.

use core::sync::atomic::Ordering::*;

use xsched_flow::tuning::{
    ATTACH_NS, MEMORY_ANSWER_NS, MEMORY_LATE_NS, MEMORY_MEASURE_NS, MEMORY_NEW_NS, MEMORY_REFUSED_NS,
    MEMORY_ROOM_LOOK_NS, MEMORY_ROOM_NS,
};
use xsched_proto::account::{Amount, MEMORY_SLOTS, MemorySlot, UNLIMITED};
use xsched_proto::wire::ClientMsg;

use crate::clock::now_ns;
use crate::memory_questions::{MemoryAnswer, Question, Room, daemon};
use crate::runtime::Runtime;

impl Runtime {
    /// Counts memory against this limit where no daemon sets one.
    #[must_use]
    pub fn with_memory_limit(mut self, limit: Option<Amount>) -> Runtime {
        self.memory.limit = limit;
        self
    }

    /// Slot of a device with this much memory. At its first use this waits a moment for the daemon's limits. `None`: too many devices.
    pub fn memory_device(&self, device: &str, capacity_bytes: u64) -> Option<u16> {
        let (slot, is_new) = self.add_memory_device(device, capacity_bytes, |slot| {
            let own = self.memory.own_allowance(capacity_bytes);
            slot.limit_bytes.store(if own == UNLIMITED { 0 } else { own }, Relaxed);
            slot.allowance_bytes.store(own, SeqCst);
        })?;
        if is_new && self.port.ring_agent() {
            let memory = &self.memory;
            memory.wait_until(ATTACH_NS, || memory.daemon.load(Acquire) == daemon::NONE || memory.is_known(slot));
        }
        Some(slot)
    }

    /// Reports whether a daemon sets the limits of memory.
    pub fn has_memory_daemon(&self) -> bool {
        self.memory.has_daemon()
    }

    /// Slots of devices whose memory is counted.
    pub fn memory_slots(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.memory_capacities().len() as u16
    }

    /// Words of a slot. A slot that no device has allows nothing.
    pub fn memory(&self, slot: u16) -> &MemorySlot {
        &self.segment.memory[usize::from(slot) % MEMORY_SLOTS]
    }

    /// Asks the daemon for room for an allocation of this size, which the allowance or the memory kept free for others does not leave. It
    /// may take memory back that other processes of the program do not use, and have memory of less urgent ones leave the device. Returns
    /// at once without a daemon, and soon with a silent one.
    pub fn ask_memory(&self, slot: u16, bytes: u64) -> MemoryAnswer {
        self.ask_room(slot, bytes, Room::default(), || false)
    }

    /// Asks for room as [`Runtime::ask_memory`] does. Gives the wait up once `stop` returns true.
    pub fn ask_room(&self, slot: u16, bytes: u64, room: Room, stop: impl Fn() -> bool) -> MemoryAnswer {
        let memory = &self.memory;
        let by_words = || MemoryAnswer {
            granted: self.memory(slot).beyond(bytes) == 0 && room.lacking == 0,
            ..MemoryAnswer::default()
        };
        if !self.memory_is_arbitrated() {
            return by_words();
        }
        let number = self.next_question();
        let Room { lacking, returns, part } = room;
        self.send(ClientMsg::MemoryAsk { slot, number, bytes, lacking, returns, part });
        if !self.port.ring_agent() {
            memory.questions().remove(&number);
            return by_words();
        }
        let gone = || !memory.has_daemon();
        let stage = || memory.questions().get(&number).cloned();
        memory.wait_until(MEMORY_ANSWER_NS, || stage() != Some(Question::Asked) || gone());
        let until = now_ns() + MEMORY_ROOM_NS;
        while stage() == Some(Question::Waits) && !gone() && !self.port.is_over() && !stop() && now_ns() < until {
            memory.wait_until(MEMORY_ROOM_LOOK_NS, || stage() != Some(Question::Waits) || gone());
        }
        match memory.questions().remove(&number) {
            Some(Question::Answered(answer)) => answer,
            Some(Question::Waits) if !gone() => {
                // The daemon is to make no more room for it.
                self.memory_moved(slot, 0, None);
                MemoryAnswer::default()
            }
            _ => by_words(),
        }
    }

    /// Has the words of a slot rest on the driver's figure of this process as it is now, or was a moment ago. Returns true if they do: not
    /// without a daemon, nor where it knows no driver.
    pub fn measure_memory(&self, slot: u16) -> bool {
        let memory = &self.memory;
        let Some(from_ns) = memory.measure_from_ns.get(usize::from(slot)) else { return false };
        if !self.memory_is_arbitrated() || !memory.is_known(slot) || now_ns() < from_ns.load(Relaxed) {
            return false;
        }
        let number = self.next_question();
        self.send(ClientMsg::MemoryMeasure { slot, number });
        let is_open = || memory.questions().get(&number) == Some(&Question::Asked);
        if self.port.ring_agent() {
            memory.wait_until(MEMORY_MEASURE_NS, || !is_open() || !memory.has_daemon());
        }
        let is_answered = matches!(memory.questions().remove(&number), Some(Question::Answered(_)));
        from_ns.store(now_ns() + if is_answered { MEMORY_NEW_NS } else { MEMORY_LATE_NS }, Relaxed);
        is_answered
    }

    /// Tells the daemon of an allocation that fails for want of memory, though not of each one.
    pub fn memory_refused(&self, slot: u16, bytes: u64, by_driver: bool) {
        let (memory, now_ns) = (&self.memory, now_ns());
        let due = |from_ns: u64| (from_ns <= now_ns).then_some(now_ns + MEMORY_REFUSED_NS);
        if self.memory_is_arbitrated()
            && memory.is_known(slot)
            && memory.refused_from_ns.fetch_update(Relaxed, Relaxed, due).is_ok()
        {
            self.send(ClientMsg::MemoryRefused { slot, bytes, by_driver });
            let _ = self.port.ring_agent();
        }
    }

    fn next_question(&self) -> u32 {
        let number = self.memory.asked.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        self.memory.questions().insert(number, Question::Asked);
        number
    }

    /// Agent: the daemon makes room for a question.
    pub fn memory_waits(&self, number: u32) {
        if let Some(question) = self.memory.questions().get_mut(&number) {
            *question = Question::Waits;
        }
        self.memory.changed();
    }

    /// Agent: the daemon has answered a question for memory, or, with number 0, knows a device.
    pub fn memory_answered(&self, slot: u16, number: u32, answer: MemoryAnswer) {
        let memory = &self.memory;
        if number == 0 {
            memory.known.fetch_or(1u32.checked_shl(slot.into()).unwrap_or(0), AcqRel);
        } else if let Some(place) = memory.questions().get_mut(&number) {
            *place = Question::Answered(answer);
        }
        memory.changed();
    }

    /// True: a daemon decides where this process's memory is.
    pub fn memory_is_arbitrated(&self) -> bool {
        self.memory.has_daemon() && !self.port.is_over()
    }

    /// Tells the daemon that the first piece of memory has left by the order of this number.
    pub fn memory_leaving(&self, number: u32) {
        if self.memory_is_arbitrated() {
            self.send(ClientMsg::MemoryLeaving { number });
            let _ = self.port.ring_agent();
        }
    }

    /// Tells the daemon that memory has moved, or the reason why it has not. `number` is that of the order; 0 = there was none.
    pub fn memory_moved(&self, slot: u16, number: u32, why: Option<String>) {
        if self.memory_is_arbitrated() {
            self.send(ClientMsg::MemoryMoved { slot, number, why });
            let _ = self.port.ring_agent();
        }
    }

    /// Agent: a daemon sets the limits of memory from now on.
    pub(crate) fn attach_memory(&self) {
        self.memory.known.store(0, Release);
        self.memory.measure_from_ns.iter().for_each(|from_ns| from_ns.store(0, Relaxed));
        self.memory.daemon.store(daemon::ATTACHED, Release);
        self.memory.changed();
    }

    /// No daemon sets limits of memory any more: the limit that the program was started with holds for this process.
    pub(crate) fn detach_memory(&self) {
        self.memory.daemon.store(daemon::NONE, Release);
        for (slot, capacity_bytes) in self.memory_capacities() {
            let words = self.memory(slot);
            words.keep_free_bytes.store(0, Relaxed);
            words.allowance_bytes.store(self.memory.own_allowance(capacity_bytes), SeqCst);
        }
        self.memory.changed();
    }
}

#[cfg(test)]
mod tests {
    use xsched_proto::wire::ClientMsg;

    use super::*;
    use crate::nothing::runtime_with_limit;

    const GIB: u64 = 1 << 30;

    #[test]
    fn without_a_daemon_the_limit_that_the_program_was_started_with_holds() {
        let rt = runtime_with_limit(Some(Amount::PerMille(250)));
        rt.detach();
        let slot = rt.memory_device("sim:0", 80 * GIB).expect("a slot");
        assert_eq!(rt.memory_device("sim:0", 80 * GIB), Some(slot), "the same device");
        let words = rt.memory(slot);
        assert_eq!(
            (words.allowance_bytes.load(SeqCst), words.seen(70 * GIB, 80 * GIB)),
            (20 * GIB, (20 * GIB, 20 * GIB))
        );
        assert!(words.take(20 * GIB) && !words.take(1));
        assert_eq!(rt.ask_memory(slot, 1), MemoryAnswer::default());
        let free = rt.memory_device("sim:1", GIB).expect("a slot");
        assert_ne!(slot, free);
        assert!((2..MEMORY_SLOTS).all(|n| rt.memory_device(&format!("sim:{n}"), GIB).is_some()));
        assert_eq!(rt.memory_device("sim:99", GIB), None);
    }

    #[test]
    fn a_question_is_answered_by_the_daemon_or_ends_with_it() {
        let rt = runtime_with_limit(None);
        rt.attach_memory();
        let messages = || rt.take_outbox();
        std::thread::scope(|scope| {
            let device = scope.spawn(|| rt.memory_device("sim:0", 80 * GIB));
            let told = until(messages);
            assert_eq!(told, ClientMsg::MemoryDevice { slot: 0, device: "sim:0".into(), capacity_bytes: 80 * GIB });
            rt.memory_answered(0, 0, MemoryAnswer { granted: true, ..MemoryAnswer::default() });
            assert_eq!(device.join().expect("no panic"), Some(0));
            for granted in [true, false] {
                let answer =
                    MemoryAnswer { granted, on_host: false, why: (!granted).then(|| "others hold it".to_owned()) };
                let asks = scope.spawn(|| rt.ask_memory(0, 5));
                let ClientMsg::MemoryAsk { slot: 0, number, bytes: 5, .. } = until(messages) else {
                    panic!("no question")
                };
                rt.memory_answered(0, number, answer.clone());
                assert_eq!(asks.join().expect("no panic"), answer);
            }
            let measures = scope.spawn(|| rt.measure_memory(0));
            let ClientMsg::MemoryMeasure { slot: 0, number } = until(messages) else { panic!("no question") };
            rt.memory_answered(0, number, MemoryAnswer { granted: true, ..MemoryAnswer::default() });
            assert!(measures.join().expect("no panic") && !rt.measure_memory(0), "it is new, not asked for again");
            rt.memory_refused(0, 5, false);
            rt.memory_refused(0, 6, false);
            assert_eq!(
                messages(),
                [ClientMsg::MemoryRefused { slot: 0, bytes: 5, by_driver: false }],
                "a second apart"
            );
            let asks = scope.spawn(|| rt.ask_memory(0, 5));
            until(messages);
            rt.detach();
            assert!(!rt.measure_memory(0));
            rt.memory_refused(0, 5, false);
            assert!(messages().is_empty(), "there is no daemon");
            assert!(asks.join().expect("no panic").granted, "no limit without a daemon");
        });
        assert!(rt.introduce().iter().any(|message| matches!(message, ClientMsg::MemoryDevice { slot: 0, .. })));
    }

    /// First message that is there.
    fn until(messages: impl Fn() -> Vec<ClientMsg>) -> ClientMsg {
        loop {
            if let Some(message) = messages().pop() {
                return message;
            }
            std::thread::yield_now();
        }
    }
}
