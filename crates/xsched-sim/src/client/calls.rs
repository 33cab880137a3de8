//! Host functions in streams.

use super::context::{Context, Mark, Slot};
use super::error::Result;
use super::thread::spawn;
use super::wait::{lock, sleep_on};
use crate::command::Action;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Acquire;

/// Function that runs when a stream reaches it.
pub type Function = Box<dyn FnOnce() + Send>;

struct Call {
    count: u64,
    function: Function,
}

#[derive(Default)]
struct Pending {
    by_stream: BTreeMap<u32, VecDeque<Call>>,
    thread: bool,
}

/// Host functions of a context that were submitted but have not run.
#[derive(Default)]
pub(super) struct Calls(Mutex<Pending>);

impl Calls {
    /// Makes sure that there is a thread to run the functions.
    fn start(&self, context: &'static Context) -> Result<()> {
        let mut pending = lock(&self.0);
        if !pending.thread {
            spawn("simdev-calls", || context.calls.run(context))?;
            pending.thread = true;
        }
        Ok(())
    }

    /// Stores a function before its command enters the ring.
    fn add(&self, mark: Mark, function: Function) {
        let call = Call { count: mark.count, function };
        lock(&self.0).by_stream.entry(mark.slot).or_default().push_back(call);
    }

    fn due(&self, context: &Context) -> Option<(u32, Call)> {
        let mut pending = lock(&self.0);
        for (&slot, calls) in &mut pending.by_stream {
            let called = context.shared().streams[slot as usize].called.load(Acquire);
            if calls.front().is_some_and(|call| call.count <= called) {
                return calls.pop_front().map(|call| (slot, call));
            }
        }
        None
    }

    fn run(&self, context: &Context) {
        let word = &context.shared().device.calls;
        while !context.is_lost() {
            let seen = word.load(Acquire);
            match self.due(context) {
                None => sleep_on(word, seen),
                Some((slot, call)) => {
                    (call.function)();
                    let _ = context.returned(slot);
                }
            }
        }
    }
}

impl Context {
    /// Runs a function when a stream reaches it, on a thread of the context. The stream waits for it.
    pub fn call(&'static self, slot: Slot, function: Function) -> Result<Mark> {
        self.calls.start(self)?;
        let function = Mutex::new(Some(function));
        self.submit(slot, |_, mark| {
            if let Some(function) = lock(&function).take() {
                self.calls.add(mark, function);
            }
            Ok(Some(Action::Call))
        })
    }
}
