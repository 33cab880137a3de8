//! Arrays and mipmapped arrays. Their size is computed: the driver does not tell it, and free memory changes by what
//! other programs do.

use super::super::types::*;
use super::super::{real, sig};
use super::calls::{address_at, allocates, lend, memory_calls};
use crate::interpose::hooks;
use crate::platform::shared::memory::{Part, account::rounded, steps::frees};

/// CUDA_ARRAY3D_CUBEMAP.
const CUBEMAP: c_uint = 0x04;
/// CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING: such arrays have no memory of their own.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;

/// CUDA_ARRAY3D_DESCRIPTOR of cuda.h, and, without depth and flags, CUDA_ARRAY_DESCRIPTOR. `T` is unsigned int in the
/// versions before CUDA 3.2.
#[repr(C)]
#[derive(Clone, Copy)]
struct Cuboid<T> {
    width: T,
    height: T,
    depth: T,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// CUDA_ARRAY_DESCRIPTOR of cuda.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rectangle<T> {
    width: T,
    height: T,
    format: c_int,
    channels: c_uint,
}

/// Number of bits of a channel (CUarray_format). Compressed formats count as four bits of each channel, of which they
/// have as many as the descriptor says.
fn bits(format: c_int) -> u64 {
    match format {
        0x01 | 0x08 | 0xc0 | 0xc3 => 8,
        0x02 | 0x09 | 0x10 | 0xc1 | 0xc4 => 16,
        0x91..=0x9f => 4,
        _ => 32,
    }
}

/// Size of an array by its measures; a measure of 0 is none.
fn size([width, height, depth]: [u64; 3], format: c_int, channels: c_uint, flags: c_uint) -> u64 {
    if flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let texels = [width, height, depth].into_iter().map(|measure| measure.max(1)).fold(1, u64::saturating_mul);
    rounded(texels.saturating_mul(u64::from(channels.max(1))).saturating_mul(bits(format)) / 8)
}

/// Measures, format, channels and flags of a descriptor.
type Described = ([u64; 3], c_int, c_uint, c_uint);

fn cuboid<T: Copy + Into<u64>>(descriptor: *mut c_void) -> Option<Described> {
    // SAFETY: null, or the caller's own descriptor, which the driver reads too.
    let d = unsafe { descriptor.cast::<Cuboid<T>>().as_ref() }?;
    Some(([d.width.into(), d.height.into(), d.depth.into()], d.format, d.channels, d.flags))
}

fn rectangle<T: Copy + Into<u64>>(descriptor: *mut c_void) -> Option<Described> {
    // SAFETY: as above.
    let d = unsafe { descriptor.cast::<Rectangle<T>>().as_ref() }?;
    Some(([d.width.into(), d.height.into(), 1], d.format, d.channels, 0))
}

/// Size of a mipmapped array: each level has half the measures of the one before.
fn mipmapped(descriptor: *mut c_void, levels: c_uint) -> u64 {
    let Some((measures, format, channels, flags)) = cuboid::<u64>(descriptor) else { return 0 };
    let level = |n: c_uint| {
        let [width, height, depth] = measures.map(|measure| measure >> n);
        // Layers and faces stay as they are: the descriptor's lowest bit says that the depth counts layers.
        let depth = if flags & (1 | CUBEMAP) != 0 { measures[2] } else { depth };
        size([width, height, depth], format, channels, flags)
    };
    (0..levels.clamp(1, 32)).map(level).fold(0, u64::saturating_add)
}

fn made(real: *mut c_void, place: *mut c_void, bytes: u64, call: impl Fn() -> CUresult) -> CUresult {
    allocates(real, Part::Array, bytes, call, || (address_at::<u64>(place), bytes))
}

fn bytes((measures, format, channels, flags): Described) -> u64 {
    size(measures, format, channels, flags)
}

fn destroyed(real: *mut c_void, array: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    frees(array as u64, || lend(real, call))
}

memory_calls! {
    ARRAYS: Sync;
    fn cuArray3DCreate(pHandle: *mut c_void, pAllocateArray: *mut c_void) [made(pHandle, cuboid::<u32>(pAllocateArray).map_or(0, bytes))];
    fn cuArray3DCreate_v2(pHandle: *mut c_void, pAllocateArray: *mut c_void) [made(pHandle, cuboid::<u64>(pAllocateArray).map_or(0, bytes))];
    fn cuArrayCreate(pHandle: *mut c_void, pAllocateArray: *mut c_void) [made(pHandle, rectangle::<u32>(pAllocateArray).map_or(0, bytes))];
    fn cuArrayCreate_v2(pHandle: *mut c_void, pAllocateArray: *mut c_void) [made(pHandle, rectangle::<u64>(pAllocateArray).map_or(0, bytes))];
    fn cuArrayDestroy(hArray: *mut c_void) [destroyed(hArray)];
    fn cuMipmappedArrayCreate(pHandle: *mut c_void, pMipmappedArrayDesc: *mut c_void, numMipmapLevels: c_uint) [made(pHandle, mipmapped(pMipmappedArrayDesc, numMipmapLevels))];
    fn cuMipmappedArrayDestroy(hMipmappedArray: *mut c_void) [destroyed(hMipmappedArray)];
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FLOAT: c_int = 0x20;

    #[test]
    fn an_array_is_as_large_as_its_texels() {
        assert_eq!(size([1024, 1024, 0], FLOAT, 4, 0), 16 * MIB);
        assert_eq!(size([1024, 0, 0], 0x01, 1, 0), 1024);
        assert_eq!(size([1024, 1024, 4], 0x10, 2, 0), 16 * MIB, "halves");
        assert_eq!(size([1024, 1024, 0], FLOAT, 4, 0x40), 0, "sparse");
        assert_eq!(size([u64::MAX; 3], FLOAT, 4, 0), rounded(u64::MAX / 8), "no overflow");
        let mut whole = Cuboid { width: 1024u64, height: 1024, depth: 0, format: FLOAT, channels: 4, flags: 0 };
        let descriptor = std::ptr::from_mut(&mut whole).cast();
        assert_eq!(mipmapped(descriptor, 2), 20 * MIB);
        assert_eq!(mipmapped(std::ptr::null_mut(), 2), 0);
        let mut layers = Cuboid { width: 1024u64, height: 1024, depth: 4, format: FLOAT, channels: 1, flags: 1 };
        assert_eq!(mipmapped(std::ptr::from_mut(&mut layers).cast(), 2), 20 * MIB, "layers stay as many");
        assert_eq!(size([1024, 1024, 0], 0x91, 4, 0), 2 * MIB, "four bits of each channel");
    }
}
