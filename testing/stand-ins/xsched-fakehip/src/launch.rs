//! Launches of kernels.

use crate::arguments::{Arguments, BUFFER_POINTER, BUFFER_SIZE, END, Shape, shape};
use crate::edge::Null;
use crate::event;
use crate::kernel::{self, Kernel};
use crate::lookup::{Plt, reenter};
use crate::module::{self, Function};
use crate::node;
use crate::note::Launch;
use crate::register::{self, Dim3};
use crate::result::{Error, Result};
use crate::runtime::{device, driver};
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::In;
use std::ffi::{c_int, c_uint, c_void};

/// The shape to launch on the driver: a kernel's result does not depend on it, and a stand-in needs but one thread.
fn real_shape(kernel: Option<Kernel>, (blocks, threads): (c_uint, c_uint)) -> (c_uint, c_uint) {
    match kernel {
        None | Some(Kernel::Spin) => (1, 1),
        Some(_) => (blocks, threads),
    }
}

/// Launches a kernel. `named` is the program's name of it: a host address or a handle.
fn run(
    named: usize,
    function: &Function,
    target: &Target,
    given: Shape,
    params: In<*const c_void>,
    extra: In<usize>,
) -> Result<()> {
    let wanted = shape(given.0, given.1)?;
    let mut arguments = Arguments::new(function.kernel, params, extra)?;
    let (blocks, threads) = real_shape(function.kernel, wanted);
    let (kernel, list) = arguments.for_driver(function.kernel);
    let count = || {
        stats::add(&COUNTERS.kernels);
        if function.kernel.is_none() {
            stats::add(&COUNTERS.unknown_kernels);
        }
    };
    target.issue(count, |real| {
        let code = kernel::on(device(target.device)?, kernel)?;
        driver()?.launch(code, blocks, 1, 1, threads, 1, 1, 0, real, list, std::ptr::null())
    })?;
    if target.is_capturing() {
        // The launch is recorded, even if its parameters could not be kept for its node.
        let _ = node::recorded(target, Launch::new(named, function.kernel, given, &arguments));
    }
    Ok(())
}

/// The stream of a launch, which is checked before all other arguments. A wrong one is an invalid value here, as in
/// real runtimes.
fn target(null: Null, stream: usize) -> Result<Target> {
    Target::find(null, stream).map_err(|_| Error::INVALID_VALUE)
}

pub(crate) fn host(
    null: Null,
    function: usize,
    grid: Dim3,
    block: Dim3,
    params: In<*const c_void>,
    shared: usize,
    stream: usize,
) -> Result<()> {
    let target = target(null, stream)?;
    let registered = register::function(function)?;
    if let Some(call) = reenter(Plt::ModuleLaunchKernel).filter(|_| null == Null::Legacy) {
        let mut handle = 0;
        register::by_symbol(fakecuda::Out::to(&mut handle), function)?;
        type Launch = unsafe extern "C" fn(
            usize,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            usize,
            In<*const c_void>,
            In<usize>,
        ) -> c_int;
        // SAFETY: hipModuleLaunchKernel's own signature, with the program's arguments.
        let result = unsafe {
            std::mem::transmute::<usize, Launch>(call)(
                handle,
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared as c_uint,
                stream,
                params,
                In::NOTHING,
            )
        };
        return if result == 0 { Ok(()) } else { Err(Error(result)) };
    }
    run(function, &registered, &target, (grid, block, shared as c_uint), params, In::NOTHING)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn host_ext(
    function: usize,
    grid: Dim3,
    block: Dim3,
    params: In<*const c_void>,
    shared: usize,
    stream: usize,
    start: usize,
    stop: usize,
    _flags: c_int,
) -> Result<()> {
    let target = target(Null::Legacy, stream)?;
    let registered = register::function(function)?;
    event::record_if_given(start, &target)?;
    run(function, &registered, &target, (grid, block, shared as c_uint), params, In::NOTHING)?;
    event::record_if_given(stop, &target)
}

pub(crate) fn cooperative(
    null: Null,
    function: usize,
    grid: Dim3,
    block: Dim3,
    params: In<*const c_void>,
    shared: c_uint,
    stream: usize,
) -> Result<()> {
    let target = Target::find(null, stream)?;
    let registered = register::function(function)?;
    // All blocks must fit on the device at once: 40 waves of 64 threads on each of 60 units.
    let (blocks, threads) = shape(grid, block)?;
    if u64::from(blocks) * u64::from(threads.div_ceil(64)) > 60 * 40 {
        return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    run(function, &registered, &target, (grid, block, shared), params, In::NOTHING)
}

/// hipLaunchByPtr: configuration and arguments were passed by earlier calls.
pub(crate) fn by_pointer(function: usize) -> Result<()> {
    let (grid, block, shared, stream) = register::pop_configuration()?;
    let packed = register::take_arguments();
    let size = packed.len();
    let start = packed.as_ptr().expose_provenance();
    let extra = [BUFFER_POINTER, start, BUFFER_SIZE, (&raw const size).expose_provenance(), END];
    let (target, registered) = (target(Null::Legacy, stream)?, register::function(function)?);
    let extra = In::from_address(extra.as_ptr().expose_provenance());
    run(function, &registered, &target, (grid, block, shared as c_uint), In::NOTHING, extra)
}

/// The old C++ entry point, with the kernel's host address and the list of arguments.
pub(crate) fn ggl(
    function: usize,
    grid: In<Dim3>,
    block: In<Dim3>,
    shared: c_uint,
    stream: usize,
    params: In<*const c_void>,
) -> Result<()> {
    host(Null::Legacy, function, grid.get()?, block.get()?, params, shared as usize, stream)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn of_module(
    function: usize,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: usize,
    params: In<*const c_void>,
    extra: In<usize>,
) -> Result<()> {
    let (named, function) = (function, module::function(function)?);
    let target = target(Null::Legacy, stream)?;
    let shape = (Dim3 { x: gx, y: gy, z: gz }, Dim3 { x: bx, y: by, z: bz }, shared);
    run(named, &function, &target, shape, params, extra)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn of_module_cooperative(
    function: usize,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: usize,
    params: In<*const c_void>,
) -> Result<()> {
    of_module(function, gx, gy, gz, bx, by, bz, shared, stream, params, In::NOTHING)
}

/// Launches with the size of the grid in threads instead of blocks. It need not be a multiple of the block's.
#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn of_module_in_threads(
    function: usize,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: usize,
    stream: usize,
    params: In<*const c_void>,
    extra: In<usize>,
    start: usize,
    stop: usize,
) -> Result<()> {
    let (named, function) = (function, module::function(function)?);
    let target = target(Null::Legacy, stream)?;
    if bx == 0 || by == 0 || bz == 0 {
        return Err(Error::INVALID_CONFIGURATION);
    }
    let grid = Dim3 { x: gx.div_ceil(bx), y: gy.div_ceil(by), z: gz.div_ceil(bz) };
    event::record_if_given(start, &target)?;
    run(named, &function, &target, (grid, Dim3 { x: bx, y: by, z: bz }, shared as c_uint), params, extra)?;
    event::record_if_given(stop, &target)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn of_module_in_threads_flags(
    function: usize,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: usize,
    stream: usize,
    params: In<*const c_void>,
    extra: In<usize>,
    start: usize,
    stop: usize,
    _flags: c_uint,
) -> Result<()> {
    of_module_in_threads(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra, start, stop)
}

/// `hipLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
    attributes: usize,
    attribute_count: c_uint,
}

const _: () = assert!(std::mem::offset_of!(Config, stream) == 32);

pub(crate) fn host_ex(config: In<Config>, function: usize, params: In<*const c_void>) -> Result<()> {
    let config = config.get()?;
    host(Null::Legacy, function, config.grid, config.block, params, config.shared, config.stream)
}

/// `HIP_LAUNCH_CONFIG`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DriverConfig {
    grid: Dim3,
    block: Dim3,
    shared: c_uint,
    stream: usize,
    attributes: usize,
    attribute_count: c_uint,
}

const _: () = assert!(std::mem::offset_of!(DriverConfig, stream) == 32);

pub(crate) fn of_module_ex(
    config: In<DriverConfig>,
    function: usize,
    params: In<*const c_void>,
    extra: In<usize>,
) -> Result<()> {
    let DriverConfig { grid: g, block: b, shared, stream, .. } = config.get()?;
    of_module(function, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, params, extra)
}

/// `hipLaunchParams` of launches on several devices.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Several {
    function: usize,
    grid: Dim3,
    block: Dim3,
    params: In<*const c_void>,
    shared: usize,
    stream: usize,
}

pub(crate) fn several(list: In<Several>, count: c_int, _flags: c_uint) -> Result<()> {
    let count = usize::try_from(count).ok().filter(|&n| n > 0).ok_or(Error::INVALID_VALUE)?;
    for one in list.list(count)? {
        // The two default streams are not allowed.
        if one.stream <= 2 {
            return Err(Error::INVALID_VALUE);
        }
        host(Null::Legacy, one.function, one.grid, one.block, one.params, one.shared, one.stream)?;
    }
    Ok(())
}
