//! The exported functions: see include/simdev.h. Each checks its arguments and passes them on; none calls another.

use crate::error::{Error, Result, edge, put};
use crate::process::{context, contexts, current, current_device, device, device_count, event, reset};
use crate::process::{set_current_device, stream};
use crate::transfer::{free, memcpy, memset_action};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use xsched_sim::client::{Slot, lock};
use xsched_sim::command::{Action, Condition, KernelOp, Width};
use xsched_sim::layout::MAX_TIMESLICE_US;
use xsched_sim::wire::Request;

/// `struct simKernel`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimKernel {
    op: u32,
    count: u32,
    duration_ns: u64,
    x: *mut f32,
    y: *mut f32,
    a: f32,
}

/// `struct simCounters`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimCounters {
    launched: u64,
    completed: u64,
    switches: u64,
    launched_total_device: u64,
}

type Raw = *mut c_void;

/// A host function of the program.
type HostFunction = unsafe extern "C" fn(Raw);

/// A host function's argument.
struct Argument(Raw);

// SAFETY: the pointer is the program's, which has it used on another thread by calling simLaunchHostFunc.
unsafe impl Send for Argument {}

impl Argument {
    fn get(&self) -> Raw {
        self.0
    }
}

/// Defines the exported functions, and a lookup of them for simGetProcAddress.
macro_rules! exports {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            /// See include/simdev.h.
            ///
            /// # Safety
            /// Pointers must be valid for the accesses that the header describes.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                edge(|| -> Result<()> { $body })
            }
        )*
        fn address(name: &str) -> Option<*mut c_void> {
            match name {
                $(stringify!($name) => Some($name as unsafe extern "C" fn($($type),*) -> c_int as *mut c_void),)*
                _ => None,
            }
        }
    };
}

exports! {
fn simInit(flags: c_uint) {
    if flags != 0 {
        return Err(Error::InvalidValue);
    }
    device_count().map(drop)
}

fn simDeviceGetCount(count: *mut c_int) {
    // SAFETY: as the caller says.
    unsafe { put(count, device_count()?.into()) }
}

fn simDeviceGetName(name: *mut c_char, len: c_int, dev: c_int) {
    let text = format!("Simulated device {}", device(dev)?);
    let room = usize::try_from(len).ok().filter(|&n| n > 0 && !name.is_null()).ok_or(Error::InvalidValue)?;
    let used = text.len().min(room - 1);
    // SAFETY: `used + 1 <= len` bytes fit, as the caller says.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, used);
        name.add(used).write(0);
    }
    Ok(())
}

fn simSetDevice(dev: c_int) {
    set_current_device(device(dev)?);
    Ok(())
}

fn simGetDevice(dev: *mut c_int) {
    // SAFETY: as the caller says.
    unsafe { put(dev, current_device().into()) }
}

fn simDeviceSynchronize() {
    current()?.synchronize()
}

fn simDeviceReset() {
    reset();
    Ok(())
}

fn simStreamCreate(stream: *mut Raw) {
    if stream.is_null() {
        return Err(Error::InvalidValue);
    }
    // SAFETY: as the caller says.
    unsafe { put(stream, current()?.create_stream(0)?) }
}

fn simStreamCreateWithPriority(stream: *mut Raw, priority: c_int) {
    if stream.is_null() || !(-2..=2).contains(&priority) {
        return Err(Error::InvalidValue);
    }
    // SAFETY: as the caller says.
    unsafe { put(stream, current()?.create_stream(priority)?) }
}

fn simStreamGetPriority(handle: Raw, priority: *mut c_int) {
    let (context, slot) = stream(handle)?;
    // SAFETY: as the caller says.
    unsafe { put(priority, context.priority(slot)?) }
}

fn simStreamDestroy(handle: Raw) {
    let (context, slot) = stream(handle)?;
    context.destroy_stream(slot)
}

fn simStreamSynchronize(handle: Raw) {
    let (context, slot) = stream(handle)?;
    context.wait(context.end(slot)?)
}

fn simStreamQuery(handle: Raw) {
    let (context, slot) = stream(handle)?;
    context.query(context.end(slot)?)
}

fn simEventCreate(event: *mut Raw) {
    if event.is_null() {
        return Err(Error::InvalidValue);
    }
    // SAFETY: as the caller says.
    unsafe { put(event, current()?.create_event()?) }
}

fn simEventDestroy(handle: Raw) {
    let (context, handle) = event(handle)?;
    context.destroy_event(handle)
}

fn simEventRecord(handle: Raw, on: Raw) {
    let (context, handle) = event(handle)?;
    let (other, slot) = stream(on)?;
    if !std::ptr::eq(context, other) {
        return Err(Error::InvalidHandle);
    }
    context.record(handle, slot).map(drop)
}

fn simEventSynchronize(handle: Raw) {
    let (context, handle) = event(handle)?;
    context.recorded(handle)?.map_or(Ok(()), |mark| context.wait(mark))
}

fn simEventQuery(handle: Raw) {
    let (context, handle) = event(handle)?;
    context.recorded(handle)?.map_or(Ok(()), |mark| context.query(mark))
}

fn simStreamWaitEvent(on: Raw, handle: Raw) {
    let (context, handle) = event(handle)?;
    let (other, slot) = stream(on)?;
    if !std::ptr::eq(context, other) {
        return Err(Error::InvalidHandle);
    }
    context.wait_event(slot, handle)
}

fn simEventElapsedTime(ms: *mut f32, start: Raw, end: Raw) {
    let ((context, start), (other, end)) = (event(start)?, event(end)?);
    if !std::ptr::eq(context, other) {
        return Err(Error::InvalidHandle);
    }
    let ns = context.event_ns(end)?.cast_signed() - context.event_ns(start)?.cast_signed();
    // SAFETY: as the caller says.
    unsafe { put(ms, (ns as f64 / 1e6) as f32) }
}

fn simMalloc(ptr: *mut Raw, size: usize) {
    if ptr.is_null() || size == 0 {
        return Err(Error::InvalidValue);
    }
    let context = current()?;
    let offset = context.allocate(size as u64)?;
    // SAFETY: as the caller says.
    unsafe { put(ptr, context.address(offset)) }
}

fn simFree(ptr: Raw) {
    free(ptr, |heaps| &mut heaps.device)
}

fn simHostAlloc(ptr: *mut Raw, size: usize) {
    if ptr.is_null() || size == 0 {
        return Err(Error::InvalidValue);
    }
    let context = current()?;
    let offset = lock(&context.heaps).host.alloc(size as u64).ok_or(Error::OutOfMemory)?;
    // SAFETY: as the caller says.
    unsafe { put(ptr, context.address(offset)) }
}

fn simHostFree(ptr: Raw) {
    free(ptr, |heaps| &mut heaps.host)
}

fn simMemcpy(dst: Raw, src: *const c_void, size: usize) {
    // SAFETY: as the caller says.
    unsafe { memcpy(dst, src, size) }
}

fn simMemcpyAsync(dst: Raw, src: *const c_void, size: usize, on: Raw) {
    let (context, slot) = stream(on)?;
    let (Some(dst), Some(src)) = (context.offset(dst, size), context.offset(src, size)) else {
        return Err(Error::InvalidValue);
    };
    context.submit(slot, |_, _| Ok(Some(Action::copy(dst, src, size as u64)))).map(drop)
}

fn simMemset(ptr: Raw, value: c_int, size: usize) {
    let context = contexts().find(|c| c.offset(ptr, size).is_some()).ok_or(Error::InvalidValue)?;
    let action = memset_action(context, ptr, value, size)?;
    context.wait(context.submit(Slot::DEFAULT, |_, _| Ok(Some(action)))?)
}

fn simMemsetAsync(ptr: Raw, value: c_int, size: usize, on: Raw) {
    let (context, slot) = stream(on)?;
    let action = memset_action(context, ptr, value, size)?;
    context.submit(slot, |_, _| Ok(Some(action))).map(drop)
}

fn simLaunchKernel(kernel: *const SimKernel, on: Raw) {
    // SAFETY: null or valid, as the caller says.
    let kernel = unsafe { kernel.as_ref() }.ok_or(Error::InvalidValue)?;
    let (context, slot) = stream(on)?;
    let op = KernelOp::new(kernel.op.into()).filter(|&op| op <= KernelOp::AddIndex).ok_or(Error::InvalidValue)?;
    let floats = |pointer: *mut f32, used: bool| {
        if !used {
            return Some(0);
        }
        let bytes = (kernel.count as usize).checked_mul(4)?;
        context.offset(pointer.cast(), bytes).filter(|offset| offset.is_multiple_of(4))
    };
    let x = floats(kernel.x, op == KernelOp::Axpy).ok_or(Error::InvalidValue)?;
    let y = floats(kernel.y, op != KernelOp::Nop).ok_or(Error::InvalidValue)?;
    let (count, duration_ns, a) = (kernel.count, kernel.duration_ns, kernel.a);
    context.submit(slot, |_, _| Ok(Some(Action::Kernel { op, count, duration_ns, x, y, a }))).map(drop)
}

fn simLaunchHostFunc(on: Raw, function: Option<HostFunction>, data: Raw) {
    let function = function.ok_or(Error::InvalidValue)?;
    let (context, slot) = stream(on)?;
    let (context, data): (&'static xsched_sim::client::Context, _) = (context, Argument(data));
    // SAFETY: the program gave this function and its argument for this.
    context.call(slot, Box::new(move || unsafe { function(data.get()) })).map(drop)
}

fn simHostRegister(ptr: Raw, size: usize) {
    let context = current()?;
    context.regions.add(context, ptr, size)
}

fn simHostUnregister(ptr: Raw) {
    let context = current()?;
    context.regions.remove(context, ptr)
}

fn simStreamWaitValue32(on: Raw, addr: Raw, value: u32, flags: c_uint) {
    let (context, slot) = stream(on)?;
    let condition = Condition::new(flags.into()).ok_or(Error::InvalidValue)?;
    let (place, width, value) = (context.place(addr, 4)?, Width::Word, u64::from(value));
    context.submit(slot, |_, _| Ok(Some(Action::WaitValue { place, width, condition, value }))).map(drop)
}

fn simStreamWriteValue32(on: Raw, addr: Raw, value: u32) {
    let (context, slot) = stream(on)?;
    let (place, width, value) = (context.place(addr, 4)?, Width::Word, u64::from(value));
    context.submit(slot, |_, _| Ok(Some(Action::WriteValue { place, width, value }))).map(drop)
}

fn simContextSetTimeslice(dev: c_int, us: u64) {
    if !(1..=MAX_TIMESLICE_US).contains(&us) {
        return Err(Error::InvalidValue);
    }
    context(device(dev)?)?.set_timeslice_ns(us * 1000)
}

fn simContextGetTimeslice(dev: c_int, us: *mut u64) {
    // SAFETY: as the caller says.
    unsafe { put(us, context(device(dev)?)?.timeslice_ns() / 1000) }
}

fn simContextSetRunnable(dev: c_int, on: c_int) {
    let on = match on {
        0 => false,
        1 => true,
        _ => return Err(Error::InvalidValue),
    };
    context(device(dev)?)?.set_runnable(on)
}

fn simGetProcAddress(name: *const c_char, function: *mut *mut c_void) {
    if name.is_null() {
        return Err(Error::InvalidValue);
    }
    // SAFETY: a C string, as the caller says.
    let name = unsafe { CStr::from_ptr(name) };
    let found = name.to_str().ok().and_then(address);
    // SAFETY: as the caller says.
    unsafe { put(function, found.unwrap_or(std::ptr::null_mut())) }?;
    found.map(drop).ok_or(Error::InvalidValue)
}

fn simGetCounters(dev: c_int, counters: *mut SimCounters) {
    if counters.is_null() {
        return Err(Error::InvalidValue);
    }
    let [launched, completed, switches, launched_total_device, ..] =
        context(device(dev)?)?.ask(Request::Counters, None)?;
    // SAFETY: as the caller says.
    unsafe { put(counters, SimCounters { launched, completed, switches, launched_total_device }) }
}
}
