//! Contexts: each is a context of the simulated device.

use crate::books::{Blocks, Shares};
use crate::edge::{In, Out};
use crate::mps::Pool;
use crate::process::{device, driver, known, note_fds, of_the_machine};
use crate::result::{Error, Result};
use crate::rm::Group;
use crate::sequence::no_capture_in;
use crate::slab::Slab;
use crate::stats::{self, COUNTERS, Counters};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use xsched_sim::client::{self, Mark, Ordering, lock};
use xsched_sim::command::Fault;

/// A context.
pub(crate) struct Ctx {
    pub(crate) handle: usize,
    pub(crate) id: u64,
    pub(crate) device: usize,
    pub(crate) primary: bool,
    flags: AtomicU32,
    pub(crate) alive: AtomicBool,
    pub(crate) sim: &'static client::Context,
    pub(crate) home: Home,
    pub(crate) memory: Blocks,
    pub(crate) ipc: Shares,
}

/// Home of a context on the device.
pub(crate) enum Home {
    /// Channel groups of its own.
    Groups(Arc<Group>),
    /// A context of an MPS server, joined by the invitation of this number.
    Pool(&'static Pool, u64),
}

impl Home {
    fn new(device: usize) -> Result<(&'static client::Context, Self)> {
        let number = of_the_machine(device);
        if let Some(pool) = &driver()?.pool {
            let (sim, invitation) = pool.join(number)?;
            return Ok((sim, Self::Pool(pool, invitation)));
        }
        let number = u8::try_from(number).map_err(|_| Error::INVALID_DEVICE)?;
        let sim = client::Context::new(number, Ordering::Barrier)?;
        Ok((sim, Self::Groups(Group::new(sim)?)))
    }

    /// Leaves the home, before the context ends.
    pub(crate) fn leave(&self) {
        match self {
            Self::Groups(group) => group.end(),
            Self::Pool(pool, invitation) => pool.leave(*invitation),
        }
    }
}

/// A device's primary context.
#[derive(Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<Arc<Ctx>>,
    pub(crate) references: u64,
    pub(crate) flags: c_uint,
    /// Fault of a kernel in a primary context of this device, if there was one.
    pub(crate) fault: Option<Fault>,
}

/// Contexts by handle.
pub(crate) static CONTEXTS: Slab<Ctx> = Slab::new(0x51);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Handles of the contexts current on this thread, the top one last; 0 = none was set. Never dropped, since exit
    /// handlers call drivers too.
    static STACK: ManuallyDrop<RefCell<Vec<usize>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Locks a device's primary context.
pub(crate) fn primary(device: usize) -> Result<MutexGuard<'static, Primary>> {
    static PRIMARIES: OnceLock<Vec<Mutex<Primary>>> = OnceLock::new();
    let devices = driver()?.devices;
    Ok(lock(&PRIMARIES.get_or_init(|| (0..devices).map(|_| Mutex::default()).collect())[device]))
}

/// Calls `body` with this thread's stack of contexts.
pub(crate) fn stack<T>(body: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK.with(|stack| body(&mut stack.borrow_mut()))
}

/// Memory that each context itself takes of its device, in bytes: `FAKECUDA_CONTEXT_MIB`.
fn own_bytes() -> u64 {
    mib_of("FAKECUDA_CONTEXT_MIB") << 20
}

/// Value of a variable in MiB; 0 = it is not set.
pub(crate) fn mib_of(variable: &str) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Ctx {
    fn new(device: usize, primary: bool, flags: c_uint) -> Result<Arc<Self>> {
        let (sim, home) = Home::new(device)?;
        note_fds(&sim.fds());
        let own = own_bytes();
        if own > 0
            && let Err(error) = sim.take(own)
        {
            home.leave();
            sim.close();
            return Err(error.into());
        }
        Counters::add(&COUNTERS.contexts);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        Ok(CONTEXTS.add(|handle| {
            Arc::new(Self {
                handle,
                id,
                device,
                primary,
                flags: flags.into(),
                alive: AtomicBool::new(true),
                sim,
                home,
                memory: Blocks::default(),
                ipc: Shares::default(),
            })
        }))
    }

    /// Fails if the context is gone, or if a kernel has faulted in it or in the MPS server's context that it belongs
    /// to.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.alive.load(Acquire) {
            stats::illegal(format!("context {:#x} is destroyed", self.handle));
            return Err(Error::CONTEXT_IS_DESTROYED);
        }
        if let Some(fault) = self.sim.fault() {
            return Err(fault.into());
        }
        if matches!(self.home, Home::Pool(..)) && self.sim.is_lost() {
            return Err(Error::MPS_CLIENT_TERMINATED);
        }
        Ok(())
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Acquire)
    }

    /// Waits for a mark. Fails if the context has failed meanwhile.
    pub(crate) fn wait(&self, mark: Mark) -> Result<()> {
        let waited = self.sim.wait(mark);
        self.check()?;
        Ok(waited?)
    }

    /// Frees memory that waited for a synchronisation, which has ended.
    pub(crate) fn synchronized(&self) {
        self.memory.reap(self.sim);
        if let Some(call) = AFTER.get() {
            call();
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.check()?;
        no_capture_in(self.id)?;
        let waited = self.sim.synchronize();
        self.check()?;
        self.synchronized();
        Ok(waited?)
    }
}

/// Called after a synchronisation.
static AFTER: OnceLock<fn()> = OnceLock::new();

/// Has a function called after each synchronisation.
pub(crate) fn after_synchronising(call: fn()) {
    let _ = AFTER.set(call);
}

/// Frees the memory whose streams have reached its end, of all contexts.
pub(crate) fn reap_all() {
    CONTEXTS.all().iter().for_each(|ctx| ctx.memory.reap(ctx.sim));
}

/// The context of a handle.
pub(crate) fn find(handle: usize) -> Result<Arc<Ctx>> {
    let found = CONTEXTS.get(handle);
    known("context", handle, found)
        .map_err(|_| if handle == 0 { Error::INVALID_CONTEXT } else { Error::CONTEXT_IS_DESTROYED })
}

/// Handle of the calling thread's context; 0 = none.
pub(crate) fn top() -> usize {
    stack(|stack| stack.last().copied().unwrap_or(0))
}

/// The calling thread's context. Fails if it may no longer be used.
pub(crate) fn current() -> Result<Arc<Ctx>> {
    let ctx = find(top())?;
    ctx.check()?;
    Ok(ctx)
}

/// The context of a handle; 0 = the calling thread's.
pub(crate) fn given(handle: usize) -> Result<Arc<Ctx>> {
    if handle == 0 { current() } else { find(handle) }
}

pub(crate) fn primary_retain(out: Out<usize>, number: c_int) -> Result<()> {
    let (device, out) = (device(number)?, out.required()?);
    let mut primary = primary(device)?;
    // Driver 580 never gives such a process another context, even after a reset.
    if let Some(fault) = primary.fault {
        return Err(fault.into());
    }
    let context = match &primary.context {
        Some(context) => context.clone(),
        None => {
            let context = Ctx::new(device, true, primary.flags)?;
            primary.context = Some(context.clone());
            context
        }
    };
    primary.references += 1;
    out.put(context.handle)
}

pub(crate) fn primary_state(number: c_int, flags: Out<c_uint>, active: Out<c_int>) -> Result<()> {
    let primary = primary(device(number)?)?;
    flags.maybe(primary.flags);
    active.maybe(primary.context.is_some().into());
    Ok(())
}

pub(crate) fn primary_set_flags(number: c_int, flags: c_uint) -> Result<()> {
    let mut primary = primary(device(number)?)?;
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Relaxed);
    }
    Ok(())
}

pub(crate) fn create(out: Out<usize>, flags: c_uint, number: c_int) -> Result<()> {
    let (device, out) = (device(number)?, out.required()?);
    let context = Ctx::new(device, false, flags)?;
    stack(|stack| stack.push(context.handle));
    out.put(context.handle)
}

pub(crate) fn create_v3(out: Out<usize>, _: In<u8>, affinities: c_int, flags: c_uint, number: c_int) -> Result<()> {
    if affinities != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    create(out, flags, number)
}

pub(crate) fn create_v4(out: Out<usize>, _: In<u8>, flags: c_uint, number: c_int) -> Result<()> {
    create(out, flags, number)
}

pub(crate) fn push(handle: usize) -> Result<()> {
    let context = find(handle)?;
    stack(|stack| stack.push(context.handle));
    Ok(())
}

pub(crate) fn pop(out: Out<usize>) -> Result<()> {
    let handle = stack(Vec::pop).filter(|&handle| handle != 0).ok_or(Error::INVALID_CONTEXT)?;
    out.maybe(handle);
    Ok(())
}

pub(crate) fn set_current(handle: usize) -> Result<()> {
    if handle != 0 {
        find(handle)?;
    }
    stack(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
    Ok(())
}

pub(crate) fn get_current(out: Out<usize>) -> Result<()> {
    out.put(top())
}

pub(crate) fn get_device(out: Out<c_int>) -> Result<()> {
    get_device_of(out, top())
}

pub(crate) fn get_device_of(out: Out<c_int>, handle: usize) -> Result<()> {
    let handle = if handle == 0 { top() } else { handle };
    out.put(find(handle)?.device as c_int)
}

pub(crate) fn get_id(handle: usize, out: Out<u64>) -> Result<()> {
    out.put(given(handle)?.id)
}

pub(crate) fn get_flags(out: Out<c_uint>) -> Result<()> {
    out.put(current()?.flags.load(Relaxed))
}

pub(crate) fn set_flags(flags: c_uint) -> Result<()> {
    current()?.flags.store(flags, Relaxed);
    Ok(())
}

pub(crate) fn get_api_version(handle: usize, out: Out<c_uint>) -> Result<()> {
    given(handle)?;
    out.put(3020)
}

pub(crate) fn get_limit(out: Out<usize>, limit: c_uint) -> Result<()> {
    current()?;
    // Stack size, printf buffer, heap of device-side malloc.
    out.put(match limit {
        0 => 1024,
        1 => 1 << 20,
        2 => 8 << 20,
        _ => return Err(Error::NOT_SUPPORTED),
    })
}

pub(crate) fn set_limit(limit: c_uint, _: usize) -> Result<()> {
    current()?;
    if limit > 2 { Err(Error::NOT_SUPPORTED) } else { Ok(()) }
}

/// Lowest and highest priority: a smaller number is more urgent.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

pub(crate) fn priority_range(least: Out<c_int>, greatest: Out<c_int>) -> Result<()> {
    current()?;
    least.maybe(PRIORITIES.0);
    greatest.maybe(PRIORITIES.1);
    Ok(())
}

pub(crate) fn get_config(out: Out<c_int>) -> Result<()> {
    current()?;
    out.put(0)
}

pub(crate) fn set_config(_: c_uint) -> Result<()> {
    current().map(drop)
}

pub(crate) fn synchronize() -> Result<()> {
    current()?.synchronize()
}

pub(crate) fn synchronize_given(handle: usize) -> Result<()> {
    given(handle)?.synchronize()
}

/// Answers no: no device can access another's memory, and no context another's.
pub(crate) fn can_access_peer(out: Out<c_int>, one: c_int, other: c_int) -> Result<()> {
    device(one)?;
    device(other)?;
    out.put(0)
}
