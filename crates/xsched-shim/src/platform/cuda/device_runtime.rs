//! Search for loaded objects whose kernels launch others from the device (dynamic parallelism): NVIDIA's device runtime
//! is linked into them. MPS does not run such kernels.
//!
//! nvcc 13.0 stores the name of every relocatable module in a section `__nv_module_id`, which `strip` keeps. The linker
//! takes the device runtime's module from `libcudadevrt.a` only if a kernel launches another one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::interpose::objects::Objects;

const SECTION: &[u8] = b"__nv_module_id\0";
const RUNTIME: &[u8] = b"cuda_device_runtime";
/// Upper limit of the section's size, in bytes. It holds some 60 bytes for each module; a larger one is not read.
const SECTION_MAX: u64 = 1 << 20;
/// Upper limit of an object's sections, and of the bytes of their names. A file with more is no object.
const SECTIONS_MAX: usize = 4096;
const SHT_NOBITS: u32 = 8;

/// Function that reads this many bytes from this offset of a file.
type Read<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;

/// File of a loaded object whose kernels launch others, if there is one.
pub(super) fn linked_into() -> Option<String> {
    let files = Objects::now().into_each(|_, _, file, _| file);
    files.into_iter().find_map(|file| {
        let path = if file.is_empty() { std::env::current_exe().ok()?.to_str()?.to_owned() } else { file };
        let object = File::open(&path).ok()?;
        let read = |at, length| {
            let mut bytes = vec![0; length];
            object.read_exact_at(&mut bytes, at).ok()?;
            Some(bytes)
        };
        is_in(&read)?.then_some(path)
    })
}

/// Reports whether the device runtime is linked into an object; `None` if it is no object of this machine.
fn is_in(read: Read) -> Option<bool> {
    let head = read(0, 64)?;
    if head[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, entry) = (u64_at(&head, 40)?, usize::from(u16_at(&head, 58)?));
    let (count, names) = (usize::from(u16_at(&head, 60)?), usize::from(u16_at(&head, 62)?));
    if entry != 64 || count > SECTIONS_MAX {
        return None;
    }
    let headers = read(table, count * entry)?;
    let sections: Vec<Section> = headers.chunks_exact(entry).filter_map(Section::of).collect();
    let names = sections.get(names)?.content(read)?;
    let named = |section: &&Section| names.get(section.name..).is_some_and(|name| name.starts_with(SECTION));
    let modules = sections.iter().find(named).and_then(|section| section.content(read));
    Some(modules.is_some_and(|modules| modules.windows(RUNTIME.len()).any(|window| window == RUNTIME)))
}

/// Header of a section (ELF-64, gABI "Sections").
struct Section {
    /// Offset of its name in the table of names.
    name: usize,
    kind: u32,
    offset: u64,
    bytes: u64,
}

impl Section {
    fn of(header: &[u8]) -> Option<Section> {
        Some(Section {
            name: u32_at(header, 0)? as usize,
            kind: u32_at(header, 4)?,
            offset: u64_at(header, 24)?,
            bytes: u64_at(header, 32)?,
        })
    }

    fn content(&self, read: Read) -> Option<Vec<u8>> {
        let is_small = self.kind != SHT_NOBITS && self.bytes <= SECTION_MAX;
        is_small.then(|| read(self.offset, self.bytes as usize))?
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(object: &[u8]) -> Option<bool> {
        is_in(&|at, length| object.get(at as usize..)?.get(..length).map(<[u8]>::to_vec))
    }

    /// An object file with a section of this name and content.
    fn object(name: &[u8], content: &[u8]) -> Vec<u8> {
        let names = [b"\0", name].concat();
        let mut head = vec![0u8; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let (names_at, content_at) = (64, 64 + names.len());
        let table = content_at + content.len();
        head[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        head[58..64].copy_from_slice(&[64, 0, 2, 0, 0, 0]);
        let header = |name: u32, offset: usize, bytes: usize| {
            let mut header = vec![0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4] = 1; // SHT_PROGBITS
            header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
            header
        };
        let headers = [header(0, names_at, names.len()), header(1, content_at, content.len())].concat();
        [head, names, content.to_vec(), headers].concat()
    }

    #[test]
    fn the_device_runtime_is_found_by_its_module() {
        let modules = b"_951a2fba_10_dynamic_cu_f5de631e\0_f4510a67_22_cuda_device_runtime_cu_3ecce0c0\0";
        assert_eq!(found_in(&object(SECTION, modules)), Some(true));
        assert_eq!(found_in(&object(SECTION, b"_86dc02fe_8_plain_cu__Z1kPi\0")), Some(false));
        assert_eq!(found_in(&object(b".rodata\0", modules)), Some(false));
    }

    #[test]
    fn what_is_cut_off_or_no_object_is_left_alone() {
        let whole = object(SECTION, RUNTIME);
        for length in 0..whole.len() {
            assert_ne!(found_in(&whole[..length]), Some(true), "{length} bytes");
        }
        assert_eq!(found_in(b"#!/bin/sh\n"), None);
        assert_eq!(linked_into(), None, "of this test");
    }
}
