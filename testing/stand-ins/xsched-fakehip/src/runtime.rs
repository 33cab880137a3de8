//! State of the process: the driver and the devices.

use crate::driver::Driver;
use crate::result::{Error, Result};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The driver and the devices, which exist once in a process.
pub(crate) struct Runtime {
    pub(crate) driver: Driver,
    pub(crate) devices: Vec<Device>,
}

/// A device, and its context once it has one.
pub(crate) struct Device {
    pub(crate) number: usize,
    context: Mutex<Option<Arc<Context>>>,
    /// Number of resets: a thread sees by it that its context is gone.
    resets: AtomicU64,
}

/// The one context of a device.
pub(crate) struct Context {
    pub(crate) handle: usize,
    /// The driver's functions, one for each kernel of this library.
    pub(crate) kernels: OnceLock<Result<Vec<usize>>>,
    /// Addresses of the registered variables on this device, by the host address of the variable.
    pub(crate) variables: Mutex<std::collections::HashMap<usize, u64>>,
}

static RUNTIME: OnceLock<Result<Runtime>> = OnceLock::new();

thread_local! {
    /// Number of the device that this thread has selected.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Device, and its number of resets, whose context is the driver's current one on this thread.
    static BOUND: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

/// Locks a mutex, even if an earlier holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the runtime. The first call opens the driver, and its outcome stands for the life of the process.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    RUNTIME.get_or_init(Runtime::new).as_ref().map_err(|&error| error)
}

/// Reports whether an earlier call has opened the driver. Opens nothing itself.
pub(crate) fn is_up() -> bool {
    RUNTIME.get().is_some_and(Result::is_ok)
}

pub(crate) fn driver() -> Result<&'static Driver> {
    Ok(&runtime()?.driver)
}

impl Runtime {
    fn new() -> Result<Self> {
        let driver = Driver::open().map_err(|_| Error::NO_DEVICE)?;
        let mut count = 0;
        driver.device_count(&raw mut count).map_err(|_| Error::NO_DEVICE)?;
        let count = usize::try_from(count).ok().filter(|&n| n > 0).ok_or(Error::NO_DEVICE)?;
        let device = |number| Device { number, context: Mutex::default(), resets: AtomicU64::new(0) };
        Ok(Self { driver, devices: (0..count).map(device).collect() })
    }
}

impl Device {
    /// Returns the context, which is created when it is first needed.
    pub(crate) fn context(&self) -> Result<Arc<Context>> {
        let mut context = lock(&self.context);
        if let Some(context) = &*context {
            return Ok(context.clone());
        }
        let mut handle = 0;
        driver()?.primary_retain(&raw mut handle, self.number as i32)?;
        let made = Arc::new(Context { handle, kernels: OnceLock::new(), variables: Mutex::default() });
        *context = Some(made.clone());
        Ok(made)
    }

    pub(crate) fn is_active(&self) -> bool {
        lock(&self.context).is_some()
    }

    /// Drops the context, and reports whether there was one.
    pub(crate) fn lose_context(&self) -> bool {
        let had = lock(&self.context).take().is_some();
        if had {
            self.resets.fetch_add(1, AcqRel);
        }
        had
    }

    /// Makes the device's context the driver's current one on this thread.
    fn bind(&self) -> Result<()> {
        let wanted = (self.number, self.resets.load(Acquire));
        if BOUND.get() == Some(wanted) {
            return Ok(());
        }
        driver()?.set_current(self.context()?.handle)?;
        BOUND.set(Some(wanted));
        Ok(())
    }
}

/// Number of this thread's device.
pub(crate) fn current_number() -> usize {
    CURRENT.get()
}

/// This thread's device.
pub(crate) fn current() -> Result<&'static Device> {
    device(CURRENT.get())
}

/// A device by its number.
pub(crate) fn device(number: usize) -> Result<&'static Device> {
    runtime()?.devices.get(number).ok_or(Error::INVALID_DEVICE)
}

/// A device by the number that a program passed.
pub(crate) fn given(number: i32) -> Result<&'static Device> {
    device(usize::try_from(number).map_err(|_| Error::INVALID_DEVICE)?)
}

/// Selects a device for this thread.
pub(crate) fn choose(number: usize) -> Result<()> {
    let chosen = device(number)?;
    CURRENT.set(number);
    chosen.bind()
}

/// Makes this thread's device current: the first step of every call that needs a device. Without a device, real
/// runtimes answer "invalid device".
pub(crate) fn enter() -> Result<()> {
    if runtime().is_err() {
        return Err(Error::INVALID_DEVICE);
    }
    current()?.bind()
}

/// Runs `body` with another device's context as the driver's current one, and makes this thread's current again.
pub(crate) fn on_device<T>(number: usize, body: impl FnOnce() -> Result<T>) -> Result<T> {
    device(number)?.bind()?;
    let result = body();
    current()?.bind()?;
    result
}
