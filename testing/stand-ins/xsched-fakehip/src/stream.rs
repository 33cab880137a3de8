//! Streams of HIP: their handles, priorities and callbacks.

use crate::driver::Callback;
use crate::edge::{Null, gave};
use crate::registry::Registry;
use crate::result::{Error, Result};
use crate::runtime::{current, current_number, driver, on_device, runtime};
use crate::stats::{self, COUNTERS};
use fakecuda::{In, Out};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, LazyLock};

/// The driver's handles of the default streams, which are also HIP's.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// hipStreamNonBlocking.
const NON_BLOCKING: c_uint = 1;

/// Lowest and highest priority. A smaller number is more urgent.
pub(crate) const PRIORITIES: (c_int, c_int) = (1, -1);

/// A stream that a program created.
pub(crate) struct Stream {
    /// The driver's handle.
    pub(crate) real: usize,
    pub(crate) device: usize,
    flags: c_uint,
    priority: c_int,
    cu_mask: Vec<u32>,
}

static STREAMS: LazyLock<Registry<Stream>> = LazyLock::new(Registry::new);

/// Streams by handle.
pub(crate) fn streams() -> Result<&'static Registry<Stream>> {
    runtime().map(|_| &*STREAMS)
}

/// The stream that a call names by its handle.
#[derive(Clone)]
pub(crate) struct Target {
    /// The driver's handle.
    pub(crate) real: usize,
    pub(crate) device: usize,
    stream: Option<Arc<Stream>>,
}

/// Number of active captures: at 0, no command need ask the driver whether it is recorded.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn capture_began() {
    CAPTURES.fetch_add(1, SeqCst);
}

pub(crate) fn capture_ended() {
    // A capture that ended with its stream was subtracted when the stream was destroyed.
    let _ = CAPTURES.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
}

impl Target {
    /// Finds the stream of a handle.
    pub(crate) fn find(null: Null, handle: usize) -> Result<Self> {
        let default = match (handle, null) {
            (0, Null::Legacy) | (LEGACY, _) => Some(LEGACY),
            (0, Null::PerThread) | (PER_THREAD, _) => Some(PER_THREAD),
            _ => None,
        };
        if let Some(real) = default {
            return Ok(Self { real, device: current_number(), stream: None });
        }
        match streams()?.get(handle) {
            Some(stream) => Ok(Self { real: stream.real, device: stream.device, stream: Some(stream) }),
            None => stats::wrong(&format!("stream {handle:#x} does not exist"), Error::CONTEXT_IS_DESTROYED),
        }
    }

    /// Runs `body` with the context of the stream's device as the driver's current one.
    pub(crate) fn with<T>(&self, body: impl FnOnce(usize) -> Result<T>) -> Result<T> {
        if self.device == current_number() { body(self.real) } else { on_device(self.device, || body(self.real)) }
    }

    /// Reports whether a capture is recording the commands of this stream.
    pub(crate) fn is_capturing(&self) -> bool {
        if CAPTURES.load(Relaxed) == 0 {
            return false;
        }
        let mut status = 0;
        let asked = self.with(|real| driver()?.capture_status(real, &raw mut status));
        asked.is_ok() && status != 0
    }

    /// Submits a command of a kind that counts as one. `count` is called once, if the command will run.
    pub(crate) fn issue(&self, count: impl FnOnce(), body: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        let captured = self.is_capturing();
        self.with(body)?;
        if captured {
            stats::add(&COUNTERS.captured);
        } else {
            count();
            gave();
        }
        Ok(())
    }

    /// Submits a command that is no launch, copy or set, and so does not count as a command of its function.
    pub(crate) fn order(&self, count: impl FnOnce(), body: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        let captured = self.is_capturing();
        self.with(body)?;
        if captured {
            stats::add(&COUNTERS.captured);
        } else {
            count();
        }
        Ok(())
    }

    fn flags(&self) -> c_uint {
        self.stream.as_ref().map_or(0, |stream| stream.flags)
    }

    fn priority(&self) -> c_int {
        self.stream.as_ref().map_or(0, |stream| stream.priority)
    }
}

fn make(out: Out<usize>, flags: c_uint, priority: c_int, cu_mask: Vec<u32>) -> Result<()> {
    let out = out.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    // HIP: -1 high, 0 normal, 1 low. CUDA's lowest is 0 and higher ones are negative: these three are spread over its
    // range.
    let (mut least, mut greatest) = (0, 0);
    driver()?.priority_range(&raw mut least, &raw mut greatest)?;
    let real_priority = match priority {
        -1 => greatest,
        0 => (least + greatest) / 2,
        _ => least,
    };
    let mut real = 0;
    driver()?.stream_create(&raw mut real, flags, real_priority)?;
    let device = current_number();
    let mut handle = 0;
    streams()?.add(|made| {
        handle = made;
        Stream { real, device, flags, priority, cu_mask }
    });
    Ok(out.put(handle)?)
}

pub(crate) fn create(out: Out<usize>) -> Result<()> {
    make(out, 0, 0, Vec::new())
}

pub(crate) fn create_with_flags(out: Out<usize>, flags: c_uint) -> Result<()> {
    make(out, flags, 0, Vec::new())
}

pub(crate) fn create_with_priority(out: Out<usize>, flags: c_uint, priority: c_int) -> Result<()> {
    make(out, flags, priority, Vec::new())
}

/// Creates a stream with a mask of compute units, which is stored and reported, but has no effect.
pub(crate) fn create_with_cu_mask(out: Out<usize>, words: u32, mask: In<u32>) -> Result<()> {
    if words == 0 {
        return Err(Error::INVALID_VALUE);
    }
    make(out, 0, 0, mask.list(words as usize)?)
}

pub(crate) fn get_cu_mask(handle: usize, words: u32, out: Out<u32>) -> Result<()> {
    let target = Target::find(Null::Legacy, handle)?;
    let mask = target.stream.as_ref().map(|stream| stream.cu_mask.clone()).unwrap_or_default();
    let all = std::iter::repeat(if mask.is_empty() { u32::MAX } else { 0 });
    out.required()?.list(mask.into_iter().chain(all).take(words as usize));
    Ok(())
}

pub(crate) fn priority_range(least: Out<c_int>, greatest: Out<c_int>) -> Result<()> {
    least.maybe(PRIORITIES.0);
    greatest.maybe(PRIORITIES.1);
    Ok(())
}

pub(crate) fn destroy(handle: usize) -> Result<()> {
    if handle <= PER_THREAD {
        return Err(Error::INVALID_HANDLE);
    }
    let target = Target::find(Null::Legacy, handle)?;
    if target.is_capturing() {
        capture_ended();
    }
    streams()?.remove(handle);
    target.with(|real| driver()?.stream_destroy(real))
}

pub(crate) fn query(null: Null, handle: usize) -> Result<()> {
    Target::find(null, handle)?.with(|real| driver()?.stream_query(real))
}

pub(crate) fn synchronize(null: Null, handle: usize) -> Result<()> {
    Target::find(null, handle)?.with(|real| driver()?.stream_synchronize(real))
}

pub(crate) fn get_flags(null: Null, handle: usize, out: Out<c_uint>) -> Result<()> {
    Ok(out.put(Target::find(null, handle)?.flags())?)
}

pub(crate) fn get_priority(null: Null, handle: usize, out: Out<c_int>) -> Result<()> {
    Ok(out.put(Target::find(null, handle)?.priority())?)
}

pub(crate) fn get_device(handle: usize, out: Out<c_int>) -> Result<()> {
    Ok(out.put(Target::find(Null::Legacy, handle)?.device as c_int)?)
}

/// hipGetStreamDeviceId, which returns a number instead of a result: -1 if there is no such stream.
pub(crate) fn device_id(handle: usize) -> c_int {
    Target::find(Null::Legacy, handle).map_or(-1, |target| target.device as c_int)
}

pub(crate) fn get_id(handle: usize, out: Out<u64>) -> Result<()> {
    Target::find(Null::Legacy, handle)?;
    Ok(out.put(handle as u64)?)
}

/// `hipStreamCallback_t`.
type HipCallback = unsafe extern "C" fn(usize, c_int, *mut c_void);

/// A program's callback, on its way through the driver.
struct Packed {
    stream: usize,
    function: HipCallback,
    data: *mut c_void,
}

/// Calls the program's callback with the handle that the program knows.
unsafe extern "C" fn unpack(_: usize, status: c_int, data: *mut c_void) {
    // SAFETY: made by `add_callback` for this one call.
    let packed = unsafe { Box::from_raw(data.cast::<Packed>()) };
    // SAFETY: the program gave this function and its argument for this.
    unsafe { (packed.function)(packed.stream, status, packed.data) }
}

pub(crate) fn add_callback(
    null: Null,
    handle: usize,
    function: Option<HipCallback>,
    data: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    let function = function.filter(|_| flags == 0).ok_or(Error::INVALID_VALUE)?;
    let target = Target::find(null, handle)?;
    let packed = Box::into_raw(Box::new(Packed { stream: handle, function, data }));
    let callback: Callback = unpack;
    target.order(|| (), |real| driver()?.stream_callback(real, callback, packed.cast(), 0)).inspect_err(|_| {
        // SAFETY: the driver refused it and will not call.
        drop(unsafe { Box::from_raw(packed) });
    })
}

pub(crate) fn launch_host_function(
    null: Null,
    handle: usize,
    function: Option<crate::driver::HostFunction>,
    data: *mut c_void,
) -> Result<()> {
    let function = function.ok_or(Error::INVALID_VALUE)?;
    Target::find(null, handle)?.order(|| (), |real| driver()?.host_function(real, function, data))
}

pub(crate) fn device_synchronize() -> Result<()> {
    current()?;
    driver()?.synchronize()
}
