//! Memory and events that several processes share.
//!
//! Exported memory is pages of its context's arena, which the device puts into the arena of the process that opens it. An event that
//! is shared is a pair of words in such a page: how often it was recorded, and the last of these records that is complete.

use crate::context::{Ctx, current};
use crate::edge::Out;
use crate::event::{self, Event};
use crate::memory;
use crate::process::driver;
use crate::result::{Error, Result};
use crate::stats;
use rustix::thread::futex;
use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use xsched_sim::client::{self, Export, PAGE, Slot, lock};
use xsched_sim::command::{Action, Condition, Place, Width};

/// First words of handles of memory and of events.
const MEMORY: u64 = u64::from_le_bytes(*b"fakemem\x01");
const EVENT: u64 = u64::from_le_bytes(*b"fakeevt\x01");

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which is asked for.
const LAZY: c_uint = 1;

/// `CUipcMemHandle` and `CUipcEventHandle`: what it is, the process that made it, number, secret and bytes of the pages,
/// where in them the object begins, and its length in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Handle([u8; 64]);

impl Handle {
    fn new(words: [u64; 7]) -> Self {
        let mut bytes = [0; 64];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Self(bytes)
    }

    fn words(&self) -> [u64; 7] {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| self.0[8 * i + byte]));
        std::array::from_fn(word)
    }

    /// Pages, place and length of an object of another process.
    fn of(&self, what: u64) -> Result<(Export, u64, u64)> {
        let [kind, process, number, secret, bytes, skip, length] = self.words();
        if kind != what || skip.checked_add(length).is_none_or(|end| end > bytes) {
            return Err(Error::INVALID_VALUE);
        }
        if process == u64::from(std::process::id()) {
            return Err(Error::INVALID_CONTEXT);
        }
        Ok((Export { number, secret, bytes }, skip, length))
    }
}

fn handle(what: u64, export: Export, skip: u64, length: u64) -> Handle {
    let process = u64::from(std::process::id());
    Handle::new([what, process, export.number, export.secret, export.bytes, skip, length])
}

/// Memory of another process, as a context has it.
struct Opened {
    export: Export,
    length: u64,
    /// Its place and the block that it is in: offsets in the arena.
    at: u64,
    block: u64,
    times: u64,
}

/// What a context shares with other processes.
#[derive(Default)]
pub(crate) struct Book {
    /// Its own memory, by the offset of the block.
    exports: Mutex<BTreeMap<u64, Export>>,
    /// That of others, by address.
    opened: Mutex<BTreeMap<u64, Opened>>,
    words: Mutex<Words>,
}

/// Words of events. Pages stay as long as the context, and words go on where they are when another event gets them: what is
/// under way then writes into memory that is not used.
#[derive(Default)]
struct Words {
    /// The context's own pages, by offset.
    pages: BTreeMap<u64, Export>,
    free: Vec<u64>,
    /// Pages of others: offset by number and secret.
    foreign: BTreeMap<(u64, u64), u64>,
}

/// Bytes of an event's words.
const PAIR: u64 = 16;

/// Room for so many whole pages in the arena; its offset, and the block that it is in.
fn room(ctx: &Ctx, bytes: u64, heap: fn(&mut client::Heaps) -> &mut client::Heap) -> Result<(u64, u64)> {
    let wanted = bytes.checked_add(PAGE).ok_or(Error::INVALID_VALUE)?;
    let block = heap(&mut lock(&ctx.sim.heaps)).alloc(wanted).ok_or(Error::OUT_OF_MEMORY)?;
    Ok((block.next_multiple_of(PAGE), block))
}

impl Book {
    /// A block of the context's is free again.
    pub(crate) fn freed(&self, ctx: &Ctx, block: u64) {
        if let Some(export) = lock(&self.exports).remove(&block) {
            let _ = ctx.sim.unexport(export.number);
        }
    }

    /// The memory of another process that an address lies in: where it begins, and its length.
    pub(crate) fn opened(&self, address: u64) -> Option<(u64, u64)> {
        let opened = lock(&self.opened);
        let (&start, range) = opened.range(..=address).next_back()?;
        (address < start + range.length).then_some((start, range.length))
    }
}

pub(crate) fn get_memory(out: Out<Handle>, address: u64) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    let (owner, offset) = memory::owner(address, 1).ok_or(Error::INVALID_VALUE)?;
    if !Arc::ptr_eq(&ctx, &owner) || ctx.ipc.opened(address).is_some() {
        return Err(Error::INVALID_VALUE);
    }
    let (block, length) = lock(&ctx.sim.heaps).device.block_of(offset).ok_or(Error::INVALID_VALUE)?;
    let mut exports = lock(&ctx.ipc.exports);
    let first = block & !(PAGE - 1);
    let export = match exports.get(&block) {
        Some(&known) => known,
        None => {
            let made = ctx.sim.export(first, (block + length).next_multiple_of(PAGE) - first)?;
            exports.insert(block, made);
            made
        }
    };
    out.put(handle(MEMORY, export, block - first, length))
}

pub(crate) fn open_memory(out: Out<u64>, from: Handle, flags: c_uint) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    if flags != LAZY {
        return Err(Error::INVALID_VALUE);
    }
    let (export, skip, length) = from.of(MEMORY)?;
    let mut opened = lock(&ctx.ipc.opened);
    if let Some((&address, known)) = opened.iter_mut().find(|(_, known)| known.export == export) {
        known.times += 1;
        return out.put(address);
    }
    let (at, block) = room(&ctx, export.bytes, |heaps| &mut heaps.device)?;
    if let Err(error) = ctx.sim.import(export, at) {
        let _ = ctx.sim.release(block, |heaps| &mut heaps.device);
        return Err(error.into());
    }
    let address = ctx.sim.address(at + skip).expose_provenance() as u64;
    opened.insert(address, Opened { export, length, at, block, times: 1 });
    out.put(address)
}

/// Waits for all that the context was given: it may use the memory.
pub(crate) fn close_memory(address: u64) -> Result<()> {
    let ctx = current()?;
    crate::capture::potentially_unsafe()?;
    let mut opened = lock(&ctx.ipc.opened);
    let Some(known) = opened.get_mut(&address) else {
        stats::illegal(format!("no memory of another process begins at {address:#x}"));
        return Err(Error::INVALID_VALUE);
    };
    known.times -= 1;
    if known.times > 0 {
        return Ok(());
    }
    let (at, block) = (known.at, known.block);
    opened.remove(&address);
    drop(opened);
    ctx.sim.synchronize()?;
    ctx.sim.restore(at)?;
    Ok(ctx.sim.release(block, |heaps| &mut heaps.device)?)
}

/// Words of an event that processes share.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    sim: &'static client::Context,
    /// In the arena.
    offset: u64,
    /// Whose page it is.
    own: bool,
}

impl Shared {
    /// For a new event.
    pub(crate) fn new(ctx: &Ctx) -> Result<Self> {
        let mut words = lock(&ctx.ipc.words);
        if words.free.is_empty() {
            let (page, _) = room(ctx, PAGE, |heaps| &mut heaps.host)?;
            // SAFETY: a page of the arena that was allocated for this just now.
            unsafe { ctx.sim.address(page).cast::<u8>().write_bytes(0, PAGE as usize) };
            let export = ctx.sim.export(page, PAGE)?;
            words.pages.insert(page, export);
            words.free.extend((0..PAGE / PAIR).rev().map(|index| page + index * PAIR));
        }
        let offset = words.free.pop().ok_or(Error::OUT_OF_MEMORY)?;
        Ok(Self { sim: ctx.sim, offset, own: true })
    }

    /// The event is gone.
    pub(crate) fn end(self, ctx: &Ctx) {
        if self.own {
            lock(&ctx.ipc.words).free.push(self.offset);
        }
    }

    fn word(&self, index: u64) -> &'static AtomicU64 {
        let at = self.sim.address(self.offset + 8 * index);
        // SAFETY: an aligned word of a page that stays as long as the context, which is never freed.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Number of the last record that is complete.
    fn completed(&self) -> &'static AtomicU64 {
        self.word(1)
    }

    /// Number of the last record; 0 = there was none.
    pub(crate) fn recorded(&self) -> u64 {
        self.word(0).load(Acquire)
    }

    /// The low half of what is complete, which processes sleep on.
    fn wake_word(&self) -> &'static AtomicU32 {
        let at = self.sim.address(self.offset + 8);
        // SAFETY: as above; futexes are of 4 bytes, and nothing but the kernel looks at this half alone.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Records it when a stream gets there.
    pub(crate) fn record(self, ctx: &Ctx, slot: Slot) -> Result<client::Mark> {
        let number = self.word(0).fetch_add(1, AcqRel) + 1;
        let arrived = move || {
            // Of records in several streams, or processes, the later one counts.
            self.completed().fetch_max(number, AcqRel);
            let _ = futex::wake(self.wake_word(), futex::Flags::empty(), i32::MAX as u32);
        };
        Ok(ctx.sim.call(slot, Box::new(arrived))?)
    }

    /// Has a stream wait for the last record.
    pub(crate) fn hold(self, ctx: &Ctx, slot: Slot) -> Result<client::Mark> {
        if !std::ptr::eq(ctx.sim, self.sim) {
            return Err(Error::NOT_SUPPORTED);
        }
        let number = self.recorded();
        if self.completed().load(Acquire) >= number {
            return Ok(ctx.sim.end(slot)?);
        }
        let place = Place { region: 0, offset: self.offset + 8 };
        let action = Action::WaitValue { place, width: Width::Double, condition: Condition::Geq, value: number };
        crate::op::give(ctx, slot, action)
    }

    pub(crate) fn query(self) -> Result<()> {
        if self.completed().load(Acquire) >= self.recorded() { Ok(()) } else { Err(Error::NOT_READY) }
    }

    /// Waits for the last record, which may be another process's.
    pub(crate) fn synchronize(self, ctx: &Ctx) -> Result<()> {
        /// In ns. A look whether the context is still there is due this often.
        const LOOK: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let number = self.recorded();
        loop {
            let seen = self.completed().load(Acquire);
            if seen >= number {
                return Ok(());
            }
            ctx.check()?;
            let _ = futex::wait(self.wake_word(), futex::Flags::empty(), seen as u32, Some(&LOOK));
        }
    }
}

pub(crate) fn get_event(out: Out<Handle>, handle_of: usize) -> Result<()> {
    let (out, event) = (out.required()?, event::find(handle_of)?);
    let ctx = event.context()?;
    let Some(shared) = event.shared.filter(|shared| shared.own) else { return Err(Error::INVALID_VALUE) };
    let page = shared.offset & !(PAGE - 1);
    let words = lock(&ctx.ipc.words);
    let export = words.pages.get(&page).copied().ok_or(Error::UNKNOWN)?;
    out.put(handle(EVENT, export, shared.offset - page, PAIR))
}

pub(crate) fn open_event(out: Out<usize>, from: Handle) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    let (export, skip, _) = from.of(EVENT)?;
    if export.bytes != PAGE || !skip.is_multiple_of(PAIR) {
        return Err(Error::INVALID_VALUE);
    }
    let mut words = lock(&ctx.ipc.words);
    let page = match words.foreign.get(&(export.number, export.secret)) {
        Some(&known) => known,
        None => {
            let (at, block) = room(&ctx, PAGE, |heaps| &mut heaps.host)?;
            if let Err(error) = ctx.sim.import(export, at) {
                let _ = ctx.sim.release(block, |heaps| &mut heaps.host);
                return Err(error.into());
            }
            words.foreign.insert((export.number, export.secret), at);
            at
        }
    };
    drop(words);
    let shared = Shared { sim: ctx.sim, offset: page + skip, own: false };
    out.put(Event::add(driver()?, &ctx, event::SHARED, Some(shared))?)
}
