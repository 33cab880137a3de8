//! Memory of OpenCL programs: counted, limited, and reported as if the device had the limit's size.
//!
//! Drivers allocate lazily, and on whichever of a context's devices uses the memory: an object counts from its creation until
//! its destructor runs, for the first device of its context. Memory of the host that the program brings itself does not count.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::api::{self, Api};
use super::queue::{device_key, info};
use super::sig;
use super::types::*;
use crate::enabled::{OPENCL, platform_enabled};
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::platform::shared::memory::{Entry, Here, Keeper, Part, account, steps, table};
use crate::platform::start::runtime;
use crate::process;

/// Unit in which memory of a device is allocated.
const UNIT: u64 = 4 << 10;
/// Devices of a context that are asked for; the first counts.
const DEVICES: usize = 16;

/// Slots of devices; `None` = the driver tells too little of it.
static SLOTS: Lock<HashMap<usize, Option<u16>>> = Lock::new();

struct OpenCl;

impl Keeper for OpenCl {
    const OUT_OF_MEMORY: cl_int = CL_MEM_OBJECT_ALLOCATION_FAILURE;

    /// OpenCL has no such question.
    fn info() -> Option<(u64, u64)> {
        None
    }

    fn trim(_: u16) {}
}

/// The functions beside a function of the library that programs call first, and so probably of all.
fn beside(real: *mut c_void) -> Option<&'static Api> {
    static FIRST: OnceLock<(usize, Option<&'static Api>)> = OnceLock::new();
    static SECOND: OnceLock<(usize, Option<&'static Api>)> = OnceLock::new();
    for known in [&FIRST, &SECOND] {
        let (of, api) = known.get_or_init(|| (real as usize, Api::beside(real)));
        if *of == real as usize {
            return *api;
        }
    }
    Api::beside(real)
}

/// Slot of a device.
fn slot_of(api: &'static Api, device: cl_device_id) -> Option<u16> {
    if let Some(known) = SLOTS.lock().get(&(device as usize)) {
        return *known;
    }
    let api = api.for_object(device);
    let capacity = || {
        let ask = api.functions.device_info?;
        // SAFETY: size and pointers are those of a local variable.
        info::<cl_ulong>(|size, at, got| unsafe { ask(device, CL_DEVICE_GLOBAL_MEM_SIZE, size, at, got) })
    };
    let slot = capacity().and_then(|capacity| runtime()?.memory_device(&device_key(device, api)?, capacity));
    SLOTS.lock().insert(device as usize, slot);
    slot
}

/// Slot of the first device of a context.
fn here(real: *mut c_void, context: cl_context) -> Option<Here> {
    if !platform_enabled(OPENCL) || context.is_null() {
        return None;
    }
    let api = beside(real)?;
    let mut devices: [cl_device_id; DEVICES] = [std::ptr::null_mut(); DEVICES];
    // SAFETY: size and pointers are those of a local variable; the caller's own context.
    let rc = unsafe {
        let size = size_of_val(&devices);
        (api.functions.context_info?)(
            context,
            CL_CONTEXT_DEVICES,
            size,
            devices.as_mut_ptr().cast(),
            std::ptr::null_mut(),
        )
    };
    let slot = (rc == CL_SUCCESS && !devices[0].is_null()).then(|| slot_of(api, devices[0])).flatten()?;
    Some(Here { context: 0, slot })
}

fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(UNIT).unwrap_or(bytes)
}

/// An object has ended.
unsafe extern "C" fn gone(object: cl_mem, _: *mut c_void) {
    process::guarded("after memory was freed", || table::remove(object as u64).iter().for_each(Entry::count_out));
}

/// Runs a call that creates an object of so many bytes in a context.
fn created(
    real: *mut c_void,
    context: cl_context,
    flags: cl_mem_flags,
    bytes: u64,
    error: *mut cl_int,
    call: impl Fn() -> cl_mem,
) -> cl_mem {
    let made = Cell::new(std::ptr::null_mut());
    let bytes = rounded(bytes);
    let at = || (flags & CL_MEM_USE_HOST_PTR == 0 && bytes > 0).then(|| here(real, context)).flatten();
    let call = || {
        made.set(call());
        // SAFETY: null, or the caller's own place, which the driver has written.
        if made.get().is_null() { unsafe { error.as_ref() }.copied().unwrap_or(CL_INVALID_VALUE) } else { CL_SUCCESS }
    };
    let rc = steps::allocates::<OpenCl>(Part::Plain, bytes, at, call, || (made.get() as u64, bytes));
    let object = made.get();
    if object.is_null() && rc != CL_SUCCESS {
        // SAFETY: null, or the caller's own place for an error.
        unsafe { error.as_mut() }.into_iter().for_each(|error| *error = rc);
    }
    if !object.is_null() && table::may_have(object as u64) {
        process::guarded("after an allocation", || {
            let set = beside(real).and_then(|api| api.for_object(object).functions.set_destructor);
            // SAFETY: the caller's new object; a function that stays.
            let is_set = set.is_some_and(|set| unsafe { set(object, Some(gone), std::ptr::null_mut()) } == CL_SUCCESS);
            if !is_set {
                table::remove(object as u64).iter().for_each(Entry::count_out);
            }
        });
    }
    object
}

/// Bytes of a texel of an image.
#[allow(non_upper_case_globals)] // vendor names
fn texel(format: *const cl_image_format) -> u64 {
    // SAFETY: null, or the caller's own format, which the driver reads too.
    let Some(format) = (unsafe { format.as_ref() }) else { return 0 };
    let channels = match format.image_channel_order {
        CL_RG | CL_RA | CL_Rx => 2,
        CL_RGB | CL_RGx => 3,
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH => 1,
        _ => 4,
    };
    match format.image_channel_data_type {
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 => 4,
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2 * channels,
        _ => 4 * channels,
    }
}

/// cl_image_desc of cl.h.
#[repr(C)]
struct Description {
    kind: cl_uint,
    /// Width, height, depth, number of layers.
    measures: [usize; 4],
    pitches: [usize; 2],
    levels: cl_uint,
    samples: cl_uint,
    /// Object whose memory the image has.
    of: cl_mem,
}

fn size(measures: &[usize], format: *const cl_image_format) -> u64 {
    measures.iter().map(|measure| (*measure).max(1) as u64).fold(texel(format), u64::saturating_mul)
}

fn size_described(description: *const cl_image_desc, format: *const cl_image_format) -> u64 {
    // SAFETY: null, or the caller's own description, which the driver reads too.
    let described = unsafe { description.cast::<Description>().as_ref() };
    described.filter(|described| described.of.is_null()).map_or(0, |described| size(&described.measures, format))
}

/// Hooks functions that create objects: the arguments before the flags and behind them, the context, and the number of bytes.
macro_rules! creates {
    ($(fn $name:ident($($before:ident: $before_type:ty),*; flags; $($arg:ident: $ty:ty),*) [$context:expr, $bytes:expr];)*) => {
        $(
            unsafe extern "C-unwind" fn $name(
                $($before: $before_type,)* flags: cl_mem_flags, $($arg: $ty,)* error: *mut cl_int
            ) -> cl_mem {
                let mut real = $name::real();
                if real.is_null() {
                    real = api::stray(&$name::HOOK, std::ptr::null_mut());
                }
                if real.is_null() {
                    // SAFETY: null, or the caller's own place for an error.
                    unsafe { error.as_mut() }.into_iter().for_each(|error| *error = CL_INVALID_OPERATION);
                    return std::ptr::null_mut();
                }
                // SAFETY: the address of the real function of this name, and the caller's own arguments.
                created(real, $context, flags, $bytes, error, || unsafe {
                    std::mem::transmute::<*mut c_void, sig::$name>(real)($($before,)* flags, $($arg,)* error)
                })
            }
        )*
    };
}

creates! {
    fn clCreateBuffer(context: cl_context; flags; size: usize, host: *mut c_void) [context, size as u64];
    fn clCreateBufferWithProperties(context: cl_context, properties: *const cl_mem_properties; flags; size: usize, host: *mut c_void) [context, size as u64];
    fn clCreateImage(context: cl_context; flags; format: *const cl_image_format, description: *const cl_image_desc, host: *mut c_void) [context, size_described(description, format)];
    fn clCreateImage2D(context: cl_context; flags; format: *const cl_image_format, width: usize, height: usize, row_pitch: usize, host: *mut c_void) [context, size(&[width, height], format)];
    fn clCreateImage3D(context: cl_context; flags; format: *const cl_image_format, width: usize, height: usize, depth: usize, row_pitch: usize, slice_pitch: usize, host: *mut c_void) [context, size(&[width, height, depth], format)];
    fn clCreateImageWithProperties(context: cl_context, properties: *const cl_mem_properties; flags; format: *const cl_image_format, description: *const cl_image_desc, host: *mut c_void) [context, size_described(description, format)];
}

/// Address of a real function.
macro_rules! real {
    ($name:ident $(, $missing:expr)?) => {{
        let mut real = $name::real();
        if real.is_null() {
            real = api::stray(&$name::HOOK, std::ptr::null_mut());
            if real.is_null() {
                return $($missing)?;
            }
        }
        // SAFETY: the address of the real function of this name.
        (real, unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) })
    }};
}

unsafe extern "C-unwind" fn clSVMAlloc(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: usize,
    alignment: cl_uint,
) -> *mut c_void {
    let (real, function) = real!(clSVMAlloc, std::ptr::null_mut());
    let made = Cell::new(std::ptr::null_mut());
    let bytes = rounded(size as u64);
    let call = || {
        // SAFETY: the caller's own arguments.
        made.set(unsafe { function(context, flags, size, alignment) });
        if made.get().is_null() { CL_INVALID_VALUE } else { CL_SUCCESS }
    };
    steps::allocates::<OpenCl>(Part::Plain, bytes, || here(real, context), call, || (made.get() as u64, bytes));
    made.get()
}

unsafe extern "C-unwind" fn clSVMFree(context: cl_context, pointer: *mut c_void) {
    let (_, function) = real!(clSVMFree);
    steps::frees(pointer as u64, || {
        // SAFETY: the caller's own arguments.
        unsafe { function(context, pointer) };
        CL_SUCCESS
    });
}

hooks! { OPENCL, ALLOCATIONS: Memory;
    clCreateBuffer
    clCreateBufferWithProperties
    clCreateImage
    clCreateImage2D
    clCreateImage3D
    clCreateImageWithProperties
    clSVMAlloc
    clSVMFree
}

unsafe extern "C-unwind" fn clGetDeviceInfo(
    device: cl_device_id,
    what: cl_device_info,
    size: usize,
    value: *mut c_void,
    told: *mut usize,
) -> cl_int {
    let (real, function) = real!(clGetDeviceInfo, CL_INVALID_OPERATION);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(device, what, size, value, told) };
    let is_memory = what == CL_DEVICE_GLOBAL_MEM_SIZE || what == CL_DEVICE_MAX_MEM_ALLOC_SIZE;
    if is_memory && rc == CL_SUCCESS && !value.is_null() && size >= size_of::<cl_ulong>() && platform_enabled(OPENCL) {
        process::guarded("after memory was told", || {
            let slot = slot_of(beside(real)?, device)?;
            let limit = account::words(slot)?.seen(u64::MAX, u64::MAX).1;
            let value = value.cast::<cl_ulong>();
            // SAFETY: the caller's own place of that size, which the driver just wrote.
            unsafe { value.write_unaligned(value.read_unaligned().min(limit)) };
            Some(())
        });
    }
    rc
}

hooks! { OPENCL, FIGURES: Memory; clGetDeviceInfo }

/// Empties the table, in a forked child, whose slots are others.
pub(super) fn forget_all() {
    SLOTS.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_as_large_as_its_texels() {
        let format = cl_image_format { image_channel_order: CL_RGBA, image_channel_data_type: CL_FLOAT };
        assert_eq!(size(&[1024, 0], &raw const format), 16 << 10);
        let description = Description {
            kind: 0,
            measures: [64, 64, 0, 2],
            pitches: [0; 2],
            levels: 0,
            samples: 0,
            of: std::ptr::null_mut(),
        };
        let of = |described: &Description| size_described(std::ptr::from_ref(described).cast(), &raw const format);
        assert_eq!(of(&description), 128 << 10);
        assert_eq!(of(&Description { of: std::ptr::dangling_mut::<c_void>().cast(), ..description }), 0, "of a buffer");
        assert_eq!(size_of::<Description>(), 72);
    }
}
