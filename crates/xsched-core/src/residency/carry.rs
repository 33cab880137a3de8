//! Moves of memory as transactions. A move is a sequence of driver calls, each of which may fail. After a failure every chunk is as
//! before, or backed by host memory at the same address if the driver does not give that either. The state of a chunk follows each
//! call that succeeds, so that it is the record from which a move is undone.

use std::collections::VecDeque;

use super::Place;
use super::choice::{self, Part};

#[cfg(test)]
mod tests;

/// Host memory of the store: mapped for the device at an address of its own, from which and to which copies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<H> {
    /// Handle of the memory.
    pub handle: H,
    /// Address of its own.
    pub at: u64,
}

/// Calls of a driver that a move needs. Sizes are in bytes. None of them may wait for commands of the program, and a call that fails
/// must have had no effect.
pub trait Driver {
    /// Handle of physical memory.
    type Handle: Copy + Eq + core::fmt::Debug;
    /// Place in the order of the copies.
    type Mark;
    /// Reason of a refusal.
    type Error;

    /// Makes memory on the device, for the chunk at an address.
    fn create(&mut self, at: u64, bytes: u64) -> Result<Self::Handle, Self::Error>;
    /// Gives memory back to the device, once nothing maps it.
    fn release(&mut self, handle: Self::Handle) -> Result<(), Self::Error>;
    /// Maps memory, without access.
    fn map(&mut self, at: u64, bytes: u64, handle: Self::Handle) -> Result<(), Self::Error>;
    /// Gives all devices access that are to have it.
    fn allow(&mut self, at: u64, bytes: u64) -> Result<(), Self::Error>;
    /// Takes a mapping away.
    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), Self::Error>;
    /// Enqueues a copy between two mapped addresses.
    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), Self::Error>;
    /// Marks the copies that were enqueued so far.
    fn mark(&mut self) -> Result<Self::Mark, Self::Error>;
    /// Waits for the copies before a mark.
    fn reach(&mut self, mark: Self::Mark) -> Result<(), Self::Error>;
    /// Waits for all copies.
    fn finish(&mut self) -> Result<(), Self::Error>;
    /// Takes memory from the store.
    fn take(&mut self, bytes: u64) -> Result<Stored<Self::Handle>, Self::Error>;
    /// Gives memory back to the store.
    fn give(&mut self, stored: Stored<Self::Handle>, bytes: u64);
}

/// Follows the pieces of a move, as there is room on the device. Memory leaves and comes back in pieces, so that another program's can come while one's
/// leaves: both directions of the link are in use then.
pub trait Pieces<E> {
    /// So many bytes have left the device, and others may take them.
    fn left(&mut self, bytes: u64);
    /// So many bytes are about to come to the device, of `all` that the move brings there. Waits until there is room.
    ///
    /// # Errors
    /// There is no room.
    fn comes(&mut self, bytes: u64, all: u64) -> Result<(), E>;
}

/// Room that nobody else waits for or gives.
impl<E> Pieces<E> for () {
    fn left(&mut self, _: u64) {}

    fn comes(&mut self, _: u64, _: u64) -> Result<(), E> {
        Ok(())
    }
}

/// Least size of a piece, but for the last one, in bytes: some ms of copies, beside which the calls for a piece take little time.
const PIECE: u64 = 128 << 20;
/// Pieces that are copied at a time: enough for the calls of one to take no time from the copies, and so few that the first ends soon.
const AHEAD: usize = 4;

/// Backing of a chunk's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapped {
    /// The chunk's memory on the device, with its contents.
    Device,
    /// Its memory in the store, with its contents.
    Host,
    /// Memory on the device without the contents, which are in the store.
    Empty,
    /// Memory without access, which the driver did not unmap; the contents are in the store.
    Blind,
    /// Nothing; the contents are in the store.
    Nothing,
}

/// Memory of a chunk that can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<H> {
    /// Memory on the device.
    Device(H),
    /// Memory of the store.
    Store(Stored<H>),
}

impl<H: Copy> Body<H> {
    /// Handle of the memory.
    pub fn handle(&self) -> H {
        match self {
            Body::Device(handle) => *handle,
            Body::Store(stored) => stored.handle,
        }
    }
}

/// Part of a program's memory that moves as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk<H> {
    at: u64,
    bytes: u64,
    mapped: Mapped,
    device: Option<H>,
    store: Option<Stored<H>>,
}

impl<H: Copy> Chunk<H> {
    /// Chunk that is mapped, with access, to memory on the device.
    pub fn new(at: u64, bytes: u64, handle: H) -> Self {
        Chunk { at, bytes, mapped: Mapped::Device, device: Some(handle), store: None }
    }

    /// Chunk that is mapped, with access, to this memory.
    pub fn of(at: u64, bytes: u64, body: Body<H>) -> Self {
        match body {
            Body::Device(handle) => Chunk::new(at, bytes, handle),
            Body::Store(stored) => Chunk { at, bytes, mapped: Mapped::Host, device: None, store: Some(stored) },
        }
    }

    /// Memory that is mapped there; `None` if the chunk cannot be reached.
    pub fn body(&self) -> Option<Body<H>> {
        match self.mapped {
            Mapped::Device => self.device.map(Body::Device),
            Mapped::Host => self.store.map(Body::Store),
            Mapped::Empty | Mapped::Blind | Mapped::Nothing => None,
        }
    }

    /// First address.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Handle of its memory on the device, unless it is away.
    pub fn handle(&self) -> Option<H> {
        self.device
    }

    /// Bytes of it in the store.
    pub fn stored_bytes(&self) -> u64 {
        if self.store.is_some() { self.bytes } else { 0 }
    }

    fn is_reachable(&self) -> bool {
        matches!(self.mapped, Mapped::Device | Mapped::Host)
    }

    /// One try to bring the chunk back to what it was `before`, or to host memory. Nothing is left to do for a chunk that is there.
    fn return_to<D: Driver<Handle = H>>(&mut self, driver: &mut D, before: &Self) {
        // Memory without contents or access must not stay where it could be touched. A chunk whose device memory still has the
        // contents goes back to it.
        let returns = before.mapped == Mapped::Device;
        let amiss = match self.mapped {
            Mapped::Empty | Mapped::Blind => true,
            Mapped::Host => returns || !before.is_reachable(),
            Mapped::Device | Mapped::Nothing => false,
        };
        if amiss && self.mapped != before.mapped {
            let _ = self.hide(driver);
        }
        if self.mapped == Mapped::Nothing && returns {
            let _ = self.show_device(driver, Mapped::Device);
        }
        if self.mapped == Mapped::Nothing && before.is_reachable() {
            let _ = self.show_host(driver);
        }
    }

    fn show_host<D: Driver<Handle = H>>(&mut self, driver: &mut D) -> Result<(), D::Error> {
        match self.store {
            Some(stored) => self.show(driver, stored.handle, Mapped::Host),
            None => Ok(()),
        }
    }

    /// Maps memory on the device, which has the chunk's contents or not.
    fn show_device<D: Driver<Handle = H>>(&mut self, driver: &mut D, then: Mapped) -> Result<(), D::Error> {
        match self.device {
            Some(handle) => self.show(driver, handle, then),
            None => Ok(()),
        }
    }

    fn show<D: Driver<Handle = H>>(&mut self, driver: &mut D, handle: H, then: Mapped) -> Result<(), D::Error> {
        driver.map(self.at, self.bytes, handle)?;
        let allowed = driver.allow(self.at, self.bytes);
        self.mapped = if allowed.is_ok() { then } else { Mapped::Blind };
        if allowed.is_err() {
            let _ = self.hide(driver);
        }
        allowed
    }

    /// Releases memory of the device that it does not use: from then on others may have it.
    fn release_unused<D: Driver<Handle = H>>(&mut self, driver: &mut D) -> Result<(), D::Error> {
        if let (Mapped::Nothing | Mapped::Host, Some(handle)) = (self.mapped, self.device) {
            driver.release(handle)?;
            self.device = None;
        }
        Ok(())
    }

    fn hide<D: Driver<Handle = H>>(&mut self, driver: &mut D) -> Result<(), D::Error> {
        if self.mapped != Mapped::Nothing {
            driver.unmap(self.at, self.bytes)?;
            self.mapped = Mapped::Nothing;
        }
        Ok(())
    }
}

/// Times that each step is tried while a move is undone or memory is freed.
const TRIES: usize = 2;

/// Result of a move.
#[derive(Debug)]
pub struct Moved<E> {
    /// Place of the memory. [`Place::Host`]: all of it can be reached, and a part of it at least is host memory.
    pub place: Place,
    /// Failure that ended the move, or that left something to be released later.
    pub error: Option<E>,
}

/// All movable memory of a program on one device.
pub struct Residents<H> {
    /// The chunks. A program's new memory is added while the latch is open, freed memory taken out.
    pub chunks: Vec<Chunk<H>>,
    /// Memory of the device that the driver would not take back. Tried again with each move.
    unreleased: Vec<H>,
    /// Memory of the store that a copy may still write to.
    unusable: Vec<Stored<H>>,
    /// Copies were enqueued and not waited for.
    copies: bool,
}

impl<H> Default for Residents<H> {
    fn default() -> Self {
        Residents { chunks: Vec::new(), unreleased: Vec::new(), unusable: Vec::new(), copies: false }
    }
}

impl<H: Copy + Eq + core::fmt::Debug> Residents<H> {
    /// Place of the memory.
    pub fn place(&self) -> Place {
        let mut place = Place::Device;
        for chunk in &self.chunks {
            match chunk.mapped {
                Mapped::Device => {}
                Mapped::Host => place = Place::Host,
                Mapped::Empty | Mapped::Blind | Mapped::Nothing => return Place::Away,
            }
        }
        place
    }

    /// Bytes of chunks that are not on the device.
    pub fn away_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.device.is_none()).map(|chunk| chunk.bytes).sum()
    }

    /// Bytes of chunks that are on the device.
    pub fn resident_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.device.is_some()).map(|chunk| chunk.bytes).sum()
    }

    /// Bytes of chunks that can be reached, and are not on the device.
    pub fn hosted_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.mapped == Mapped::Host).map(|chunk| chunk.bytes).sum()
    }

    /// Takes the chunks in a range of addresses out, to be discarded or to stay where they are.
    pub fn take_range(&mut self, at: u64, bytes: u64) -> Vec<Chunk<H>> {
        let within = |chunk: &mut Chunk<H>| at <= chunk.at && chunk.at < at + bytes;
        self.chunks.extract_if(.., within).collect()
    }

    /// Frees chunks that can be reached. Returns memory that the driver would not take back, for [`Residents::keep_unreleased`].
    pub fn discard<D: Driver<Handle = H>>(driver: &mut D, chunks: Vec<Chunk<H>>) -> Vec<H> {
        let mut unreleased = Vec::new();
        for mut chunk in chunks {
            let hidden = (0..TRIES).any(|_| chunk.hide(driver).is_ok());
            unreleased.extend(chunk.device.filter(|&handle| driver.release(handle).is_err()));
            // Memory that is still mapped must not get another chunk's contents.
            if let Some(stored) = chunk.store.filter(|_| hidden) {
                driver.give(stored, chunk.bytes);
            }
        }
        unreleased
    }

    /// Takes over memory that is to be released with a later move.
    pub fn keep_unreleased(&mut self, handles: Vec<H>) {
        self.unreleased.extend(handles);
    }

    /// Moves chunks of so many bytes at least from the device to host memory, where they can be reached: the coldest, and of equals those that
    /// were added last. `heat` has one number for each chunk. As for [`Residents::carry`], no thread may touch the chunks meanwhile.
    pub fn lend<D: Driver<Handle = H>>(&mut self, driver: &mut D, bytes: u64, heat: &[u32]) -> Moved<D::Error> {
        let goes = choice::coldest(&self.parts(Mapped::Device, heat), bytes);
        self.carry_some(driver, &goes, Place::Host)
    }

    /// Moves chunks of so many bytes at most from host memory back to the device: the hottest.
    pub fn take_back<D: Driver<Handle = H>>(&mut self, driver: &mut D, bytes: u64, heat: &[u32]) -> Moved<D::Error> {
        let comes = choice::hottest(&self.parts(Mapped::Host, heat), bytes);
        self.carry_some(driver, &comes, Place::Device)
    }

    /// Has hot chunks on the host, of so many bytes at most, change places with cold ones on the device. The device holds no more meanwhile
    /// than before.
    pub fn exchange<D: Driver<Handle = H>>(&mut self, driver: &mut D, bytes: u64, heat: &[u32]) -> Moved<D::Error> {
        let (goes, comes) = self.exchanged(bytes, heat);
        let gone = self.carry_some(driver, &goes, Place::Host);
        if gone.error.is_some() { gone } else { self.carry_some(driver, &comes, Place::Device) }
    }

    /// Checks whether [`Residents::exchange`] would move anything.
    pub fn has_exchange(&self, heat: &[u32]) -> bool {
        self.exchanged(u64::MAX, heat).0.contains(&true)
    }

    fn exchanged(&self, bytes: u64, heat: &[u32]) -> (Vec<bool>, Vec<bool>) {
        choice::exchange(&self.parts(Mapped::Device, heat), &self.parts(Mapped::Host, heat), bytes)
    }

    /// Sizes and heat of the chunks at a place; `None` for the others.
    fn parts(&self, at: Mapped, heat: &[u32]) -> Vec<Option<Part>> {
        let part =
            |(chunk, heat): (&Chunk<H>, &u32)| (chunk.mapped == at).then_some(Part { bytes: chunk.bytes, heat: *heat });
        self.chunks.iter().zip(heat).map(part).collect()
    }

    /// Moves some of the chunks, as [`Residents::carry`] does all of them. The place that is returned is that of all.
    fn carry_some<D: Driver<Handle = H>>(&mut self, driver: &mut D, which: &[bool], to: Place) -> Moved<D::Error> {
        let mut goes = which.iter();
        let some: Vec<Chunk<H>> = self.chunks.extract_if(.., |_| goes.next() == Some(&true)).collect();
        let mut rest = std::mem::replace(&mut self.chunks, some).into_iter();
        let moved = self.carry(driver, &mut (), to);
        let mut gone = std::mem::take(&mut self.chunks).into_iter();
        self.chunks = which.iter().filter_map(|goes| if *goes { gone.next() } else { rest.next() }).collect();
        self.chunks.extend(rest);
        Moved { place: self.place(), error: moved.error }
    }

    /// Moves all memory. No thread may touch it meanwhile, and the device must have executed all that does.
    pub fn carry<D: Driver<Handle = H>>(
        &mut self,
        driver: &mut D,
        room: &mut impl Pieces<D::Error>,
        to: Place,
    ) -> Moved<D::Error> {
        self.unreleased.retain(|&handle| driver.release(handle).is_err());
        let before = self.chunks.clone();
        let result = match to {
            Place::Away | Place::Host => self.leave(driver, room, to),
            Place::Device => self.come_back(driver, room),
        };
        match result {
            Ok(()) if to == Place::Device => self.empty_store(driver),
            Ok(()) => {}
            Err(_) => self.undo(driver, &before),
        }
        let mut error = result.err();
        for chunk in &mut self.chunks {
            if let Err(refusal) = chunk.release_unused(driver) {
                self.unreleased.extend(chunk.device.take());
                error.get_or_insert(refusal);
            }
        }
        Moved { place: self.place(), error }
    }

    /// Numbers of chunks in pieces that move one after the other.
    fn pieces(&self, which: impl Fn(&Chunk<H>) -> bool) -> Vec<Vec<usize>> {
        let mut pieces: Vec<Vec<usize>> = Vec::new();
        let mut bytes = PIECE;
        for (n, chunk) in self.chunks.iter().enumerate().filter(|(_, chunk)| which(chunk)) {
            if bytes >= PIECE {
                pieces.push(Vec::new());
                bytes = 0;
            }
            bytes += chunk.bytes;
            pieces.last_mut().expect("one was begun").push(n);
        }
        pieces
    }

    fn bytes_of(&self, piece: &[usize]) -> u64 {
        piece.iter().map(|&n| self.chunks[n].bytes).sum()
    }

    /// Copies to the store what is not there, and takes all mappings away or maps the store. A piece that has been copied is released while
    /// the next ones are copied.
    fn leave<D: Driver<Handle = H>>(
        &mut self,
        driver: &mut D,
        room: &mut impl Pieces<D::Error>,
        to: Place,
    ) -> Result<(), D::Error> {
        // Host memory is what lacks most often, so all of it is taken before the first piece is released.
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.mapped == Mapped::Device) {
            chunk.store = Some(driver.take(chunk.bytes)?);
        }
        let pieces = self.pieces(|chunk| chunk.mapped == Mapped::Device);
        let (mut next, mut under_way) = (pieces.iter(), VecDeque::new());
        loop {
            for piece in next.by_ref().take(AHEAD - under_way.len()) {
                for chunk in piece.iter().map(|&n| &self.chunks[n]) {
                    let Some(stored) = chunk.store else { continue };
                    self.copies = true;
                    driver.copy(stored.at, chunk.at, chunk.bytes)?;
                }
                under_way.push_back((piece, driver.mark()?));
            }
            let Some((piece, mark)) = under_way.pop_front() else { break };
            driver.reach(mark)?;
            for &n in piece {
                self.chunks[n].hide(driver)?;
            }
            // Memory that the driver does not take back is tried again when all has left.
            let left = |&&n: &&usize| self.chunks[n].release_unused(driver).is_ok();
            let left: Vec<usize> = piece.iter().filter(left).copied().collect();
            room.left(self.bytes_of(&left));
        }
        self.copies = false;
        for chunk in self.chunks.iter_mut().filter(|chunk| to == Place::Away || chunk.mapped != Mapped::Host) {
            chunk.hide(driver)?;
            if to == Place::Host {
                chunk.show_host(driver)?;
            }
        }
        Ok(())
    }

    /// Makes memory on the device for all chunks that have none, maps it and fills it. A piece is copied while memory is made for the next.
    fn come_back<D: Driver<Handle = H>>(
        &mut self,
        driver: &mut D,
        room: &mut impl Pieces<D::Error>,
    ) -> Result<(), D::Error> {
        let all = self.away_bytes();
        for piece in self.pieces(|chunk| !matches!(chunk.mapped, Mapped::Device)) {
            let lacking = piece.iter().copied().filter(|&n| self.chunks[n].device.is_none()).collect::<Vec<_>>();
            if !lacking.is_empty() {
                room.comes(self.bytes_of(&lacking), all)?;
            }
            for n in piece {
                let chunk = &mut self.chunks[n];
                if chunk.device.is_none() {
                    chunk.device = Some(driver.create(chunk.at, chunk.bytes)?);
                }
                if chunk.mapped != Mapped::Empty {
                    chunk.hide(driver)?;
                    chunk.show_device(driver, Mapped::Empty)?;
                }
                let Some(stored) = chunk.store else { continue };
                self.copies = true;
                driver.copy(chunk.at, stored.at, chunk.bytes)?;
            }
        }
        self.finish(driver)?;
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.mapped == Mapped::Empty) {
            chunk.mapped = Mapped::Device;
        }
        Ok(())
    }

    /// Makes memory on the device for a chunk that is in the store, and fills it.
    fn refill<D: Driver<Handle = H>>(&mut self, driver: &mut D, n: usize) -> Result<(), D::Error> {
        let chunk = &mut self.chunks[n];
        let Some(stored) = chunk.store else { return Ok(()) };
        chunk.device = Some(driver.create(chunk.at, chunk.bytes)?);
        chunk.hide(driver)?;
        chunk.show_device(driver, Mapped::Empty)?;
        self.copies = true;
        driver.copy(chunk.at, stored.at, chunk.bytes)?;
        self.finish(driver)?;
        self.chunks[n].mapped = Mapped::Device;
        Ok(())
    }

    fn finish<D: Driver<Handle = H>>(&mut self, driver: &mut D) -> Result<(), D::Error> {
        if self.copies {
            driver.finish()?;
            self.copies = false;
        }
        Ok(())
    }

    /// Gives the store back what chunks on the device have there.
    fn empty_store<D: Driver<Handle = H>>(&mut self, driver: &mut D) {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.mapped == Mapped::Device) {
            if let Some(stored) = chunk.store.take() {
                driver.give(stored, chunk.bytes);
            }
        }
    }

    /// Brings every chunk back to what it was before, or to host memory.
    fn undo<D: Driver<Handle = H>>(&mut self, driver: &mut D, before: &[Chunk<H>]) {
        let mut have_ended = (0..TRIES).any(|_| self.finish(driver).is_ok());
        let mut before = before.to_vec();
        for (n, before) in before.iter_mut().enumerate() {
            if have_ended && before.mapped == Mapped::Device && self.chunks[n].device.is_none() {
                // Its memory was released, and others may have it.
                if self.refill(driver, n).is_err() {
                    before.mapped = Mapped::Host;
                    have_ended = (0..TRIES).any(|_| self.finish(driver).is_ok());
                }
            }
        }
        if !have_ended {
            // A context whose copies do not end has failed for good. Nothing that a copy may touch is unmapped or used again.
            for (chunk, before) in self.chunks.iter_mut().zip(&before) {
                if before.mapped == Mapped::Device && chunk.mapped == Mapped::Device {
                    self.unusable.extend(chunk.store.take());
                }
            }
            return;
        }
        for _ in 0..TRIES {
            self.chunks.iter_mut().zip(&before).for_each(|(chunk, before)| chunk.return_to(driver, before));
        }
        self.empty_store(driver);
    }
}
