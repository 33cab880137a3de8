//! Moves on a driver of maps, with failures at each call. After each move the chunks' record is compared with the driver's, and with
//! the contents that the program left.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Two chunks are a piece.
const BYTES: u64 = PIECE / 2;
const CHUNKS: u64 = 4;
/// Contents of memory that was never written.
const RUBBISH: u64 = 0;

/// Calls that fail.
#[derive(Clone, Debug)]
enum Failures {
    At(Vec<usize>),
    From(usize),
    /// One of so many, by a generator of numbers.
    Random(u64, u64),
}

#[derive(Debug, PartialEq, Eq)]
struct Refused;

struct Memory {
    contents: u64,
    released: bool,
}

struct Maps {
    failures: Failures,
    calls: usize,
    next: u64,
    device: BTreeMap<u64, Memory>,
    host: BTreeMap<u64, Memory>,
    /// Handle and access of the memory that is mapped at an address.
    mapped: BTreeMap<u64, (u64, bool)>,
    copies: Vec<(u64, u64)>,
    /// Number of copies that have ended.
    copied: usize,
    /// Largest number of copies that had not ended.
    most_copies: usize,
    store: Vec<Stored<u64>>,
    maps_device: bool,
}

impl Maps {
    fn new() -> Self {
        Maps {
            failures: Failures::At(Vec::new()),
            calls: 0,
            next: 1,
            device: BTreeMap::new(),
            host: BTreeMap::new(),
            mapped: BTreeMap::new(),
            copies: Vec::new(),
            copied: 0,
            most_copies: 0,
            store: Vec::new(),
            maps_device: true,
        }
    }

    fn call(&mut self) -> Result<(), Refused> {
        let number = self.calls;
        self.calls += 1;
        let fails = match &mut self.failures {
            Failures::At(numbers) => numbers.contains(&number),
            Failures::From(first) => number >= *first,
            Failures::Random(state, one_of) => {
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (*state >> 33) % *one_of == 0
            }
        };
        if fails { Err(Refused) } else { Ok(()) }
    }

    fn memory(&mut self, handle: u64) -> &mut Memory {
        let Maps { device, host, .. } = self;
        device.get_mut(&handle).or_else(|| host.get_mut(&handle)).expect("memory of this handle")
    }

    fn contents_at(&mut self, at: u64) -> u64 {
        let (handle, allowed) = *self.mapped.get(&at).expect("mapped");
        assert!(allowed, "no access at {at:#x}");
        self.memory(handle).contents
    }

    fn fill_at(&mut self, at: u64, contents: u64) {
        let (handle, allowed) = *self.mapped.get(&at).expect("mapped");
        assert!(allowed, "no access at {at:#x}");
        self.memory(handle).contents = contents;
    }

    /// Executes the first copies.
    fn execute(&mut self, copies: usize) {
        for (to, from) in self.copies.drain(..copies).collect::<Vec<_>>() {
            let contents = self.contents_at(from);
            self.fill_at(to, contents);
            self.copied += 1;
        }
    }

    fn sweep(&mut self) {
        let mapped: BTreeSet<u64> = self.mapped.values().map(|&(handle, _)| handle).collect();
        self.device.retain(|handle, memory| !memory.released || mapped.contains(handle));
    }
}

impl Driver for Maps {
    type Handle = u64;
    type Error = Refused;
    /// Number of copies so far.
    type Mark = usize;

    fn create(&mut self, _: u64, _: u64) -> Result<u64, Refused> {
        self.call()?;
        self.next += 1;
        self.device.insert(self.next, Memory { contents: RUBBISH, released: false });
        Ok(self.next)
    }

    fn release(&mut self, handle: u64) -> Result<(), Refused> {
        self.call()?;
        let memory = self.device.get_mut(&handle).expect("device memory");
        assert!(!memory.released, "released twice");
        memory.released = true;
        self.sweep();
        Ok(())
    }

    fn map(&mut self, at: u64, _: u64, handle: u64) -> Result<(), Refused> {
        self.call()?;
        if self.device.contains_key(&handle) && !self.maps_device {
            return Err(Refused);
        }
        assert!(self.mapped.insert(at, (handle, false)).is_none(), "mapped over a mapping");
        Ok(())
    }

    fn allow(&mut self, at: u64, _: u64) -> Result<(), Refused> {
        self.call()?;
        self.mapped.get_mut(&at).expect("mapped").1 = true;
        Ok(())
    }

    fn unmap(&mut self, at: u64, _: u64) -> Result<(), Refused> {
        self.call()?;
        assert!(self.copies.iter().all(|&(to, from)| to != at && from != at), "unmapped under a copy");
        self.mapped.remove(&at).expect("mapped");
        self.sweep();
        Ok(())
    }

    fn copy(&mut self, to: u64, from: u64, _: u64) -> Result<(), Refused> {
        self.call()?;
        self.contents_at(from);
        self.contents_at(to);
        self.copies.push((to, from));
        self.most_copies = self.most_copies.max(self.copies.len());
        Ok(())
    }

    fn mark(&mut self) -> Result<usize, Refused> {
        self.call()?;
        Ok(self.copied + self.copies.len())
    }

    fn reach(&mut self, mark: usize) -> Result<(), Refused> {
        self.call()?;
        let last = mark.saturating_sub(self.copied);
        self.execute(last);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Refused> {
        self.call()?;
        self.execute(self.copies.len());
        Ok(())
    }

    fn take(&mut self, _: u64) -> Result<Stored<u64>, Refused> {
        self.call()?;
        if let Some(stored) = self.store.pop() {
            return Ok(stored);
        }
        self.next += 1;
        let stored = Stored { handle: self.next, at: self.next << 32 };
        self.host.insert(stored.handle, Memory { contents: RUBBISH, released: false });
        self.mapped.insert(stored.at, (stored.handle, true));
        Ok(stored)
    }

    fn give(&mut self, stored: Stored<u64>, _: u64) {
        assert!(self.copies.iter().all(|&(to, _)| to != stored.at), "given back under a copy");
        // Another chunk's contents will come here.
        self.memory(stored.handle).contents = RUBBISH;
        self.store.push(stored);
    }
}

/// A program with memory, and what it wrote there.
struct Program {
    driver: Maps,
    residents: Residents<u64>,
    written: Vec<u64>,
}

impl Program {
    fn new() -> Self {
        Program::with(CHUNKS)
    }

    fn with(chunks: u64) -> Self {
        let mut driver = Maps::new();
        let mut residents = Residents::default();
        for i in 0..chunks {
            let at = (1 << 40) + i * BYTES;
            let handle = driver.create(0, BYTES).expect("memory");
            driver.map(at, BYTES, handle).expect("mapping");
            driver.allow(at, BYTES).expect("access");
            residents.chunks.push(Chunk::new(at, BYTES, handle));
        }
        let mut program = Program { driver, residents, written: Vec::new() };
        program.write(100);
        program
    }

    fn at(place: Place) -> Self {
        let mut program = Program::new();
        program.carry(place, Failures::At(Vec::new()));
        assert_eq!(program.residents.place(), place);
        program
    }

    /// The program runs, where its memory can be reached: it finds what it wrote, and writes anew.
    fn write(&mut self, first: u64) {
        for (chunk, &contents) in self.residents.chunks.iter().zip(&self.written) {
            assert_eq!(self.driver.contents_at(chunk.at), contents);
        }
        self.written = (first..).take(self.residents.chunks.len()).collect();
        for (chunk, &contents) in self.residents.chunks.iter().zip(&self.written) {
            self.driver.fill_at(chunk.at, contents);
        }
    }

    fn carry(&mut self, to: Place, failures: Failures) -> Moved<Refused> {
        self.driver.failures = failures;
        self.driver.calls = 0;
        let moved = self.residents.carry(&mut self.driver, &mut (), to);
        self.driver.failures = Failures::At(Vec::new());
        self.verify();
        assert_eq!(moved.place, self.residents.place());
        if moved.error.is_none() {
            assert_eq!(moved.place, to);
        }
        moved
    }

    fn part(
        &mut self,
        failures: Failures,
        go: impl FnOnce(&mut Residents<u64>, &mut Maps) -> Moved<Refused>,
    ) -> Moved<Refused> {
        self.driver.failures = failures;
        self.driver.calls = 0;
        let moved = go(&mut self.residents, &mut self.driver);
        self.driver.failures = Failures::At(Vec::new());
        self.verify();
        assert_eq!(moved.place, self.residents.place());
        moved
    }

    fn lend(&mut self, bytes: u64, failures: Failures) -> Moved<Refused> {
        self.part(failures, |residents, driver| residents.lend(driver, bytes, &[0; CHUNKS as usize]))
    }

    fn hosted(&self) -> Vec<bool> {
        self.residents.chunks.iter().map(|chunk| chunk.mapped == Mapped::Host).collect()
    }

    /// The record agrees with the driver, nothing is lost, and nothing is left over.
    fn verify(&mut self) {
        let Residents { chunks, unreleased, unusable, .. } = &self.residents;
        for (chunk, &contents) in chunks.iter().zip(&self.written) {
            let mapped = self.driver.mapped.get(&chunk.at).copied();
            match chunk.mapped {
                Mapped::Device => {
                    assert_eq!(mapped.map(|(handle, _)| handle), chunk.device);
                    assert_eq!(self.driver.contents_at(chunk.at), contents, "{chunk:?}");
                }
                Mapped::Host => {
                    assert_eq!(mapped.map(|(handle, _)| handle), chunk.store.map(|stored| stored.handle));
                    assert_eq!(self.driver.contents_at(chunk.at), contents, "{chunk:?}");
                }
                Mapped::Empty | Mapped::Blind | Mapped::Nothing => {
                    let access = match chunk.mapped {
                        Mapped::Empty => Some(true),
                        Mapped::Blind => Some(false),
                        _ => None,
                    };
                    assert_eq!(mapped.map(|(_, allowed)| allowed), access, "{chunk:?}");
                    let stored = chunk.store.expect("contents");
                    assert_eq!(self.driver.contents_at(stored.at), contents, "{chunk:?}");
                }
            }
        }
        let known = |handles: &mut dyn Iterator<Item = u64>| handles.collect::<BTreeSet<u64>>();
        let device = known(&mut chunks.iter().filter_map(|chunk| chunk.device).chain(unreleased.iter().copied()));
        assert_eq!(
            device,
            self.driver.device.keys().copied().collect(),
            "device memory without an owner, or the reverse"
        );
        let stored = chunks.iter().filter_map(|chunk| chunk.store).chain(unusable.iter().copied());
        let host = known(&mut stored.chain(self.driver.store.iter().copied()).map(|stored| stored.handle));
        assert_eq!(host, self.driver.host.keys().copied().collect(), "host memory without an owner, or the reverse");
    }
}

const PLACES: [Place; 3] = [Place::Device, Place::Host, Place::Away];

/// Every move that the latch makes.
fn moves() -> impl Iterator<Item = (Place, Place)> {
    PLACES.into_iter().flat_map(|from| PLACES.into_iter().map(move |to| (from, to))).filter(|(from, to)| from != to)
}

fn calls(from: Place, to: Place) -> usize {
    let mut program = Program::at(from);
    assert!(program.carry(to, Failures::At(Vec::new())).error.is_none());
    program.driver.calls
}

#[test]
fn every_move_keeps_contents_and_leaves_nothing_over() {
    for (from, to) in moves() {
        let mut program = Program::at(from);
        let moved = program.carry(to, Failures::At(Vec::new()));
        assert_eq!((moved.place, moved.error), (to, None), "{from:?} to {to:?}");
        program.carry(Place::Device, Failures::At(Vec::new()));
        program.write(200);
        assert_eq!(program.driver.device.len() as u64, CHUNKS);
    }
}

/// One failure: all chunks are as before, or the move was made, since what failed was to release memory, which is tried again.
#[test]
fn a_failure_at_any_call_leaves_everything_as_before() {
    for (from, to) in moves() {
        for n in 0..calls(from, to) {
            let mut program = Program::at(from);
            let state = |program: &Program| {
                let chunks = program.residents.chunks.iter();
                chunks.map(|chunk| (chunk.mapped, chunk.device.is_some(), chunk.store.is_some())).collect::<Vec<_>>()
            };
            let before = state(&program);
            let moved = program.carry(to, Failures::At(vec![n]));
            let said = format!("{from:?} to {to:?}, failure at call {n}");
            assert_eq!(moved.error, (moved.place != to).then_some(Refused), "{said}");
            if moved.place != to {
                assert_eq!(state(&program), before, "{said}");
            }
            assert!(program.residents.unreleased.is_empty(), "{said}");
            // The program goes on if it could before, and the same move succeeds later.
            if moved.place != Place::Away {
                program.write(300);
            }
            assert_eq!(program.carry(to, Failures::At(Vec::new())).place, to, "{said}");
            assert!(program.residents.unreleased.is_empty() && program.residents.unusable.is_empty(), "{said}");
            program.carry(Place::Device, Failures::At(Vec::new()));
            program.write(400);
        }
    }
}

/// Two failures, the second perhaps while the first is undone: memory that could be reached still can, or has left as it should.
#[test]
fn a_failure_while_a_failure_is_undone_loses_and_leaks_nothing() {
    for (from, to) in moves() {
        for n in 0..calls(from, to) {
            for m in n + 1..n + 30 {
                let mut program = Program::at(from);
                let moved = program.carry(to, Failures::At(vec![n, m]));
                let left = to == Place::Away && only_unreleased(&program);
                assert!(from == Place::Away || moved.place != Place::Away || left, "{from:?} to {to:?}: {n}, {m}");
                let after = program.carry(Place::Device, Failures::At(Vec::new()));
                assert_eq!(after.place, Place::Device, "{from:?} to {to:?}, failures at calls {n} and {m}: {moved:?}");
                program.write(500);
            }
        }
    }
}

/// Room of which the pieces are noted, and of which there is none after so many of them.
#[derive(Default)]
struct Noted {
    left: Vec<u64>,
    comes: Vec<(u64, u64)>,
    most: usize,
}

impl Pieces<Refused> for Noted {
    fn left(&mut self, bytes: u64) {
        self.left.push(bytes);
    }

    fn comes(&mut self, bytes: u64, all: u64) -> Result<(), Refused> {
        self.comes.push((bytes, all));
        if self.comes.len() > self.most { Err(Refused) } else { Ok(()) }
    }
}

#[test]
fn memory_leaves_and_comes_back_in_pieces_as_there_is_room() {
    let mut program = Program::new();
    let mut room = Noted::default();
    let moved = program.residents.carry(&mut program.driver, &mut room, Place::Away);
    assert_eq!((moved.place, moved.error, room.left), (Place::Away, None, vec![PIECE, PIECE]));
    // Room for one piece: the memory stays in the store, and nothing of it on the device.
    let mut room = Noted { most: 1, ..Noted::default() };
    let moved = program.residents.carry(&mut program.driver, &mut room, Place::Device);
    assert_eq!((moved.place, moved.error), (Place::Away, Some(Refused)));
    assert_eq!(room.comes, [(PIECE, 2 * PIECE); 2]);
    assert!(program.driver.device.is_empty());
    program.verify();
    let mut room = Noted { most: 2, ..Noted::default() };
    let moved = program.residents.carry(&mut program.driver, &mut room, Place::Device);
    assert_eq!((moved.place, moved.error, room.comes.len()), (Place::Device, None, 2));
    program.verify();
    program.write(600);
}

#[test]
fn a_few_pieces_are_copied_at_a_time_however_many_there_are() {
    let mut program = Program::with(40);
    let mut room = Noted::default();
    let moved = program.residents.carry(&mut program.driver, &mut room, Place::Away);
    assert_eq!((moved.place, moved.error, room.left), (Place::Away, None, vec![PIECE; 20]));
    assert_eq!(program.driver.most_copies, 2 * AHEAD);
    program.verify();
    assert_eq!(program.carry(Place::Device, Failures::At(Vec::new())).error, None);
    program.write(600);
    // Failures after some pieces have left, which come back, too. Memory that is not released at once is so in the end.
    let mut undone = 0;
    for n in 100..108 {
        let moved = program.carry(Place::Away, Failures::At(vec![n]));
        assert_eq!(moved.error, (moved.place == Place::Device).then_some(Refused), "failure at call {n}");
        undone += u32::from(moved.place == Place::Device);
        program.carry(Place::Device, Failures::At(Vec::new()));
        program.write(700);
    }
    assert_eq!(undone, 6, "of eight calls for a piece, two release memory");
}

/// A driver that maps no memory of the device any more: what was unmapped is backed by the host, and the program goes on.
#[test]
fn memory_that_the_device_does_not_get_back_is_backed_by_the_host() {
    let mut host_backed = 0;
    for n in 0..calls(Place::Device, Place::Away) {
        let mut program = Program::new();
        program.driver.maps_device = false;
        let moved = program.carry(Place::Away, Failures::At(vec![n]));
        if moved.place == Place::Away {
            assert!(only_unreleased(&program));
            continue;
        }
        host_backed += u32::from(moved.place == Place::Host);
        program.write(600);
        program.driver.maps_device = true;
        assert_eq!(program.carry(Place::Device, Failures::At(Vec::new())).place, Place::Device);
        program.write(700);
    }
    assert!(host_backed > 0);
}

/// A part goes to the host, the chunks that were added last; all else stays, whichever call fails.
#[test]
fn a_part_is_lent_and_comes_back() {
    let mut program = Program::new();
    let moved = program.lend(BYTES + 1, Failures::At(Vec::new()));
    assert_eq!((moved.place, moved.error), (Place::Host, None));
    assert_eq!(program.hosted(), [false, false, true, true]);
    assert_eq!((program.residents.hosted_bytes(), program.residents.resident_bytes()), (2 * BYTES, 2 * BYTES));
    program.write(800);
    let calls = program.driver.calls;
    program.lend(BYTES, Failures::At(Vec::new()));
    assert_eq!(program.hosted(), [false, true, true, true]);
    program.lend(9 * BYTES, Failures::At(Vec::new()));
    assert_eq!(program.hosted(), [true; 4]);
    program.write(900);
    assert_eq!(program.carry(Place::Device, Failures::At(Vec::new())).error, None);
    program.write(1000);
    for n in 0..calls {
        let mut program = Program::new();
        let moved = program.lend(BYTES + 1, Failures::At(vec![n]));
        let (hosted, error) = if moved.place == Place::Host { (2 * BYTES, None) } else { (0, Some(Refused)) };
        assert_eq!((moved.error, program.residents.hosted_bytes()), (error, hosted), "failure at call {n}");
        program.write(1100);
        assert_eq!(program.carry(Place::Device, Failures::At(Vec::new())).error, None);
        program.write(1200);
    }
}

#[test]
fn the_coldest_are_lent_the_hottest_come_back_first_and_hot_ones_change_places_with_cold_ones() {
    let none = || Failures::At(Vec::new());
    let lent = || {
        let mut program = Program::new();
        program.part(none(), |residents, driver| residents.lend(driver, 2 * BYTES, &[9, 0, 1, 5]));
        program.write(1300);
        program
    };
    let mut program = lent();
    assert_eq!(program.hosted(), [false, true, true, false]);
    let heat = [1, 80, 9, 2];
    assert!(program.residents.has_exchange(&heat));
    let moved = program.part(none(), |residents, driver| residents.exchange(driver, BYTES, &heat));
    assert_eq!((moved.place, moved.error, program.hosted()), (Place::Host, None, vec![true, false, true, false]));
    let calls = program.driver.calls;
    program.part(none(), |residents, driver| residents.exchange(driver, u64::MAX, &heat));
    assert_eq!(program.hosted(), [true, false, false, true]);
    assert!(!program.residents.has_exchange(&heat));
    program.write(1400);
    program.part(none(), |residents, driver| residents.take_back(driver, 2 * BYTES - 1, &heat));
    assert_eq!(program.hosted(), [true, false, false, false]);
    program.write(1500);
    let moved = program.part(none(), |residents, driver| residents.take_back(driver, BYTES, &heat));
    assert_eq!((moved.place, program.residents.hosted_bytes()), (Place::Device, 0));
    for n in 0..calls {
        let mut program = lent();
        let moved = program.part(Failures::At(vec![n]), |residents, driver| residents.exchange(driver, BYTES, &heat));
        assert_eq!(moved.place, Place::Host, "failure at call {n}");
        let is_made = program.hosted() == [true, false, true, false];
        assert_eq!(moved.error, (!is_made).then_some(Refused), "failure at call {n}");
        assert!(program.residents.hosted_bytes() >= 2 * BYTES, "failure at call {n}");
        program.write(1600);
        assert_eq!(program.carry(Place::Device, none()).error, None);
        program.write(1700);
    }
}

fn only_unreleased(program: &Program) -> bool {
    program.residents.chunks.iter().all(|chunk| chunk.mapped == Mapped::Nothing)
}

/// A context that has failed for good.
#[test]
fn calls_that_all_fail_leave_a_record_that_agrees_with_the_driver() {
    for (from, to) in moves() {
        for n in 0..calls(from, to) {
            Program::at(from).carry(to, Failures::From(n));
        }
    }
}

#[test]
fn contents_are_the_same_over_random_moves_with_random_failures() {
    let mut random = 1u64;
    let mut program = Program::new();
    let mut reached = [0; 3];
    for cycle in 0..10_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let to = PLACES[(random >> 40) as usize % 3];
        let failures = if cycle % 3 == 0 { Failures::At(Vec::new()) } else { Failures::Random(random, 12) };
        let is_reachable = program.residents.place() != Place::Away;
        let (bytes, heat) = ((random >> 33) % (4 * BYTES), [20, 24, 28, 32].map(|at| (random >> at) as u32 % 16));
        match (random >> 50) % 8 {
            0 | 1 if is_reachable => program.lend(bytes, failures),
            2 if is_reachable => program.part(failures, |residents, driver| residents.exchange(driver, bytes, &heat)),
            3 if is_reachable => program.part(failures, |residents, driver| residents.take_back(driver, bytes, &heat)),
            _ => program.carry(to, failures),
        };
        reached[program.residents.place() as usize] += 1;
        if program.residents.place() != Place::Away {
            program.write(cycle * 10);
        }
    }
    assert!(reached.iter().all(|&times| times > 1_000), "{reached:?}");
    program.carry(Place::Device, Failures::At(Vec::new()));
    assert_eq!(program.driver.device.len() as u64, CHUNKS);
}
