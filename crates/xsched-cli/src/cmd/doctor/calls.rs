//! Targets of the calls of a running program's modules, by the addresses that the loader has put into them. A module that was opened with
//! `RTLD_DEEPBIND`, or into another namespace by `dlmopen`, calls its vendor's library past every preload.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, ReadCache, RelocationTarget};
use xsched_proto::files;

use super::process::{self, Mapping};
use super::shadow::{LAUNCHES, is_ours};

/// Modules of a program, by the target of their calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Number of modules whose calls reach the library.
    pub(super) through: usize,
    /// Modules whose calls pass by the library.
    pub(super) past: Vec<Past>,
}

/// Module whose calls do not reach the library.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) module: PathBuf,
    pub(super) function: &'static str,
    /// File that answers the calls.
    pub(super) owner: PathBuf,
}

/// Examines every module of a program that calls a function that launches.
///
/// # Errors
/// Fails where the program's memory may not be read.
pub(super) fn of(pid: u32) -> std::io::Result<Calls> {
    let mappings = process::mappings(pid)?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut calls = Calls::default();
    let mut known = BTreeSet::new();
    for first in mappings.iter().filter(|m| m.offset == 0) {
        let Some(module) = &first.file else { continue };
        // One file may be mapped twice, in two namespaces of the loader.
        if is_ours(module) || first.is_gone || !known.insert(first.start) {
            continue;
        }
        for (function, slot) in slots(&process::path_in(pid, module), first.start).unwrap_or_default() {
            let mut word = [0; 8];
            if memory.read_exact_at(&mut word, slot).is_err() {
                continue;
            }
            let Some(owner) = owner(&mappings, u64::from_ne_bytes(word)) else { continue };
            match owner {
                owner if is_ours(owner) => calls.through += 1,
                // Not called yet: the loader resolves it at the first call.
                owner if owner == module => {}
                owner => calls.past.push(Past { module: module.clone(), function, owner: owner.to_owned() }),
            }
        }
    }
    Ok(calls)
}

fn owner(mappings: &[Mapping], address: u64) -> Option<&Path> {
    let at = mappings.iter().find(|m| (m.start..m.end).contains(&address))?;
    at.file.as_deref()
}

/// Launch functions that a module calls, each with the address of the word that holds its target; none for a module that defines them
/// itself.
fn slots(file: &Path, start: u64) -> Option<Vec<(&'static str, u64)>> {
    let cache = ReadCache::new(files::read_only(file).ok()?);
    let elf: ElfFile64<Endianness, _> = ElfFile64::parse(&cache).ok()?;
    let symbols = elf.dynamic_symbol_table()?;
    let launch = |name: &str| LAUNCHES.into_iter().find(|launch| *launch == name);
    let mut wanted = Vec::new();
    for symbol in symbols.symbols() {
        let Some(function) = symbol.name().ok().and_then(launch) else { continue };
        if symbol.is_definition() {
            return None;
        }
        wanted.push((symbol.index(), function));
    }
    if wanted.is_empty() {
        return None;
    }
    let lowest = elf.segments().map(|segment| segment.address()).min()?;
    let base = start.wrapping_sub(lowest & !0xfff);
    let slot = |(at, relocation): (u64, object::Relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let (_, function) = wanted.iter().find(|(wanted, _)| *wanted == index)?;
        Some((*function, base.wrapping_add(at)))
    };
    Some(elf.dynamic_relocations()?.filter_map(slot).collect())
}
