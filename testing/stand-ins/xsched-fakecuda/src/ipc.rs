//! Memory and events shared by several processes.
//!
//! Exported memory is pages of its context's arena, which the device maps into the arena of the process that opens it.
//! A shared event is a pair of words in such a page: number of records, and the last of these records that is complete.

use crate::books::Opened;
use crate::context::current;
use crate::edge::Out;
use crate::event::{self, Event};
use crate::memory;
use crate::result::{Error, Result};
use crate::sequence::potentially_unsafe;
use crate::shared::{PAIR, Shared, room};
use crate::stats;
use std::ffi::c_uint;
use std::sync::Arc;
use xsched_sim::client::{Export, PAGE, lock};

/// First words of handles of memory and of events.
const MEMORY: u64 = u64::from_le_bytes(*b"fakemem\x01");
const EVENT: u64 = u64::from_le_bytes(*b"fakeevt\x01");

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag accepted.
const LAZY: c_uint = 1;

/// `CUipcMemHandle` and `CUipcEventHandle`: kind, process that created it; number, secret and size of the pages; offset
/// of the object in them, and its length in bytes.
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

    /// Pages, offset and length of an object of another process.
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

/// Closes memory of another process. Waits for all commands of the context, which may use the memory.
pub(crate) fn close_memory(address: u64) -> Result<()> {
    let ctx = current()?;
    potentially_unsafe()?;
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
    out.put(Event::add(&ctx, event::SHARED, Some(shared))?)
}
