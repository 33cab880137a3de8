//! Gate word: the state of one group's gate, read by the group's launches, its agent, the daemon and the device.
//!
//! | bit | byte | name | meaning | sets it | clears it |
//! | --- | --- | --- | --- | --- | --- |
//! | 0x00000001 | 0, daemon | [`Gate::GRANTED`] | this group may use the device | [`GateWord::grant`] | [`GateWord::close`] |
//! | 0x00000002 | 0, daemon | [`Gate::YIELDS`] | not granted, but it may go on while the groups that it makes room for keep up | [`GateWord::let_yield`] | [`GateWord::let_yield`], [`GateWord::close`], [`GateWord::grant`] |
//! | 0x00000100 | 1, client | [`Gate::DETACHED`] | no daemon holds this gate | [`GateWord::detach`] | [`GateWord::attach`] |
//! | 0x00010000 | 2, daemon | [`Gate::CONTENDED`] | another group shares the device: follow completions, keep the budget | [`GateWord::mark`] | [`GateWord::mark`] |
//! | 0x00020000 | 2, daemon | [`Gate::EXCLUSIVE`] | no other group uses the device right now: times measured are this group's own | [`GateWord::mark`] | [`GateWord::mark`] |
//! | 0x00040000 | 2, both | [`Gate::STALLED`] | counts as idle for want of progress: the next launch says that the group goes on | daemon, [`GateWord::mark`] | [`GateWord::mark`]; client, [`GateWord::go_on`] |
//! | 0x00080000 | 2, daemon | [`Gate::TELLS`] | others yield to this group, or did lately: it tells on its page how its queues keep up | [`GateWord::mark`] | [`GateWord::mark`] |
//! | 0x01000000 | 3, client | [`Gate::MUST_ANNOUNCE`] | idle as far as the daemon knows: the next launch announces itself | [`GateWord::call_idle`], [`GateWord::attach`] | [`GateWord::announce`] |
//! | 0x02000000 | 3, client | [`Gate::INSPECT`] | the origin of each launch is looked at, for rules and reports | [`GateWord::inspect`] | never |
//! | 0x04000000 | 3, client | [`Gate::DEVICE_GATES_BYPASSED`] | device gates stand open, whatever this group may do | [`GateWord::bypass`] | [`GateWord::bypass`] |
//!
//! Each byte has one owner, and each change is a read-modify-write of the owner's own bits, so that one side never undoes a change of the
//! other. There are two exceptions: [`Gate::STALLED`] is set by one side and cleared by the other, and [`GateWord::close_on_device`] is for
//! a client that is gone.

use core::fmt;
use core::ops::BitOr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::memory::{Hardware, Memory, Sleepers, Woken, Word};

/// State of a gate: the value of a [`GateWord`] at some time.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Gate(u32);

impl Gate {
    /// The group may use the device.
    pub const GRANTED: Gate = Gate(0x0000_0001);
    /// Closed, but the group may go on while the groups that it yields to keep up with their own work: see [`crate::backlog`].
    pub const YIELDS: Gate = Gate(0x0000_0002);
    /// No daemon holds this gate.
    pub const DETACHED: Gate = Gate(0x0000_0100);
    /// Another group shares the device.
    pub const CONTENDED: Gate = Gate(0x0001_0000);
    /// Right now no other group uses the device.
    pub const EXCLUSIVE: Gate = Gate(0x0002_0000);
    /// The group counts as idle for want of progress, though it is not [`Gate::MUST_ANNOUNCE`].
    pub const STALLED: Gate = Gate(0x0004_0000);
    /// Others yield to this group, or did lately: see [`crate::backlog`].
    pub const TELLS: Gate = Gate(0x0008_0000);
    /// The group is idle as far as the daemon knows.
    pub const MUST_ANNOUNCE: Gate = Gate(0x0100_0000);
    /// The origin of each launch is inspected.
    pub const INSPECT: Gate = Gate(0x0200_0000);
    /// Device gates stand open.
    pub const DEVICE_GATES_BYPASSED: Gate = Gate(0x0400_0000);

    /// Bits that the daemon stores.
    pub const DAEMONS: Gate = Gate(0x000f_0003);
    /// Bits that the client stores.
    pub const CLIENTS: Gate = Gate(0x0704_0100);
    /// Bits each of which opens the gate on the host.
    pub const HOST_OPEN: Gate = Gate(0x0000_0101);
    /// Bits each of which opens a gate on the device, which waits for one of them with an AND comparison. A gate that yields is checked on
    /// the host alone, since the device cannot check [`crate::backlog`].
    pub const DEVICE_OPEN: Gate = Gate(0x0400_0103);

    /// Gate with these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Gate {
        Gate(bits)
    }

    /// Bits of the gate, as a number.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Reports whether any of these bits is set.
    #[inline(always)]
    pub const fn has(self, any: Gate) -> bool {
        self.0 & any.0 != 0
    }

    /// Returns the gate with these bits cleared.
    #[inline(always)]
    pub const fn without(self, these: Gate) -> Gate {
        Gate(self.0 & !these.0)
    }

    /// Reports whether the gate is granted and no other bit is set: a launch then has nothing else to check.
    #[inline(always)]
    pub const fn is_plainly_open(self) -> bool {
        self.0 == Gate::GRANTED.0
    }

    /// Reports whether a launch may go on: the group is granted the device, or no daemon holds the gate.
    #[inline(always)]
    pub const fn is_open(self) -> bool {
        self.has(Gate::HOST_OPEN)
    }

    /// Reports whether gates on the device let commands pass.
    #[inline(always)]
    pub const fn is_open_on_device(self) -> bool {
        self.has(Gate::DEVICE_OPEN)
    }

    /// See [`Gate::GRANTED`].
    #[inline(always)]
    pub const fn is_granted(self) -> bool {
        self.has(Gate::GRANTED)
    }

    /// See [`Gate::YIELDS`].
    #[inline(always)]
    pub const fn yields(self) -> bool {
        self.has(Gate::YIELDS)
    }

    /// See [`Gate::TELLS`].
    #[inline(always)]
    pub const fn tells(self) -> bool {
        self.has(Gate::TELLS)
    }

    /// See [`Gate::DETACHED`].
    #[inline(always)]
    pub const fn is_detached(self) -> bool {
        self.has(Gate::DETACHED)
    }

    /// See [`Gate::CONTENDED`]. The word of a daemon that is gone still says so.
    #[inline(always)]
    pub const fn is_contended(self) -> bool {
        self.has(Gate::CONTENDED)
    }

    /// See [`Gate::EXCLUSIVE`].
    #[inline(always)]
    pub const fn is_exclusive(self) -> bool {
        self.has(Gate::EXCLUSIVE)
    }

    /// See [`Gate::STALLED`].
    #[inline(always)]
    pub const fn is_stalled(self) -> bool {
        self.has(Gate::STALLED)
    }

    /// See [`Gate::MUST_ANNOUNCE`].
    #[inline(always)]
    pub const fn must_announce(self) -> bool {
        self.has(Gate::MUST_ANNOUNCE)
    }

    /// See [`Gate::INSPECT`].
    #[inline(always)]
    pub const fn is_inspected(self) -> bool {
        self.has(Gate::INSPECT)
    }

    /// See [`Gate::DEVICE_GATES_BYPASSED`].
    #[inline(always)]
    pub const fn is_bypassed(self) -> bool {
        self.has(Gate::DEVICE_GATES_BYPASSED)
    }
}

impl BitOr for Gate {
    type Output = Gate;

    #[inline(always)]
    fn bitor(self, other: Gate) -> Gate {
        Gate(self.0 | other.0)
    }
}

/// All bits with their names.
const NAMES: [(Gate, &str); 10] = [
    (Gate::GRANTED, "granted"),
    (Gate::YIELDS, "yields"),
    (Gate::DETACHED, "detached"),
    (Gate::CONTENDED, "contended"),
    (Gate::EXCLUSIVE, "exclusive"),
    (Gate::STALLED, "stalled"),
    (Gate::TELLS, "tells"),
    (Gate::MUST_ANNOUNCE, "must announce"),
    (Gate::INSPECT, "inspect"),
    (Gate::DEVICE_GATES_BYPASSED, "device gates bypassed"),
];

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| name)).finish()
    }
}

/// A gate word in shared memory. Also a futex.
#[repr(transparent)]
pub struct GateWord<M: Memory = Hardware>(M::U32);

impl<M: Memory> Default for GateWord<M> {
    fn default() -> Self {
        GateWord(M::U32::new(0))
    }
}

impl<M: Memory> GateWord<M> {
    /// Loads the word. Values that the other side stored before the word are visible afterwards (acquire).
    #[inline(always)]
    pub fn load(&self) -> Gate {
        Gate(self.0.load(Acquire))
    }

    /// Loads the word without ordering: for a check after which nothing is read that the other side stored before.
    #[inline(always)]
    pub fn peek(&self) -> Gate {
        Gate(self.0.load(Relaxed))
    }

    /// Loads the word in one order with all other sequentially consistent operations.
    pub fn load_in_order(&self) -> Gate {
        Gate(self.0.load(SeqCst))
    }

    /// Loads the word by a read-modify-write that changes nothing: later changes of the word come after everything that this thread stored
    /// before.
    pub fn settle(&self) -> Gate {
        Gate(self.0.fetch_or(0, AcqRel))
    }

    /// Sleeps at the gate while the word is `seen`, for at most `most_ns`.
    pub fn sleep(&self, seen: Gate, most_ns: u64) -> Woken {
        M::sleep(&self.0, seen.0, Sleepers::All, most_ns)
    }

    /// Wakes all threads that sleep at the gate, in any process.
    pub fn wake(&self) {
        M::wake(&self.0, Sleepers::All);
    }
}

/// Operations of the daemon, or of the scheduler inside a process.
impl<M: Memory> GateWord<M> {
    /// Takes the gate over, closed; the launches of a detached client still go on.
    pub fn take_over(&self) {
        self.0.fetch_and(!Gate::DAEMONS.0, SeqCst);
    }

    /// Opens the gate and wakes all threads that wait there.
    pub fn grant(&self) {
        if Gate(self.0.fetch_or(Gate::GRANTED.0, SeqCst)).yields() {
            self.0.fetch_and(!Gate::YIELDS.0, SeqCst);
        }
        self.wake();
    }

    /// Closes the gate.
    pub fn close(&self) {
        self.0.fetch_and(!(Gate::GRANTED.0 | Gate::YIELDS.0), SeqCst);
    }

    /// Lets a closed gate yield, or hold again. Threads that wait there check the gate again.
    pub fn let_yield(&self, on: bool) {
        if on {
            self.0.fetch_or(Gate::YIELDS.0, SeqCst);
            self.wake();
        } else {
            self.0.fetch_and(!Gate::YIELDS.0, SeqCst);
        }
    }

    /// Closes the gate of a client that is gone, on the device too. A client that lives and has only left the daemon has detached its
    /// gates.
    pub fn close_on_device(&self) {
        self.0.fetch_and(!(Gate::GRANTED.0 | Gate::YIELDS.0 | Gate::DEVICE_GATES_BYPASSED.0), SeqCst);
    }

    /// Sets or clears [`Gate::CONTENDED`], [`Gate::EXCLUSIVE`], [`Gate::STALLED`] or [`Gate::TELLS`].
    pub fn mark(&self, bits: Gate, on: bool) {
        let bits = bits.0 & Gate::DAEMONS.without(Gate::GRANTED | Gate::YIELDS).0;
        if on {
            self.0.fetch_or(bits, SeqCst);
        } else {
            self.0.fetch_and(!bits, SeqCst);
        }
    }

    /// Gives the gate up: leaves it open, with the daemon's other bits cleared.
    pub fn give_up(&self) {
        self.mark(Gate::DAEMONS, false);
        self.grant();
    }
}

/// Operations of the client.
impl<M: Memory> GateWord<M> {
    /// Sets the first value, detached and idle, before any other side sees the word.
    pub fn begin(&self, inspect: bool) {
        let inspect = if inspect { Gate::INSPECT.0 } else { 0 };
        self.0.store(Gate::DETACHED.0 | Gate::MUST_ANNOUNCE.0 | inspect, Relaxed);
    }

    /// Attaches the gate: a daemon holds it from now on, and regards the group as idle.
    pub fn attach(&self) {
        self.call_idle();
        self.0.fetch_and(!Gate::DETACHED.0, AcqRel);
    }

    /// Attaches the gate (again) to a daemon that already knows the state of the group.
    pub fn let_hold(&self) {
        self.0.fetch_and(!Gate::DETACHED.0, AcqRel);
    }

    /// Detaches the gate: no daemon holds it, it stands open, and all threads that wait there wake up.
    pub fn detach(&self) {
        self.0.fetch_or(Gate::DETACHED.0, AcqRel);
        self.wake();
    }

    /// Requires the next launch to announce itself. Returns whether that was required already.
    pub fn call_idle(&self) -> bool {
        Gate(self.0.fetch_or(Gate::MUST_ANNOUNCE.0, AcqRel)).must_announce()
    }

    /// Ends that requirement. Returns whether it was in force: of several threads that call this, one gets true.
    pub fn announce(&self) -> bool {
        Gate(self.0.fetch_and(!Gate::MUST_ANNOUNCE.0, AcqRel)).must_announce()
    }

    /// Clears [`Gate::STALLED`]. Returns whether it was set.
    pub fn go_on(&self) -> bool {
        Gate(self.0.fetch_and(!Gate::STALLED.0, AcqRel)).is_stalled()
    }

    /// Requires the origin of each launch to be inspected from now on.
    pub fn inspect(&self) {
        self.0.fetch_or(Gate::INSPECT.0, AcqRel);
    }

    /// Bypasses the device gates, or lets them hold, if the word is still `seen`.
    ///
    /// # Errors
    /// Returns the present word, if that is not `seen`.
    pub fn bypass(&self, seen: Gate, on: bool) -> Result<Gate, Gate> {
        let bit = Gate::DEVICE_GATES_BYPASSED;
        let next = if on { seen | bit } else { seen.without(bit) };
        self.0.compare_exchange(seen.0, next.0, SeqCst, SeqCst).map(|_| next).map_err(Gate)
    }
}

impl GateWord {
    /// Address of the word: the device reads it there.
    pub fn as_ptr(&self) -> *mut u32 {
        self.0.as_ptr()
    }
}

const _: () = {
    assert!(size_of::<GateWord>() == size_of::<AtomicU32>());
    assert!(Gate::DAEMONS.0 & Gate::CLIENTS.0 == Gate::STALLED.0);
    assert!(Gate::HOST_OPEN.0 == Gate::GRANTED.0 | Gate::DETACHED.0);
    assert!(Gate::DEVICE_OPEN.0 == Gate::HOST_OPEN.0 | Gate::YIELDS.0 | Gate::DEVICE_GATES_BYPASSED.0);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a table whose first cell is a bit.
    fn rows(text: &str) -> Vec<Vec<String>> {
        let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_string()).collect() };
        text.lines()
            .map(|line| cells(line.trim_start_matches("//!")))
            .filter(|row| row.len() > 3 && row[1].starts_with("0x"))
            .collect()
    }

    #[test]
    fn both_tables_have_all_bits() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/gates.md");
        let (book, here) = (rows(&std::fs::read_to_string(page).unwrap()), rows(include_str!("gate.rs")));
        assert_eq!((book.len(), here.len()), (NAMES.len(), NAMES.len()));
        for (at, (bit, name)) in NAMES.iter().enumerate() {
            let constant = name.replace(' ', "_").to_uppercase();
            let (book, here) = (&book[at], &here[at]);
            assert_eq!(here[1..4], [format!("{:#010x}", bit.bits()), book[2].clone(), format!("[`Gate::{constant}`]")]);
            assert_eq!(book[1..5], [here[1].clone(), here[2].clone(), name.to_string(), format!("`{constant}`")]);
            let (byte, owner) = here[2].split_once(", ").unwrap();
            assert_eq!(bit.bits() >> (8 * byte.parse::<u32>().unwrap()) & !0xff, 0, "{name} lies in its byte");
            assert!(bit.bits() >> (8 * byte.parse::<u32>().unwrap()) != 0, "{name} lies in its byte");
            assert_eq!(Gate::DAEMONS.has(*bit), owner != "client", "{name}");
            assert_eq!(Gate::CLIENTS.has(*bit), owner != "daemon", "{name}");
        }
    }

    #[test]
    fn the_page_has_what_is_fixed() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/gates.md")).unwrap();
        assert_eq!((Gate::HOST_OPEN.bits(), Gate::DEVICE_OPEN.bits()), (0x0000_0101, 0x0400_0103));
        let (_, fixed) = page.split_once("## What is fixed, and what may change").unwrap();
        let line = format!(
            "| host gates open by {:#010x}, device gates by {:#010x} |",
            Gate::HOST_OPEN.bits(),
            Gate::DEVICE_OPEN.bits()
        );
        assert!(fixed.contains(&line), "{line}");
        assert!(fixed.contains(&format!("| the word {:#010x} is the open gate", Gate::GRANTED.bits())));
    }

    #[test]
    fn no_side_changes_what_is_the_others() {
        let word = GateWord::<Hardware>::default();
        word.begin(true);
        word.mark(Gate::from_bits(u32::MAX), true);
        assert_eq!(
            word.load(),
            Gate::DETACHED | Gate::MUST_ANNOUNCE | Gate::INSPECT | Gate::DAEMONS.without(Gate::GRANTED | Gate::YIELDS)
        );
        word.take_over();
        assert_eq!(word.load(), Gate::DETACHED | Gate::MUST_ANNOUNCE | Gate::INSPECT);
        word.attach();
        word.grant();
        assert!(word.announce() && !word.announce());
        assert_eq!(word.load(), Gate::GRANTED | Gate::INSPECT);
        word.mark(Gate::CONTENDED, true);
        word.give_up();
        assert_eq!(word.load(), Gate::GRANTED | Gate::INSPECT);
    }
}
