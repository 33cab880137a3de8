//! Launches.

use crate::edge::Null;
use crate::event;
use crate::kernel::{self, Kernel};
use crate::lookup::{Plt, reenter};
use crate::module::{self, Function};
use crate::node;
use crate::register::{self, Dim3};
use crate::result::{Error, Result};
use crate::runtime::{device, driver};
use crate::stats::{self, COUNTERS};
use crate::stream::Target;
use fakecuda::In;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::LazyLock;

/// Device time of a kernel that cannot run here, in ns.
static UNKNOWN_NS: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var("FAKEHIP_UNKNOWN_NS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(5_000)
});

/// HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
const END: usize = 3;

/// The most arguments that a kernel of ours has.
const MOST: usize = 8;

/// The arguments of a launch as the driver wants them: an address for each.
pub(crate) struct Arguments {
    addresses: [*const c_void; MOST],
    /// What they are, for a kernel that we stand in for.
    stand_in_ns: u64,
}

impl Arguments {
    /// Takes them from a list of addresses, or from a packed buffer in `extra`.
    pub(crate) fn new(kernel: Option<Kernel>, params: In<*const c_void>, extra: In<usize>) -> Result<Self> {
        let mut made = Self { addresses: [std::ptr::null(); MOST], stand_in_ns: *UNKNOWN_NS };
        let packed = if extra.is_null() { None } else { Some(buffer(extra)?) };
        if packed.is_some() && !params.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let Some(kernel) = kernel else { return Ok(made) };
        let count = kernel.parameters().len();
        match packed {
            None => {
                for index in 0..count {
                    made.addresses[index] = params.at(index)?;
                    if made.addresses[index].is_null() {
                        return Err(Error::INVALID_VALUE);
                    }
                }
            }
            Some((start, bytes)) => {
                if bytes < kernel.packed_bytes() || (start == 0 && count > 0) {
                    return Err(Error::INVALID_VALUE);
                }
                for (index, offset) in kernel.offsets().enumerate() {
                    made.addresses[index] = std::ptr::with_exposed_provenance(start + offset);
                }
            }
        }
        Ok(made)
    }

    /// A word with each of the arguments of this kernel, which they were taken for.
    pub(crate) fn values(&self, kernel: Kernel) -> Box<[u64]> {
        let value = |(&address, &size): (&*const c_void, &usize)| {
            let mut bytes = [0; 8];
            // SAFETY: the program's argument, which the driver reads too; none is larger than a word.
            unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), bytes.as_mut_ptr(), size) };
            u64::from_le_bytes(bytes)
        };
        self.addresses.iter().zip(kernel.parameters()).map(value).collect()
    }

    /// The kernel that the driver runs for it, and the list to give. `self` must stay where it is meanwhile.
    pub(crate) fn for_driver(&mut self, kernel: Option<Kernel>) -> (Kernel, *const *const c_void) {
        let runs = kernel.unwrap_or_else(|| {
            self.addresses[0] = (&raw const self.stand_in_ns).cast();
            Kernel::Spin
        });
        (runs, self.addresses.as_ptr())
    }
}

/// Address and bytes in `{POINTER, p, SIZE, &n, END}`: exactly this order is what real runtimes accept.
fn buffer(extra: In<usize>) -> Result<(usize, usize)> {
    let words = [extra.at(0)?, extra.at(1)?, extra.at(2)?, extra.at(3)?, extra.at(4)?];
    let [BUFFER_POINTER, start, BUFFER_SIZE, size, END] = words else { return Err(Error::INVALID_VALUE) };
    Ok((start, In::from_address(size).get()?))
}

/// Blocks and threads a block, each in one dimension; a shape that no device has room for is refused.
pub(crate) fn shape(grid: Dim3, block: Dim3) -> Result<(c_uint, c_uint)> {
    let product = |d: Dim3| u64::from(d.x).checked_mul(d.y.into()).and_then(|n| n.checked_mul(d.z.into()));
    let too_large = Error::INVALID_CONFIGURATION;
    let (blocks, threads) = (product(grid).ok_or(too_large)?, product(block).ok_or(too_large)?);
    let work = blocks.checked_mul(threads).filter(|&n| n <= u32::MAX.into()).ok_or(too_large)?;
    if work == 0 || threads > 1024 {
        return Err(too_large);
    }
    Ok((blocks.min(0x7fff_ffff) as c_uint, threads as c_uint))
}

/// The kernel's own work does not depend on the shape; a stand-in needs but one thread.
fn real_shape(kernel: Option<Kernel>, (blocks, threads): (c_uint, c_uint)) -> (c_uint, c_uint) {
    match kernel {
        None | Some(Kernel::Spin) => (1, 1),
        Some(_) => (blocks, threads),
    }
}

/// Grid, block, and bytes of shared memory, of which nothing is used here.
pub(crate) type Shape = (Dim3, Dim3, c_uint);

/// `named` is how the program names the kernel.
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
        // The launch is recorded whether or not its node can be told of later.
        let _ = node::recorded(target, node::Launch::new(named, function.kernel, given, &arguments));
    }
    Ok(())
}

/// A launch names its stream before anything else; a wrong one is an invalid value here, as in real runtimes.
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
        // SAFETY: hipModuleLaunchKernel's own signature, with what the program gave.
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
    // All blocks must be on the device at once: 40 waves of 64 threads in each of 60 units.
    let (blocks, threads) = shape(grid, block)?;
    if u64::from(blocks) * u64::from(threads.div_ceil(64)) > 60 * 40 {
        return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    run(function, &registered, &target, (grid, block, shared), params, In::NOTHING)
}

/// hipLaunchByPtr: configuration and arguments were given before.
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

/// The old C++ entry point with its kernel's host address and the list of arguments.
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

/// Global size in threads, not in blocks; it need not be a multiple of the block.
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

/// `hipLaunchParams` of the launches on several devices.
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
        // Neither default stream is allowed.
        if one.stream <= 2 {
            return Err(Error::INVALID_VALUE);
        }
        host(Null::Legacy, one.function, one.grid, one.block, one.params, one.shared, one.stream)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(x: u32, y: u32, z: u32) -> Dim3 {
        Dim3 { x, y, z }
    }

    #[test]
    fn a_shape_beyond_the_limits_is_refused() {
        assert_eq!(shape(dim(4, 2, 1), dim(8, 8, 4)), Ok((8, 256)));
        assert_eq!(shape(dim(1 << 22, 1, 1), dim(1024, 1, 1)), Err(Error::INVALID_CONFIGURATION), "over 2^32 - 1");
        assert_eq!(shape(dim(1, 1, 1), dim(1025, 1, 1)), Err(Error::INVALID_CONFIGURATION));
        assert_eq!(shape(dim(0, 1, 1), dim(1, 1, 1)), Err(Error::INVALID_CONFIGURATION));
        assert_eq!(shape(dim(u32::MAX, u32::MAX, u32::MAX), dim(1, 1, 1)), Err(Error::INVALID_CONFIGURATION));
    }

    #[test]
    fn a_buffer_is_taken_in_its_one_order() {
        let (bytes, size) = ([0_u8; 24], 24_usize);
        let (start, at) = (bytes.as_ptr().expose_provenance(), (&raw const size).expose_provenance());
        let of = |words: &[usize; 5]| buffer(In::from_address(words.as_ptr().expose_provenance()));
        assert_eq!(of(&[1, start, 2, at, 3]), Ok((start, 24)));
        assert_eq!(of(&[2, at, 1, start, 3]), Err(Error::INVALID_VALUE));
        assert_eq!(of(&[1, start, 2, at, 0]), Err(Error::INVALID_VALUE));
    }

    #[test]
    fn a_short_buffer_is_refused() {
        let (bytes, size) = ([0_u8; 24], 23_usize);
        let words = [1, bytes.as_ptr().expose_provenance(), 2, (&raw const size).expose_provenance(), 3];
        let extra = In::from_address(words.as_ptr().expose_provenance());
        assert!(Arguments::new(Some(Kernel::Axpy), In::NOTHING, extra).is_err());
        assert!(Arguments::new(Some(Kernel::Fill), In::NOTHING, extra).is_ok(), "16 bytes are enough");
    }
}
