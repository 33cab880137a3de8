//! Accounts of device time are opened with a program's first group on a device, and closed once they are recorded.

use std::sync::Arc;

use xsched_policy::ProgramId;

use crate::io::Effect;
use crate::memory::Memory;
use crate::parts::books::Books;
use crate::state::Engine;
use crate::user::User;

impl<M: Memory> Engine<M> {
    /// The books that are open.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// Opens the book of a program that has a group on a device.
    pub(crate) fn open_book(&mut self, program: ProgramId, device: &Arc<str>, user: User) {
        self.books.open(program, device, user);
    }

    /// Closes the book of a program whose last group on a device is gone, if nothing was ever charged to it.
    pub(crate) fn close_blank_book(&mut self, program: ProgramId, device: &Arc<str>) {
        if self.gatekeeper.ledger().is_blank(device, program) {
            self.close_book(program, device);
            self.emit(Effect::BlankBook(program.0, device.clone()));
        }
    }

    /// A book is recorded to the end. One in which something may still be charged stays open, to be recorded again: a program may have come
    /// back to the device meanwhile.
    pub(crate) fn book_closed(&mut self, program: ProgramId, device: &str) {
        let ledger = self.gatekeeper.ledger();
        if ledger.account(device, program).is_none_or(|account| account.closed) {
            self.close_book(program, device);
        }
    }

    /// Closes a book.
    fn close_book(&mut self, program: ProgramId, device: &str) {
        self.gatekeeper.ledger_mut().close(device, program);
        self.books.close(program, device);
    }
}
