//! Arguments and shape of a launch, as the driver takes them.

use crate::kernel::Kernel;
use crate::register::Dim3;
use crate::result::{Error, Result};
use fakecuda::In;
use std::ffi::{c_uint, c_void};
use std::sync::LazyLock;

/// Device time of a kernel without code here, in ns.
static UNKNOWN_NS: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var("FAKEHIP_UNKNOWN_NS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(5_000)
});

/// HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE and HIP_LAUNCH_PARAM_END.
pub(crate) const BUFFER_POINTER: usize = 1;
pub(crate) const BUFFER_SIZE: usize = 2;
pub(crate) const END: usize = 3;

/// Number of arguments of the kernel that has most.
const MOST: usize = 8;

/// The arguments of a launch in the driver's form: an address for each.
pub(crate) struct Arguments {
    addresses: [*const c_void; MOST],
    /// Argument of the stand-in for a kernel without code here: its device time, in ns.
    stand_in_ns: u64,
}

impl Arguments {
    /// Collects the addresses from a list of them, or from a packed buffer in `extra`.
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

    /// Values of the arguments, each in a word. `kernel` must be the kernel that they were collected for.
    pub(crate) fn values(&self, kernel: Kernel) -> Box<[u64]> {
        let value = |(&address, &size): (&*const c_void, &usize)| {
            let mut bytes = [0; 8];
            // SAFETY: the program's argument, which the driver reads too; none is larger than a word.
            unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), bytes.as_mut_ptr(), size) };
            u64::from_le_bytes(bytes)
        };
        self.addresses.iter().zip(kernel.parameters()).map(value).collect()
    }

    /// The kernel for the driver to run, and the list of addresses to pass. `self` must not move while the list is in
    /// use.
    pub(crate) fn for_driver(&mut self, kernel: Option<Kernel>) -> (Kernel, *const *const c_void) {
        let runs = kernel.unwrap_or_else(|| {
            self.addresses[0] = (&raw const self.stand_in_ns).cast();
            Kernel::Spin
        });
        (runs, self.addresses.as_ptr())
    }
}

/// Address and number of bytes in `{POINTER, p, SIZE, &n, END}`: real runtimes accept this order alone.
fn buffer(extra: In<usize>) -> Result<(usize, usize)> {
    let words = [extra.at(0)?, extra.at(1)?, extra.at(2)?, extra.at(3)?, extra.at(4)?];
    let [BUFFER_POINTER, start, BUFFER_SIZE, size, END] = words else { return Err(Error::INVALID_VALUE) };
    Ok((start, In::from_address(size).get()?))
}

/// Number of blocks, and of threads in a block, with all dimensions multiplied. A shape beyond the limits of a device
/// is refused.
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

/// Grid, block, and dynamic shared memory in bytes. The kernels here use no shared memory.
pub(crate) type Shape = (Dim3, Dim3, c_uint);

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
