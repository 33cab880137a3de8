//! What belongs to the process: the driver and the devices.

use crate::driver::Driver;
use crate::result::{Error, Result};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// What there is of each once.
pub(crate) struct Runtime {
    pub(crate) driver: Driver,
    pub(crate) devices: Vec<Device>,
}

/// A device.
pub(crate) struct Device {
    pub(crate) number: usize,
    context: Mutex<Option<Arc<Context>>>,
    /// Grows with each reset, so that threads see that their context is gone.
    resets: AtomicU64,
}

/// A device's one context.
pub(crate) struct Context {
    pub(crate) handle: usize,
    /// The driver's functions, one for each kernel of ours.
    pub(crate) kernels: OnceLock<Result<Vec<usize>>>,
    /// What code objects' variables are on this device: address by name and registration.
    pub(crate) variables: Mutex<std::collections::HashMap<usize, u64>>,
}

static RUNTIME: OnceLock<Result<Runtime>> = OnceLock::new();

thread_local! {
    /// The device that this thread chose.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Device and its resets for which this thread has the driver's context set.
    static BOUND: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

/// A lock whose holder may have panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// The runtime; the first call makes it, and says for good whether there is one.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    RUNTIME.get_or_init(Runtime::new).as_ref().map_err(|&error| error)
}

/// Has some call made it already?
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
    /// Its context, made when it is first needed.
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

    /// Loses its context. False if it had none.
    pub(crate) fn lose_context(&self) -> bool {
        let had = lock(&self.context).take().is_some();
        if had {
            self.resets.fetch_add(1, AcqRel);
        }
        had
    }

    /// Makes it the driver's device for this thread.
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

/// A device by the number that a program gave.
pub(crate) fn given(number: i32) -> Result<&'static Device> {
    device(usize::try_from(number).map_err(|_| Error::INVALID_DEVICE)?)
}

/// Makes a device this thread's.
pub(crate) fn choose(number: usize) -> Result<()> {
    let chosen = device(number)?;
    CURRENT.set(number);
    chosen.bind()
}

/// What every call that needs a device does first. Without one, real runtimes answer "invalid device".
pub(crate) fn enter() -> Result<()> {
    if runtime().is_err() {
        return Err(Error::INVALID_DEVICE);
    }
    current()?.bind()
}

/// Does something with another device as the driver's.
pub(crate) fn on_device<T>(number: usize, body: impl FnOnce() -> Result<T>) -> Result<T> {
    device(number)?.bind()?;
    let result = body();
    current()?.bind()?;
    result
}
