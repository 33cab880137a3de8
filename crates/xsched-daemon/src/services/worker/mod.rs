//! Worker: a thread that does tasks for the loop, one at a time, with a queue before it and a list of outcomes behind it.
//!
//! The thread starts with the first task. One that a task keeps for longer than [`LOST_NS`] is given up and replaced by
//! [`Worker::tend`], as often as its [`Spec`] allows at the same time. A thread that was given up and comes back leaves its outcome,
//! late, and ends. All threads of a worker share one queue; only one of them takes tasks from it.

pub(crate) mod epochs;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::guard::{Fault, guarded, noted};
use crate::server::clock::now_ns;
use crate::services::fair::FairQueue;
use crate::tuning::{FAULTS_WAITING_MAX, LOST_NS, NUDGE_NS};

/// Signal that ends a system call of a thread. It is ignored by default, so that a late one does no harm.
const NUDGE: libc::c_int = libc::SIGURG;

/// Properties of a worker.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    /// Name of the thread, at most 15 bytes.
    pub(crate) name: &'static str,
    /// Largest number of tasks that wait; a further one is refused.
    pub(crate) queued_max: usize,
    /// Largest number of threads given up at the same time; 0 = none ever is.
    pub(crate) lost_max: usize,
    /// True to send a signal to a thread that a task keeps for [`NUDGE_NS`], and again each time.
    pub(crate) nudges: bool,
    /// Nice value of the thread; 0 = that of the loop.
    pub(crate) nice: i32,
    pub(crate) stack_bytes: Option<usize>,
    pub(crate) end: End,
}

/// End of a worker.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// The thread ends after its present task.
    Now,
    /// The thread ends once its queue is empty. The loop waits for that for at most this time.
    Drained(Duration),
}

impl Spec {
    /// Properties of a worker that is never replaced, refuses nothing and ends at once.
    pub(crate) const fn named(name: &'static str) -> Spec {
        Spec { name, queued_max: usize::MAX, lost_max: 0, nudges: false, nice: 0, stack_bytes: None, end: End::Now }
    }
}

/// Work of the thread. Made on the thread itself, anew for each one.
pub(crate) trait Service<T, O> {
    /// Does a task, and adds its outcomes, if it has any yet.
    fn perform(&mut self, task: T, outcomes: &mut Vec<O>);

    /// Waits until `more` is readable: there is a task, or the worker has to end. May do work of its own meanwhile, in pieces: added
    /// outcomes are seen after the return, and it is called again.
    fn wait(&mut self, more: BorrowedFd<'_>, outcomes: &mut Vec<O>) -> Next {
        let _ = outcomes;
        readable(more, None);
        Next::GoOn
    }
}

/// Continuation of a thread after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// The thread ends unless there is a task. The next task starts another thread.
    Retire,
}

impl<T, O, F: FnMut(T) -> Option<O>> Service<T, O> for F {
    fn perform(&mut self, task: T, outcomes: &mut Vec<O>) {
        outcomes.extend(self(task));
    }
}

/// Function that makes the work of a thread.
type Make<T, O> = Box<dyn Fn() -> Box<dyn Service<T, O>> + Send + Sync>;

/// Waiting tasks, in an order.
pub(crate) trait Queue<T>: Send {
    fn put(&mut self, task: T);

    /// Takes the next task, among those whose user may be risked: see [`Worker::may_risk`].
    fn next_task(&mut self, may_risk: &dyn Fn(u32) -> bool) -> Option<T>;

    fn waiting(&self) -> usize;

    /// User whose fault it is if this task blocks its thread.
    fn user(&self, task: &T) -> Option<u32> {
        let _ = task;
        None
    }
}

/// Queue in the order of arrival.
impl<T: Send> Queue<T> for VecDeque<T> {
    fn put(&mut self, task: T) {
        self.push_back(task);
    }

    fn next_task(&mut self, _: &dyn Fn(u32) -> bool) -> Option<T> {
        self.pop_front()
    }

    fn waiting(&self) -> usize {
        self.len()
    }
}

/// Queue of the newest task only: a new task replaces the waiting one.
impl<T: Send> Queue<T> for Option<T> {
    fn put(&mut self, task: T) {
        *self = Some(task);
    }

    fn next_task(&mut self, _: &dyn Fn(u32) -> bool) -> Option<T> {
        self.take()
    }

    fn waiting(&self) -> usize {
        usize::from(self.is_some())
    }
}

/// Queue with one task of each user in turn.
pub(crate) struct ByUser<T> {
    user: fn(&T) -> u32,
    turns: FairQueue<u32, u64>,
    tasks: HashMap<u64, T>,
    last: u64,
}

impl<T> ByUser<T> {
    pub(crate) fn new(user: fn(&T) -> u32) -> ByUser<T> {
        ByUser { user, turns: FairQueue::new(), tasks: HashMap::new(), last: 0 }
    }
}

impl<T: Send> Queue<T> for ByUser<T> {
    fn put(&mut self, task: T) {
        self.last += 1;
        self.turns.push((self.user)(&task), self.last);
        self.tasks.insert(self.last, task);
    }

    fn next_task(&mut self, _: &dyn Fn(u32) -> bool) -> Option<T> {
        let number = self.turns.pop()?;
        self.tasks.remove(&number)
    }

    fn waiting(&self) -> usize {
        self.tasks.len()
    }

    fn user(&self, task: &T) -> Option<u32> {
        Some((self.user)(task))
    }
}

/// Worker, as the loop uses it.
pub(crate) struct Worker<T, O> {
    pub(super) shared: Arc<Shared<T, O>>,
}

pub(super) struct Shared<T, O> {
    spec: Spec,
    make: Make<T, O>,
    state: Mutex<State<T, O>>,
    /// Notified when a thread has left.
    left: Condvar,
    /// Readable once a waiting thread has something to do.
    more: OwnedFd,
    /// Eventfd that counts outcomes.
    done: OwnedFd,
}

pub(super) struct State<T, O> {
    pub(super) queue: Box<dyn Queue<T>>,
    pub(super) outcomes: VecDeque<O>,
    /// Faults of tasks since the loop last took them.
    faults: Vec<Fault>,
    pub(super) threads: Vec<Thread>,
    last_id: u64,
    /// True while a thread waits for `more`, or is about to.
    waits: bool,
    ended: bool,
    /// True while the loop takes no outcome.
    #[cfg(test)]
    held: bool,
}

pub(super) struct Thread {
    id: u64,
    handle: JoinHandle<()>,
    /// Time at which its task began, in ns, and the user of the task.
    busy: Option<(u64, Option<u32>)>,
    /// True once it is given up.
    lost: bool,
}

impl<T: Send + 'static, O: Send + 'static> Worker<T, O> {
    /// Makes a worker without a thread yet.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(crate) fn new(
        spec: Spec,
        queue: impl Queue<T> + 'static,
        make: impl Fn() -> Box<dyn Service<T, O>> + Send + Sync + 'static,
    ) -> rustix::io::Result<Worker<T, O>> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (outcomes, threads) = (VecDeque::new(), Vec::new());
        let state = State {
            queue: Box::new(queue),
            outcomes,
            faults: Vec::new(),
            threads,
            last_id: 0,
            waits: false,
            ended: false,
            #[cfg(test)]
            held: false,
        };
        let (more, done) = (event()?, event()?);
        let shared = Shared { spec, make: Box::new(make), state: Mutex::new(state), left: Condvar::new(), more, done };
        Ok(Worker { shared: Arc::new(shared) })
    }

    /// Starts the thread now instead of with the first task.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        self.shared.hire(&mut self.shared.lock())
    }

    /// Has a task done. Without a thread the task waits for the next attempt to start one.
    ///
    /// # Errors
    /// Returns the task if the queue is full.
    pub(crate) fn push(&self, task: T) -> Result<(), T> {
        let mut state = self.shared.lock();
        if state.queue.waiting() >= self.shared.spec.queued_max {
            return Err(task);
        }
        self.push_to(&mut state, task);
        Ok(())
    }

    /// Has a task done, even if the queue is full.
    pub(crate) fn push_beyond(&self, task: T) {
        self.push_to(&mut self.shared.lock(), task);
    }

    fn push_to(&self, state: &mut State<T, O>, task: T) {
        state.queue.put(task);
        let _ = self.shared.hire(state);
        self.shared.wake(state);
    }

    /// Takes the next outcome.
    pub(crate) fn take(&self) -> Option<O> {
        // Each outcome is counted after it is in the list.
        let _ = rustix::io::read(&self.shared.done, &mut [0u8; 8]);
        let mut state = self.shared.lock();
        #[cfg(test)]
        if state.held {
            return None;
        }
        state.outcomes.pop_front()
    }

    /// Takes the faults of tasks. After each the descriptor is readable, as after an outcome.
    pub(crate) fn take_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.shared.lock().faults)
    }

    /// Reports whether there is a thread that was not given up.
    pub(crate) fn has_thread(&self) -> bool {
        self.shared.lock().threads.iter().any(|thread| !thread.lost)
    }

    /// Number of tasks that wait.
    pub(crate) fn queued(&self) -> usize {
        self.shared.lock().queue.waiting()
    }

    /// Reports whether some task is not done yet.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        state.queue.waiting() > 0 || state.threads.iter().any(|thread| thread.busy.is_some())
    }

    /// Reports whether a thread may be risked for a task of a user: no thread is lost by a task of this user, and one more may be lost.
    pub(crate) fn may_risk(&self, user: u32) -> bool {
        may_risk(&self.shared.lock().threads, self.shared.spec.lost_max, user)
    }

    /// Nudges a thread that is stuck, or gives it up and replaces it. Returns the time of the next call, in ns.
    pub(crate) fn tend(&self, now_ns: u64) -> Option<u64> {
        let spec = &self.shared.spec;
        let mut state = self.shared.lock();
        let mut room = spec.lost_max.saturating_sub(state.threads.iter().filter(|thread| thread.lost).count());
        let mut next_ns: Option<u64> = None;
        for thread in &mut state.threads {
            let Some((since_ns, _)) = thread.busy else { continue };
            if spec.nudges && now_ns.saturating_sub(since_ns) >= NUDGE_NS {
                // SAFETY: the thread is neither joined nor detached: it takes itself off the list first, under the lock held here.
                unsafe { libc::pthread_kill(thread.handle.as_pthread_t(), NUDGE) };
            }
            let overdue_ns = since_ns.saturating_add(LOST_NS);
            if thread.lost || room == 0 {
                continue;
            }
            if now_ns >= overdue_ns {
                thread.lost = true;
                room -= 1;
            } else {
                next_ns = Some(next_ns.map_or(overdue_ns, |next| next.min(overdue_ns)));
            }
        }
        if state.queue.waiting() > 0 {
            let _ = self.shared.hire(&mut state);
        }
        let is_busy = state.queue.waiting() > 0 || state.threads.iter().any(|thread| thread.busy.is_some());
        if spec.nudges { is_busy.then_some(now_ns + NUDGE_NS) } else { next_ns }
    }
}

impl<T, O> Worker<T, O> {
    /// Makes the thread end as its [`Spec`] says, without waiting for it.
    pub(crate) fn end(&self) {
        self.shared.lock().ended = true;
        notify(&self.shared.more);
    }
}

impl<T, O> AsFd for Worker<T, O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }
}

impl<T, O> Drop for Worker<T, O> {
    fn drop(&mut self) {
        self.end();
        if let End::Drained(patience) = self.shared.spec.end {
            let is_there = |state: &mut State<T, O>| state.threads.iter().any(|thread| !thread.lost);
            drop(self.shared.left.wait_timeout_while(self.shared.lock(), patience, is_there));
        }
    }
}

fn may_risk(threads: &[Thread], lost_max: usize, user: u32) -> bool {
    let lost = || threads.iter().filter(|thread| thread.lost);
    lost().count() < lost_max && !lost().any(|thread| thread.busy.is_some_and(|(_, of)| of == Some(user)))
}

impl<T, O> Shared<T, O> {
    /// Locks the state. The lock is held for some instructions only, and never while a task is done.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<T, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: &State<T, O>) {
        if state.waits {
            notify(&self.more);
        }
    }

    /// Moves outcomes to the list that the loop takes them from.
    fn deliver(&self, state: &mut State<T, O>, outcomes: &mut Vec<O>) {
        if !outcomes.is_empty() {
            state.outcomes.extend(outcomes.drain(..));
            notify(&self.done);
        }
    }

    /// Moves the faults of this thread to the list that the loop takes them from.
    fn report(&self, state: &mut State<T, O>) {
        let faults = noted();
        if !faults.is_empty() {
            state.faults.extend(faults);
            state.faults.truncate(FAULTS_WAITING_MAX);
            notify(&self.done);
        }
    }

    /// Takes a thread off the list.
    fn leave(&self, state: &mut State<T, O>, id: u64) {
        state.threads.retain(|thread| thread.id != id);
        self.left.notify_all();
        // One more thread may be lost now: tasks that waited for that can go on.
        self.wake(state);
    }
}

impl<T: Send + 'static, O: Send + 'static> Shared<T, O> {
    /// Makes sure that there is a thread that was not given up.
    fn hire(self: &Arc<Self>, state: &mut State<T, O>) -> std::io::Result<()> {
        if state.threads.iter().any(|thread| !thread.lost) {
            return Ok(());
        }
        if self.spec.nudges {
            catch_nudges();
        }
        let mut builder = std::thread::Builder::new().name(self.spec.name.into());
        if let Some(bytes) = self.spec.stack_bytes {
            builder = builder.stack_size(bytes);
        }
        state.last_id += 1;
        let (id, shared) = (state.last_id, self.clone());
        let handle = builder.spawn(move || shared.work(id))?;
        state.threads.push(Thread { id, handle, busy: None, lost: false });
        Ok(())
    }

    fn work(self: Arc<Self>, id: u64) {
        let _fall = Fall { shared: &self, id };
        if self.spec.nice != 0 {
            // A thread may always become less urgent.
            let _ = rustix::process::nice(self.spec.nice);
        }
        let mut service = (self.make)();
        let mut outcomes = Vec::new();
        let mut next = Next::GoOn;
        let mut state = self.lock();
        loop {
            self.deliver(&mut state, &mut outcomes);
            self.report(&mut state);
            let Some(at) = state.threads.iter().position(|thread| thread.id == id) else { return };
            state.threads[at].busy = None;
            if state.threads[at].lost || state.ended && matches!(self.spec.end, End::Now) {
                return self.leave(&mut state, id);
            }
            let State { queue, threads, .. } = &mut *state;
            if let Some(task) = queue.next_task(&|user| may_risk(threads, self.spec.lost_max, user)) {
                state.threads[at].busy = Some((now_ns(), state.queue.user(&task)));
                drop(state);
                next = Next::GoOn;
                let name = self.spec.name;
                if let Err(fault) = guarded(format_args!("a task of {name}"), || service.perform(task, &mut outcomes)) {
                    fault.note();
                    service = (self.make)();
                }
                state = self.lock();
            } else if state.ended || next == Next::Retire {
                return self.leave(&mut state, id);
            } else {
                state.waits = true;
                drop(state);
                let name = self.spec.name;
                let waited = guarded(format_args!("work of {name}"), || service.wait(self.more.as_fd(), &mut outcomes));
                next = waited.unwrap_or_else(|fault| {
                    fault.note();
                    service = (self.make)();
                    Next::GoOn
                });
                let _ = rustix::io::read(&self.more, &mut [0u8; 8]);
                state = self.lock();
                state.waits = false;
            }
        }
    }
}

/// Guard that takes a thread off the list when a fault in a task ends it: the next task gets another thread.
struct Fall<'a, T: Send + 'static, O: Send + 'static> {
    shared: &'a Arc<Shared<T, O>>,
    id: u64,
}

impl<T: Send + 'static, O: Send + 'static> Drop for Fall<'_, T, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.shared.lock();
            state.waits = false;
            self.shared.leave(&mut state, self.id);
            if state.queue.waiting() > 0 {
                let _ = self.shared.hire(&mut state);
            }
        }
    }
}

fn notify(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Waits until a descriptor is readable, for at most `patience_ns`. A signal ends the wait, too.
pub(crate) fn readable(fd: BorrowedFd<'_>, patience_ns: Option<u64>) -> bool {
    let timeout = patience_ns.map(timespec);
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    // An interrupted wait counts as one without a result.
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Converts a time for the kernel.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Installs a handler for the signal and unblocks it: a signal without a handler does not end a wait, nor does a blocked one. A new thread
/// inherits the caller's mask.
fn catch_nudges() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: both structures are plain data, for which zeros are valid; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(NUDGE, &raw const action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, NUDGE);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
impl<T: Send + 'static, O: Send + 'static> Worker<T, O> {
    /// Keeps outcomes from the loop until [`Worker::release`].
    pub(crate) fn hold(&self) {
        self.shared.lock().held = true;
    }

    /// Number of outcomes that the loop has not taken.
    pub(crate) fn held(&self) -> usize {
        self.shared.lock().outcomes.len()
    }

    /// Changes the outcomes for the loop, and lets it take them: they can be lost, come twice, or in another order.
    pub(crate) fn release(&self, change: impl FnOnce(&mut VecDeque<O>)) {
        let mut state = self.shared.lock();
        state.held = false;
        change(&mut state.outcomes);
        notify(&self.shared.done);
    }

    /// Takes the lost threads off the list again.
    pub(crate) fn forget_lost(&self) {
        self.shared.lock().threads.retain(|thread| !thread.lost);
    }

    /// Adds threads that count as given up while they were at tasks of these users.
    pub(crate) fn pretend_lost(&self, users: impl IntoIterator<Item = u32>) {
        let mut state = self.shared.lock();
        for user in users {
            state.last_id += 1;
            let (id, handle) = (state.last_id, std::thread::spawn(|| ()));
            state.threads.push(Thread { id, handle, busy: Some((0, Some(user))), lost: true });
        }
    }
}

#[cfg(test)]
mod tests;
