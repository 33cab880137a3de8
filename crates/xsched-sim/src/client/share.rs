//! Memory shared by contexts of several processes: pages of one arena in another.

use super::context::Context;
use super::error::{Error, Result};
use super::wait::lock;
use crate::wire::Request;
use rustix::fd::OwnedFd;

/// Size of a page, in bytes.
pub const PAGE: u64 = 4096;

/// Description of exported pages, by which another process imports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Number of the export at the device.
    pub number: u64,
    /// Secret, which a process must know to import the pages.
    pub secret: u64,
    /// Size of the pages, in bytes.
    pub bytes: u64,
}

impl Context {
    /// Lets other processes import whole pages of the arena.
    pub fn export(&self, offset: u64, bytes: u64) -> Result<Export> {
        let [number, secret, ..] = self.ask(Request::Export { offset, bytes }, None)?;
        Ok(Export { number, secret, bytes })
    }

    /// Withdraws an export; processes that imported it keep the pages.
    pub fn unexport(&self, number: u64) -> Result<()> {
        self.ask(Request::Unexport { number }, None).map(drop)
    }

    /// Puts another context's pages at `at` in this arena, for the device and for this process. The place must be
    /// allocated by the caller and not in use.
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

    /// Puts pages of a memfd, sealed against shrinking, at `at` in this arena, for the device and for this process, until
    /// [`Self::restore`]. The place must be allocated by the caller and not in use.
    pub fn map(&self, at: u64, fd: &OwnedFd, offset: u64, bytes: u64) -> Result<()> {
        let mut imports = lock(&self.imports.0);
        self.ask(Request::Map { at, offset, bytes }, Some(fd))?;
        if self.arena().replace(at, fd, offset, bytes).is_err() {
            self.request(Request::Restore { at }, None)?;
            return Err(Error::OutOfMemory);
        }
        imports.insert(at, bytes);
        Ok(())
    }

    /// Puts the arena's own pages back in place of imported ones.
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
