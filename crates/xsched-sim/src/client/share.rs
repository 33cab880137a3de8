//! Memory that contexts of several processes share: pages of one arena in another.

use super::context::{Context, lock};
use super::error::{Error, Result};
use crate::layout::ARENA_BYTES;
use crate::wire::Request;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// By what another process gets at exported pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// The device's number for them.
    pub number: u64,
    /// Only who was told it may import them.
    pub secret: u64,
    /// How much they are, in bytes.
    pub bytes: u64,
}

/// Others' pages in a context's arena: offset → bytes.
#[derive(Default)]
pub(super) struct Imports(Mutex<BTreeMap<u64, u64>>);

impl Imports {
    /// Offsets and bytes of what is the arena's own.
    pub(super) fn gaps(&self) -> Vec<(u64, u64)> {
        let (mut gaps, mut next) = (Vec::new(), 0);
        for (&at, &bytes) in lock(&self.0).iter() {
            gaps.push((next, at - next));
            next = at + bytes;
        }
        gaps.push((next, ARENA_BYTES as u64 - next));
        gaps
    }
}

impl Context {
    /// Lets other processes import whole pages of the arena.
    pub fn export(&self, offset: u64, bytes: u64) -> Result<Export> {
        let [number, secret, ..] = self.ask(Request::Export { offset, bytes }, None)?;
        Ok(Export { number, secret, bytes })
    }

    /// Ends that; those who have them keep them.
    pub fn unexport(&self, number: u64) -> Result<()> {
        self.ask(Request::Unexport { number }, None).map(drop)
    }

    /// Puts another context's pages where `at` is in this arena, for the device and for this process. The room must be
    /// the caller's, and nothing in use.
    pub fn import(&self, export: Export, at: u64) -> Result<()> {
        let Export { number, secret, bytes } = export;
        let mut imports = lock(&self.imports.0);
        let ([offset, ..], fds) = self.request(Request::Import { number, secret, at, bytes }, None)?;
        let fd = fds.first().ok_or(Error::DeviceLost)?;
        if self.arena().replace(at, fd, offset, bytes).is_err() {
            self.ask(Request::Restore { at }, None)?;
            return Err(Error::OutOfMemory);
        }
        imports.insert(at, bytes);
        Ok(())
    }

    /// Puts the arena's own pages back where others' were imported.
    pub fn restore(&self, at: u64) -> Result<()> {
        let mut imports = lock(&self.imports.0);
        let bytes = imports.get(&at).copied().ok_or(Error::InvalidValue)?;
        let (_, fds) = self.request(Request::Restore { at }, None)?;
        let fd = fds.first().ok_or(Error::DeviceLost)?;
        self.arena().replace(at, fd, at, bytes).map_err(|_| Error::OutOfMemory)?;
        imports.remove(&at);
        Ok(())
    }
}
