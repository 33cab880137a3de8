//! Memory of a client: its arena, pages of other arenas in it, and regions of its own memory.

use crate::layout::ARENA_BYTES;
use crate::memory::{Mapping, sealed_memfd};
use crate::server::effect::Regions;
use rustix::fd::OwnedFd;
use rustix::fs::SealFlags;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// Upper limit of a client's imports, and of its regions.
const MOST: usize = 1024;

/// Number and size of memory that several clients may hold; `None` if it may change its size.
pub(in crate::server) fn held(fd: &OwnedFd) -> Option<(u64, u64)> {
    let seals = rustix::fs::fcntl_get_seals(fd).ok()?;
    let stat = rustix::fs::fstat(fd).ok()?;
    seals.contains(SealFlags::SHRINK | SealFlags::GROW).then_some((stat.st_ino, stat.st_size.cast_unsigned()))
}

/// Memory of a client that the device can reach.
pub(in crate::server) struct Memory {
    regions: Regions,
    /// Memory file of the arena.
    arena: Rc<OwnedFd>,
    /// Pages of other arenas in this one: offset → bytes.
    imports: BTreeMap<u64, u64>,
}

impl Memory {
    /// Memory with an empty arena, and the descriptor of the arena to send to the client.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let arena = sealed_memfd("simdev-arena", ARENA_BYTES)?;
        let memory = Self {
            regions: Regions::from([(0, Rc::new(Mapping::new(&arena, 0, ARENA_BYTES)?))]),
            arena: Rc::new(rustix::io::fcntl_dupfd_cloexec(&arena, 3)?),
            imports: BTreeMap::new(),
        };
        Ok((memory, arena))
    }

    /// Regions by number; 0 = the arena.
    pub(super) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Memory file of the arena.
    pub(in crate::server) fn arena(&self) -> &Rc<OwnedFd> {
        &self.arena
    }

    /// Reports whether these pages may be exported, or replaced by an import: not if they are imported themselves.
    pub(in crate::server) fn may_export(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes).filter(|&end| end <= ARENA_BYTES as u64 && bytes > 0);
        let whole = offset.is_multiple_of(4096) && bytes.is_multiple_of(4096);
        whole && end.is_some_and(|end| self.imported(offset, end).is_none())
    }

    /// Offset of an import that overlaps a range.
    fn imported(&self, start: u64, end: u64) -> Option<u64> {
        self.imports.iter().find(|&(&at, &bytes)| at < end && start < at + bytes).map(|(&at, _)| at)
    }

    /// Puts pages of another arena in place of some of its own.
    pub(in crate::server) fn import(&mut self, at: u64, fd: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
        let refused = !self.may_export(at, bytes) || self.imports.len() >= MOST;
        let arena = self.regions.get(&0).filter(|_| !refused).ok_or(io::ErrorKind::InvalidInput)?;
        arena.replace(at, fd, offset, bytes)?;
        self.imports.insert(at, bytes);
        Ok(())
    }

    /// Puts pages of the client's own memfd in place of some of the arena's.
    pub(in crate::server) fn map(&mut self, at: u64, fd: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return refuse("memory that may shrink");
        }
        let size = rustix::fs::fstat(fd)?.st_size.cast_unsigned();
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return refuse("a range outside the file");
        }
        self.import(at, fd, offset, bytes)
    }

    /// Puts its own pages back in place of imported ones.
    pub(in crate::server) fn restore(&mut self, at: u64) -> io::Result<()> {
        let arena = self.regions.get(&0).ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = *self.imports.get(&at).ok_or(io::ErrorKind::InvalidInput)?;
        arena.replace(at, &self.arena, at, bytes)?;
        self.imports.remove(&at);
        Ok(())
    }

    /// Adds a region of the client's own memory.
    pub(in crate::server) fn register(&mut self, region: u32, fd: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return refuse("memory that may shrink");
        }
        let size = rustix::fs::fstat(fd)?.st_size.cast_unsigned();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= size.next_multiple_of(4096));
        if bytes == 0 || !offset.is_multiple_of(4096) || !inside || self.regions.len() > MOST {
            return refuse("a range outside the file");
        }
        let Ok(length) = usize::try_from(bytes) else { return refuse("too long") };
        if region == 0 || self.regions.contains_key(&region) {
            return refuse("a number in use");
        }
        self.regions.insert(region, Rc::new(Mapping::new(fd, offset, length)?));
        Ok(())
    }

    /// Removes a region. Returns true if there was one of this number; the arena stays.
    pub(in crate::server) fn unregister(&mut self, region: u32) -> bool {
        region != 0 && self.regions.remove(&region).is_some()
    }
}
