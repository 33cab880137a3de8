//! Borders that a panic does not cross: it costs the message or the part of a task that it happened in, and decisions go on.
//!
//! Decisions themselves are not guarded. After a fault in the middle of one, gates might stay closed for ever: the daemon ends instead, every
//! gate opens, and the service manager starts the next one.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::Error;
use crate::tuning::FAULTS_WAITING_MAX;

// A build without unwinding would end at each fault.
const _: () = assert!(cfg!(panic = "unwind"));

thread_local! {
    /// Number of guards that this thread is inside.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
    /// Place of the last panic.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    /// Faults that were noted.
    static NOTED: RefCell<Vec<Fault>> = const { RefCell::new(Vec::new()) };
}

/// Panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl Fault {
    /// Keeps the fault for the report of this thread, see [`noted`].
    pub(crate) fn note(self) {
        NOTED.with_borrow_mut(|noted| {
            if noted.len() < FAULTS_WAITING_MAX {
                noted.push(self);
            }
        });
    }

    /// Keeps a copy of the fault for the report of this thread.
    pub(crate) fn noted(self) -> Fault {
        self.clone().note();
        self
    }

    /// The fault in one line.
    pub(crate) fn line(&self) -> &str {
        &self.0
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Environment(fault.0)
    }
}

/// Faults that were noted on this thread since the last call.
pub(crate) fn noted() -> Vec<Fault> {
    NOTED.take()
}

/// Does a piece of work.
///
/// # Errors
/// Returns the fault if the work panics. All that the work has left half done has to be dropped, or to do no harm.
pub(crate) fn guarded<T>(what: impl Display, work: impl FnOnce() -> T) -> Result<T, Fault> {
    keep_places();
    INSIDE.set(INSIDE.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        plant::grow(&what.to_string());
        work()
    }));
    INSIDE.set(INSIDE.get() - 1);
    done.map_err(|panic| Fault(format!("{what}: a fault of the daemon ({}: {})", PLACE.take(), said(&*panic))))
}

/// Has the place of a panic behind a guard kept instead of printed: the fault is reported once, by a line in the log.
fn keep_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if INSIDE.get() == 0 {
                return before(panic);
            }
            let place = panic.location().map_or_else(String::new, ToString::to_string);
            PLACE.with_borrow_mut(|kept| *kept = place);
        }));
    });
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Panics that a test plants.
#[cfg(test)]
pub(crate) mod plant {
    use std::sync::{Mutex, PoisonError};

    static PLANTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Has the next guarded work of this name panic, on whichever thread. The name is one that no other test has.
    pub(crate) fn plant(what: &str) {
        PLANTED.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_owned());
    }

    /// Reports whether all planted panics of this name have happened.
    pub(crate) fn has_grown(what: &str) -> bool {
        !PLANTED.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|planted| planted == what)
    }

    pub(super) fn grow(what: &str) {
        let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = planted.iter().position(|planted| planted == what);
        if let Some(at) = at {
            planted.remove(at);
            drop(planted);
            panic!("planted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_fault_with_its_place_and_text() {
        assert_eq!(guarded("a sum", || 1 + 1), Ok(2));
        let fault = guarded("an inner one", || guarded("an index", || [0_u8; 3][std::hint::black_box(3)]).is_err());
        assert_eq!(fault, Ok(true));
        let fault = guarded("a message", || -> u8 { panic!("number {}", 7) }).unwrap_err();
        let line = fault.line().to_owned();
        assert!(line.starts_with("a message: a fault of the daemon (") && line.ends_with(": number 7)"), "{line}");
        assert!(line.contains("guard.rs:"), "{line}");
        fault.note();
        assert_eq!(noted().iter().map(Fault::line).collect::<Vec<_>>(), [line]);
        assert_eq!(noted(), []);
    }
}
