//! Addresses of movable memory that launches name, by which the mover chooses the chunks that go to the host.
//!
//! A launch has no list of what it touches, but its parameters contain the addresses of its arrays, also in structures and descriptors.
//! Each word of the parameters that lies within the chunks' addresses counts as one. Addresses behind a pointer in memory are not seen.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use xsched_core::residency::{Touch, heats};
use xsched_vendor::functions;

use super::super::api::Api;
use super::super::types::*;
use crate::lock::Lock;
use crate::platform::shared::{Driver as _, search_beside};
use crate::process;

/// Unit of memory whose use is counted, in bytes: that of chunks.
const UNIT: u64 = 2 << 20;
/// Units of memory whose use is known at a time; those of 128 GiB.
const PLACES: usize = 1 << 16;
/// Places at which the use of a unit may be, from that of its number on.
const TRIES: usize = 16;
/// Heat of an address that a launch names, and of one where the kernel stages its operands: such kernels, matrix products for instance, read
/// them many times.
const NAMED: u32 = 64;
const STAGED: u32 = 32 * NAMED;
/// Shared memory of a block from which a kernel counts as one that stages operands, in bytes.
const STAGING: c_uint = 16 << 10;
/// Addresses up to which each has the whole heat of a launch. A launch of many arrays shares its work among them.
const FEW: u32 = 8;
/// Addresses of a launch that are looked at: parameters of 4 KiB have so many, and few kernels have more.
const MOST: usize = 512;
/// Launches after which half of the heat is gone: several steps of a training.
const HALF: usize = 1 << 15;
/// CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES.
const ATTRIBUTE_SHARED: c_int = 1;
/// Functions whose parameters are found without a lock, as a power of two.
const RECENT_BITS: u32 = 12;

/// Use of a unit of memory: its number and 1, and its heat.
struct Place {
    unit: AtomicU32,
    heat: AtomicU32,
}

static PLACED: [Place; PLACES] = [const { Place { unit: AtomicU32::new(0), heat: AtomicU32::new(0) } }; PLACES];
/// Launches that were looked at, and those after which heat was last halved.
static LAUNCHES: AtomicUsize = AtomicUsize::new(0);
static COOLED: AtomicUsize = AtomicUsize::new(0);
/// First address of movable memory, and the first behind it.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
static END: AtomicU64 = AtomicU64::new(0);
/// First addresses of allocations in chunks.
static BEGINS: Lock<BTreeSet<u64>> = Lock::new();
/// Numbers of the units that captured launches named: each launch of a graph touches them, and none is seen.
static CAPTURED: Lock<BTreeSet<u64>> = Lock::new();
/// Functions by their handles, all and those that were launched of late. They end with their modules, and [`FORGOTTEN`] counts those ends.
static FUNCTIONS: Lock<BTreeMap<usize, &'static Function>> = Lock::new();
static RECENT: [AtomicPtr<Function>; 1 << RECENT_BITS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << RECENT_BITS];
static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);
/// Layouts that functions have: few, and never freed.
static LAYOUTS: Lock<BTreeSet<&'static Layout>> = Lock::new();

functions! {
    /// Functions of the driver that describe kernels, with signatures as in cuda.h.
    struct Functions -> CUresult;
    needed {
        parameter: c"cuFuncGetParamInfo" (CUfunction, usize, *mut usize, *mut usize);
        attribute: c"cuFuncGetAttribute" (*mut c_int, c_int, CUfunction);
    }
    optional {
        of_kernel: c"cuKernelGetFunction" (*mut CUfunction, CUfunction);
    }
}

static DESCRIBED_BY: OnceLock<Option<Functions>> = OnceLock::new();

/// Parameters and shared memory of a function.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Layout {
    /// Parameters that can contain an address: number, offset in a buffer of all, and size in bytes.
    parameters: Vec<(u32, u32, u32)>,
    /// Its shared memory beside what a launch adds, in bytes.
    shared: c_uint,
}

/// A function, as long as none was forgotten since. Never freed.
struct Function {
    handle: usize,
    forgotten: usize,
    layout: &'static Layout,
}

/// Function of a launch, and the places of its parameters.
#[derive(Clone, Copy)]
pub(super) struct Launched {
    pub(super) function: CUfunction,
    /// Shared memory that it adds, in bytes.
    pub(super) shared: c_uint,
    /// Null, or an address for each parameter.
    pub(super) parameters: *mut c_void,
    /// Null, or pairs of names and values, among them a buffer of all parameters.
    pub(super) extra: *mut c_void,
}

/// Has launches look for addresses within these bounds only.
pub(super) fn set_bounds(chunks: impl Iterator<Item = (u64, u64)>) {
    let bounds = chunks.fold((u64::MAX, 0), |(first, end), (at, bytes)| (at.min(first), (at + bytes).max(end)));
    FIRST.store(bounds.0, Relaxed);
    END.store(bounds.1, Relaxed);
}

/// Notes the addresses that a launch names. `real` is one of the driver's functions.
pub(super) fn note(real: *mut c_void, launch: Launched) {
    let (first, end) = (FIRST.load(Relaxed), END.load(Relaxed));
    if first >= end {
        return;
    }
    let Some(layout) = known(real, launch.function as usize) else { return };
    let (mut units, mut count) = ([0; MOST], 0);
    each_word(layout, launch, |word| {
        if first <= word && word < end && count < MOST {
            units[count] = word / UNIT;
            count += 1;
        }
    });
    let units = &units[..count];
    let staged = layout.shared.saturating_add(launch.shared) >= STAGING;
    let heat = (if staged { STAGED } else { NAMED }) * FEW / FEW.max(count as u32);
    units.iter().for_each(|unit| add(*unit, heat));
    LAUNCHES.fetch_add(1, Relaxed);
    if Api::known().is_some_and(|api| api.some_capture()) {
        process::guarded("while a captured launch was noted", || CAPTURED.lock().extend(units));
    }
}

/// Adds to the heat of a unit. Two threads may take a place each for the same unit, whose heat is the sum then.
fn add(unit: u64, heat: u32) {
    let name = unit as u32 + 1;
    for n in 0..TRIES {
        let place = &PLACED[(name as usize).wrapping_mul(0x9E37_79B1).wrapping_add(n) % PLACES];
        let known = place.unit.load(Relaxed);
        if known == name || (known == 0 && place.unit.compare_exchange(0, name, Relaxed, Relaxed).is_ok()) {
            if place.heat.load(Relaxed) < u32::MAX / 2 {
                place.heat.fetch_add(heat, Relaxed);
            }
            return;
        }
    }
}

/// Halves all heat, once there were enough launches. Called by one thread.
pub(super) fn cool() {
    let launches = LAUNCHES.load(Relaxed);
    if launches.wrapping_sub(COOLED.load(Relaxed)) < HALF {
        return;
    }
    COOLED.store(launches, Relaxed);
    for place in PLACED.iter().filter(|place| place.unit.load(Relaxed) != 0) {
        let heat = place.heat.load(Relaxed) / 2;
        place.heat.store(heat, Relaxed);
        if heat == 0 {
            place.unit.store(0, Relaxed);
        }
    }
}

/// Looks at each word of a launch's parameters that can be an address.
fn each_word(layout: &Layout, launch: Launched, mut look: impl FnMut(u64)) {
    let buffer = if launch.parameters.is_null() { buffer_of(launch.extra) } else { None };
    for &(n, offset, bytes) in &layout.parameters {
        let place = match buffer {
            Some((buffer, size)) if (offset + bytes) as usize <= size => buffer.wrapping_byte_add(offset as usize),
            Some(_) => continue,
            None if launch.parameters.is_null() => return,
            // SAFETY: the program's own list, which has an address for each parameter of the function.
            None => unsafe { launch.parameters.cast::<*const c_void>().add(n as usize).read_unaligned() },
        };
        if place.is_null() {
            continue;
        }
        for word in 0..bytes as usize / size_of::<u64>() {
            // SAFETY: within a parameter of this size, which the driver copies too.
            look(unsafe { place.cast::<u64>().add(word).read_unaligned() });
        }
    }
}

/// Buffer of all parameters, and its size in bytes.
fn buffer_of(extra: *mut c_void) -> Option<(*const c_void, usize)> {
    /// CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE.
    const NAMES: [usize; 3] = [0, 1, 2];
    let (mut buffer, mut size) = (None, None);
    let mut pairs = extra.cast::<usize>();
    while !pairs.is_null() {
        // SAFETY: the program's own list of pairs, up to the end that it has.
        let name = unsafe { pairs.read_unaligned() };
        if name == NAMES[0] || !NAMES.contains(&name) {
            break;
        }
        // SAFETY: a name that is not the end has a value.
        let value = unsafe { pairs.add(1).read_unaligned() } as *const c_void;
        if name == NAMES[1] {
            buffer = Some(value);
        } else {
            // SAFETY: the value of this name is the address of a size.
            size = unsafe { value.cast::<usize>().as_ref() }.copied();
        }
        pairs = pairs.wrapping_add(2);
    }
    Some((buffer?, size?))
}

/// Parameters of a function.
fn known(real: *mut c_void, handle: usize) -> Option<&'static Layout> {
    let forgotten = FORGOTTEN.load(Acquire);
    let place = &RECENT[(handle as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> (usize::BITS - RECENT_BITS)];
    // SAFETY: null, or one that was leaked.
    let recent = unsafe { place.load(Acquire).as_ref() };
    if let Some(function) = recent.filter(|function| function.handle == handle && function.forgotten == forgotten) {
        return Some(function.layout);
    }
    let find = || match FUNCTIONS.lock().entry(handle) {
        Entry::Occupied(known) => Some(*known.get()),
        Entry::Vacant(place) => {
            let layout = describe(real, handle)?;
            Some(*place.insert(Box::leak(Box::new(Function { handle, forgotten, layout }))))
        }
    };
    let function = process::guarded("while a function was looked at", find).flatten()?;
    place.store(std::ptr::from_ref(function).cast_mut(), Release);
    Some(function.layout)
}

/// Asks the driver for a function's parameters.
fn describe(real: *mut c_void, function: usize) -> Option<&'static Layout> {
    // SAFETY: the driver's functions have cuda.h's signatures.
    let load = || unsafe { Functions::load(search_beside(real as usize)) }.ok();
    let driver = DESCRIBED_BY.get_or_init(load).as_ref()?;
    let (mut shared, mut handle) = (0, function as CUfunction);
    // SAFETY: a handle that the program launches, here and below; pointers to locals.
    unsafe {
        if (driver.attribute)(&mut shared, ATTRIBUTE_SHARED, handle) != SUCCESS {
            // Kernels that belong to no context are launched, too.
            let mut own = std::ptr::null_mut();
            if driver.of_kernel?(&mut own, handle) != SUCCESS
                || (driver.attribute)(&mut shared, ATTRIBUTE_SHARED, own) != SUCCESS
            {
                return None;
            }
            handle = own;
        }
    }
    let mut parameters = Vec::new();
    for n in 0.. {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: as above.
        if unsafe { (driver.parameter)(handle, n, &mut offset, &mut bytes) } != SUCCESS {
            break;
        }
        if bytes >= size_of::<u64>() && offset % size_of::<u64>() == 0 {
            parameters.push((n as u32, offset as u32, bytes as u32));
        }
    }
    let layout = Layout { parameters, shared: shared as c_uint };
    let mut layouts = LAYOUTS.lock();
    if let Some(layout) = layouts.get(&layout) {
        return Some(layout);
    }
    let layout = Box::leak(Box::new(layout));
    layouts.insert(layout);
    Some(layout)
}

/// Forgets all functions, since some end with their module or context.
pub(super) fn functions_end() {
    if !FUNCTIONS.is_untouched() {
        process::guarded("when functions ended", || FUNCTIONS.lock().clear());
        FORGOTTEN.fetch_add(1, AcqRel);
    }
}

/// Notes an allocation in chunks.
pub(super) fn memory_begins(at: u64) {
    BEGINS.lock().insert(at);
}

/// Forgets an allocation, and that captured launches named it.
pub(super) fn memory_ends(at: u64, bytes: u64) {
    BEGINS.lock().remove(&at);
    if !CAPTURED.is_untouched() {
        CAPTURED.lock().retain(|unit| !(at / UNIT..(at + bytes).div_ceil(UNIT)).contains(unit));
    }
}

/// Heat of chunks, given by addresses and sizes in bytes.
pub(super) fn heat_of(chunks: &[(u64, u64)]) -> Vec<u32> {
    let placed = PLACED.iter().filter_map(|place| Some((place.unit.load(Relaxed).checked_sub(1)?, place)));
    let named = placed.map(|(unit, place)| Touch { at: u64::from(unit) * UNIT, heat: place.heat.load(Relaxed) });
    let captured: Vec<u64> =
        if CAPTURED.is_untouched() { Vec::new() } else { CAPTURED.lock().iter().copied().collect() };
    let captured = captured.into_iter().map(|unit| Touch { at: unit * UNIT, heat: u32::MAX });
    let begins = BEGINS.lock();
    heats(chunks, named.chain(captured), |_, after| !begins.contains(&after))
}

/// Empties the tables, in a forked child.
pub(super) fn forget_all() {
    BEGINS.forget();
    CAPTURED.forget();
    FUNCTIONS.forget();
    LAYOUTS.forget();
    FORGOTTEN.fetch_add(1, AcqRel);
}
