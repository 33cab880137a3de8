//! Memory pools: memory that is allocated and freed in the order of a stream.
//!
//! A pool has memory of the device in whole units (*reserved*), of which blocks are in use. What is not in use stays with
//! the pool until a synchronisation, as far as it is more than the pool's threshold. Which pages those are is of no
//! interest: a block lies anywhere in the arena of its context.

use crate::books::Keeper;
use crate::context::{after_synchronising, reap_all};
use crate::edge::{In, Out};
use crate::process::{device, driver};
use crate::result::{Error, Result};
use crate::slab::Slab;
use crate::vmm::{GRANULARITY, Location, keeper_of};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock};
use xsched_sim::client::lock;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    windows: usize,
    most: usize,
}

/// A pool.
pub(crate) struct Pool {
    pub(crate) handle: usize,
    device: usize,
    /// Upper limit of its memory in bytes; 0 = none.
    most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Memory that it keeps at a synchronisation, in bytes.
    threshold: u64,
    /// Ways of reuse that are allowed: attributes 1 to 3. They are kept, without effect.
    reuse: [c_int; 3],
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    destroyed: bool,
}

/// Pools of a device: its own, and the one that is used unless another is named.
struct OfDevice {
    own: Arc<Pool>,
    current: Mutex<Arc<Pool>>,
}

/// Pools by handle.
static POOLS: Slab<Pool> = Slab::new(0x59);

fn of_device(number: usize) -> Result<&'static OfDevice> {
    static ALL: OnceLock<Vec<OfDevice>> = OnceLock::new();
    let devices = driver()?.devices;
    after_synchronising(keep_less);
    let make = |device| {
        let own = Pool::add(device, 0);
        OfDevice { current: Mutex::new(own.clone()), own }
    };
    ALL.get_or_init(|| (0..devices).map(make).collect()).get(number).ok_or(Error::INVALID_DEVICE)
}

fn find(handle: usize) -> Result<Arc<Pool>> {
    POOLS.get(handle).ok_or(Error::INVALID_VALUE)
}

impl Pool {
    fn add(device: usize, most: u64) -> Arc<Self> {
        let state = Mutex::new(State { reuse: [1; 3], ..State::default() });
        POOLS.add(|handle| Arc::new(Self { handle, device, most, state }))
    }

    /// Gives memory that is not in use back to the device, down to `least` bytes.
    fn keep(&self, state: &mut State, least: u64) {
        let kept = state.used.max(least).next_multiple_of(GRANULARITY);
        if kept < state.reserved
            && let Ok(keeper) = keeper_of(self.device)
            && keeper.give(state.reserved - kept).is_ok()
        {
            state.reserved = kept;
        }
    }
}

impl Keeper for Pool {
    fn handle(&self) -> usize {
        self.handle
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let used = state.used.checked_add(bytes).ok_or(Error::OUT_OF_MEMORY)?;
        if used > state.reserved {
            let reserved = used.checked_next_multiple_of(GRANULARITY).ok_or(Error::OUT_OF_MEMORY)?;
            if self.most != 0 && reserved > self.most {
                return Err(Error::OUT_OF_MEMORY);
            }
            keeper_of(self.device)?.take(reserved - state.reserved)?;
            state.reserved = reserved;
        }
        state.used = used;
        state.used_high = state.used_high.max(used);
        state.reserved_high = state.reserved_high.max(state.reserved);
        Ok(())
    }

    fn returned(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.used = state.used.saturating_sub(bytes);
        if state.destroyed && state.used == 0 {
            self.keep(&mut state, 0);
        }
    }
}

/// Pool that a device uses unless another is named.
pub(crate) fn current(number: usize) -> Result<Arc<Pool>> {
    Ok(lock(&of_device(number)?.current).clone())
}

/// The pool of a handle, for memory of this device.
pub(crate) fn given(handle: usize, number: usize) -> Result<Arc<Pool>> {
    // Makes sure that the devices' own pools exist.
    of_device(number)?;
    find(handle)
}

/// Gives memory that pools need not keep back to the device, once a synchronisation has ended.
fn keep_less() {
    for pool in POOLS.all() {
        let state = &mut *lock(&pool.state);
        pool.keep(state, state.threshold.min(state.reserved));
    }
}

pub(crate) fn create(out: Out<usize>, properties: In<Properties>) -> Result<()> {
    let (out, properties) = (out.required()?, properties.get()?);
    // CU_MEM_ALLOCATION_TYPE_PINNED
    if properties.kind != 1 {
        return Err(Error::INVALID_VALUE);
    }
    if properties.handles != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    let device = properties.location.device()?;
    of_device(device)?;
    out.put(Pool::add(device, properties.most as u64).handle)
}

/// Memory in use stays until it is freed.
pub(crate) fn destroy(handle: usize) -> Result<()> {
    let pool = find(handle)?;
    let of = of_device(pool.device)?;
    if Arc::ptr_eq(&of.own, &pool) {
        return Err(Error::INVALID_VALUE);
    }
    POOLS.remove(handle);
    let mut current = lock(&of.current);
    if Arc::ptr_eq(&current, &pool) {
        *current = of.own.clone();
    }
    let state = &mut *lock(&pool.state);
    state.destroyed = true;
    pool.keep(state, 0);
    Ok(())
}

pub(crate) fn default(out: Out<usize>, number: c_int) -> Result<()> {
    out.put(of_device(device(number)?)?.own.handle)
}

pub(crate) fn get_current(out: Out<usize>, number: c_int) -> Result<()> {
    out.put(current(device(number)?)?.handle)
}

pub(crate) fn set_current(number: c_int, handle: usize) -> Result<()> {
    let (device, pool) = (device(number)?, find(handle)?);
    if pool.device != device {
        return Err(Error::INVALID_VALUE);
    }
    *lock(&of_device(device)?.current) = pool;
    Ok(())
}

pub(crate) fn trim(handle: usize, keep: usize) -> Result<()> {
    let pool = find(handle)?;
    pool.keep(&mut lock(&pool.state), keep as u64);
    Ok(())
}

/// An attribute: words of 4 bytes up to the third, then of 8.
pub(crate) fn attribute(handle: usize, which: c_uint, value: Out<c_void>) -> Result<()> {
    let (pool, value) = (find(handle)?, value.required()?);
    reap_all();
    let state = lock(&pool.state);
    // SAFETY: no `T` is read or written by the cast; the attribute decides what is.
    let as_double = || unsafe { std::mem::transmute::<Out<c_void>, Out<u64>>(value) };
    match which {
        // SAFETY: as above.
        1..=3 => unsafe { std::mem::transmute::<Out<c_void>, Out<c_int>>(value) }.put(state.reuse[which as usize - 1]),
        4 => as_double().put(state.threshold),
        5 => as_double().put(state.reserved),
        6 => as_double().put(state.reserved_high),
        7 => as_double().put(state.used),
        8 => as_double().put(state.used_high),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Sets an attribute. The highest amounts can be set to 0 only, which makes them the present ones.
pub(crate) fn set_attribute(handle: usize, which: c_uint, value: Out<c_void>) -> Result<()> {
    let (pool, value) = (find(handle)?, value.required()?);
    let mut state = lock(&pool.state);
    // SAFETY: no `T` is read or written by the cast; the attribute decides what is.
    let double = || unsafe { std::mem::transmute::<Out<c_void>, Out<u64>>(value) }.read();
    match which {
        1..=3 => {
            // SAFETY: as above.
            state.reuse[which as usize - 1] =
                unsafe { std::mem::transmute::<Out<c_void>, Out<c_int>>(value) }.read()?;
        }
        4 => state.threshold = double()?,
        6 if double()? == 0 => state.reserved_high = state.reserved,
        8 if double()? == 0 => state.used_high = state.used,
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}
