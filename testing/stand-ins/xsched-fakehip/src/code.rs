//! Code objects: the kernels in a program's device code, and the initial values of its variables.
//!
//! Device code comes as an ELF file, or as a bundle (`__CLANG_OFFLOAD_BUNDLE__`) with one ELF file for each target.
//! Programs built without AMD's compiler use a third form, text: `fakehip kernels: axpy fill`.

use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::BTreeSet;
use std::ffi::CStr;

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const ELF: &[u8] = b"\x7fELF";
const TEXT: &[u8] = b"fakehip kernels:";
/// Magic number of the wrapper, "HIPF".
pub(crate) const WRAPPER: u32 = 0x4849_5046;

/// Contents of an image, by its form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// The contents of ELF files.
    Elf(Vec<&'static [u8]>),
    /// Names of kernels, without code.
    Names(BTreeSet<String>),
    /// A compressed bundle, which is not read.
    Opaque,
}

/// The `count` bytes at an address.
///
/// # Safety
/// The bytes exist, and live for ever.
unsafe fn bytes(at: *const u8, count: usize) -> &'static [u8] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(at, count) }
}

/// Reports whether an image begins with these bytes. Reads no further than the first difference.
///
/// # Safety
/// `at` points to an image of one of the known forms, or to bytes that differ from them in readable memory.
unsafe fn begins(at: *const u8, with: &[u8]) -> bool {
    // SAFETY: byte by byte, and no further than the first difference.
    with.iter().enumerate().all(|(i, &byte)| unsafe { at.add(i).read() } == byte)
}

fn number(from: &[u8]) -> Option<usize> {
    Some(u64::from_le_bytes(from.get(..8)?.try_into().ok()?) as usize)
}

impl Image {
    /// Finds the form of the image at an address; `None` if it has none of the known forms.
    ///
    /// # Safety
    /// A whole image lies at the address and stays, as the caller of the runtime vouches.
    pub(crate) unsafe fn at(at: *const u8) -> Option<Self> {
        if at.is_null() {
            return None;
        }
        // SAFETY: the caller vouches for the image; each form contains its own length.
        unsafe {
            if begins(at, BUNDLE) {
                return Self::bundle(at);
            }
            if begins(at, ELF) {
                return Some(Self::Elf(vec![bytes(at, elf_bytes(at)?)]));
            }
            if begins(at, COMPRESSED) {
                return Some(Self::Opaque);
            }
            if begins(at, TEXT) {
                let text = CStr::from_ptr(at.cast()).to_string_lossy().into_owned();
                let names = text[TEXT.len()..].split_whitespace().map(String::from).collect();
                return Some(Self::Names(names));
            }
        }
        None
    }

    /// # Safety
    /// As for [`Self::at`].
    unsafe fn bundle(at: *const u8) -> Option<Self> {
        /// Bound on the number of targets that are read.
        const MOST: usize = 1024;
        let mut next = BUNDLE.len() + 8;
        // SAFETY: the header of a bundle: a count, then for each entry three numbers and its name.
        let count = number(unsafe { bytes(at.add(BUNDLE.len()), 8) })?;
        let mut found = Vec::new();
        for _ in 0..count.min(MOST) {
            // SAFETY: as above.
            let entry = unsafe { bytes(at.add(next), 24) };
            let (offset, size, name) = (number(entry)?, number(&entry[8..])?, number(&entry[16..])?);
            // SAFETY: as above.
            let target = unsafe { bytes(at.add(next + 24), name) };
            next += 24 + name;
            if size > 0 && target.starts_with(b"hip") {
                // SAFETY: the bundle states that its entry lies inside.
                found.push(unsafe { bytes(at.add(offset), size) });
            }
        }
        Some(Self::Elf(found))
    }

    /// Names of the kernels in the image; `None` if it cannot be read.
    pub(crate) fn kernels(&self) -> Option<BTreeSet<String>> {
        match self {
            Self::Elf(files) => {
                let file = object::File::parse(*files.first()?).ok()?;
                let symbols = file.dynamic_symbols().chain(file.symbols());
                let names = symbols.filter_map(|symbol| symbol.name().ok()?.strip_suffix(".kd").map(String::from));
                Some(names.collect())
            }
            Self::Names(names) => Some(names.clone()),
            Self::Opaque => None,
        }
    }

    /// Size of a variable and its initial value, which is empty if the variable begins as zeros.
    pub(crate) fn variable(&self, name: &str) -> Option<(usize, Vec<u8>)> {
        let Self::Elf(files) = self else { return None };
        let file = object::File::parse(*files.first()?).ok()?;
        let symbol = file.dynamic_symbols().chain(file.symbols()).find(|symbol| symbol.name() == Ok(name))?;
        let size = symbol.size() as usize;
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok())?;
        let data = section.data_range(symbol.address(), symbol.size()).ok().flatten();
        Some((size, data.map(<[u8]>::to_vec).unwrap_or_default()))
    }
}

/// Length of an ELF file by its header: the table of sections is the last part of the file.
///
/// # Safety
/// The whole file lies at the address.
unsafe fn elf_bytes(at: *const u8) -> Option<usize> {
    // SAFETY: the header of an ELF file has 64 bytes.
    let header = unsafe { bytes(at, 64) };
    let half = |i: usize| usize::from(u16::from_le_bytes([header[i], header[i + 1]]));
    number(&header[40..])?.checked_add(half(58) * half(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: &'static [u8]) -> Option<Image> {
        // SAFETY: static bytes of a known form, or that differ from all in their first.
        unsafe { Image::at(bytes.as_ptr()) }
    }

    #[test]
    fn text_gives_names() {
        let names = image(b"fakehip kernels: axpy fill\0").and_then(|image| image.kernels());
        assert_eq!(names, Some(BTreeSet::from(["axpy".into(), "fill".into()])));
    }

    #[test]
    fn bundles_have_an_entry_for_each_target() {
        let mut bundle = BUNDLE.to_vec();
        bundle.extend(2_u64.to_le_bytes());
        for (offset, size, name) in [(0_u64, 0_u64, "host-x86_64"), (128, 4, "hipv4-amdgcn-amd-amdhsa--gfx906")] {
            [offset, size, name.len() as u64].iter().for_each(|number| bundle.extend(number.to_le_bytes()));
            bundle.extend(name.as_bytes());
        }
        bundle.resize(128, 0);
        bundle.extend(b"code");
        assert_eq!(image(bundle.leak()), Some(Image::Elf(vec![b"code"])));
    }

    #[test]
    fn other_things_are_no_image() {
        assert_eq!(image(b"nonsense"), None);
        assert_eq!(image(b"CCOB...."), Some(Image::Opaque));
    }
}
