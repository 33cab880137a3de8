//! The compute queues of this process: the state that its runtime requested for each, and the state that the kernel was
//! given.
//!
//! One request to the kernel sets a queue's percentage and its priority together, and the runtime makes such requests
//! itself (for priorities, while it reclaims scratch memory, after exceptions). So the runtime's requested state is
//! kept apart from the kernel's, and each request combines both wishes: a queue that either side suspended is
//! suspended, and its priority is the runtime's, limited by the program's class.

use std::ffi::c_int;

use xsched_proto::class::Class;

use super::uapi::{CreateQueue, PERCENT, TYPE_COMPUTE, TYPE_COMPUTE_AQL, UpdateQueue};

/// Function that passes a request to the kernel; returns an `errno` if the kernel refuses.
pub(super) type Kernel<'a> = &'a mut dyn FnMut(UpdateQueue) -> Result<(), c_int>;

/// One compute queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// State that the runtime requested.
    asked: UpdateQueue,
    gpu: u32,
    /// Percentage and priority last given to the kernel; `None` after a failed request, which may have taken effect in
    /// part.
    given: Option<(u32, u32)>,
    /// Set if work of the queue can be interrupted and resumed: the queue has memory for its state.
    saves: bool,
}

/// All compute queues of this process.
#[derive(Default)]
pub(super) struct Queues {
    all: Vec<Queue>,
    /// Devices (the kernel's `gpu_id`) on which this process is suspended.
    held: Vec<u32>,
    class: Option<Class>,
}

/// Reports whether a queue of this type runs kernels. Queues of copy engines are not suspended: copies are short, and
/// threads that wait for a half-finished copy on the host would never reach the gate.
pub(super) fn is_compute(queue_type: u32) -> bool {
    matches!(queue_type, TYPE_COMPUTE | TYPE_COMPUTE_AQL)
}

/// Hardware priority of a queue whose runtime requests `asked`, in a program of this class.
///
/// The kernel accepts 0 to 15 and maps 0–6, 7–10 and 11–15 to three levels of the hardware; AMD's runtime requests 0, 7
/// or 11 (low, normal, high). 15 is reserved for other purposes. A class is such a level, within which the queues of a
/// program keep their order as far as there is room.
pub(super) fn priority_of(class: Option<Class>, asked: u32) -> u32 {
    let own = match asked {
        0..7 => 0,
        7..11 => 1,
        _ => 2,
    };
    match class {
        None => asked,
        Some(Class::Low) => [0, 0, 3][own],
        Some(Class::Normal) => [0, 7, 9][own],
        Some(Class::High | Class::Realtime | Class::System) => [9, 11, 11][own],
    }
}

impl Queues {
    /// Priority for a queue that is about to be created.
    pub(super) fn priority_for(&self, asked: u32) -> u32 {
        priority_of(self.class, asked)
    }

    /// Adds a queue: `made` is the runtime's request, `priority` the one it was created with.
    pub(super) fn add(&mut self, made: &CreateQueue, priority: u32) {
        let asked = UpdateQueue {
            ring_base_address: made.ring_base_address,
            queue_id: made.queue_id,
            ring_size: made.ring_size,
            queue_percentage: made.queue_percentage,
            queue_priority: made.queue_priority,
        };
        // The kernel reuses a number only after its former queue is gone.
        self.remove(made.queue_id);
        self.all.push(Queue {
            asked,
            gpu: made.gpu_id,
            given: Some((made.queue_percentage, priority)),
            saves: made.ctx_save_restore_address != 0 && made.ctx_save_restore_size != 0,
        });
    }

    /// Removes a queue that was destroyed.
    pub(super) fn remove(&mut self, id: u32) {
        self.all.retain(|q| q.asked.queue_id != id);
    }

    /// Combines a request of the runtime with the scheduler's wishes, before it goes to the kernel; `None` if the queue
    /// is not one of these.
    pub(super) fn merge(&self, asked: UpdateQueue) -> Option<UpdateQueue> {
        let queue = self.all.iter().find(|q| q.asked.queue_id == asked.queue_id)?;
        Some(self.wanted(&Queue { asked, ..*queue }))
    }

    /// Records the outcome of a runtime's request. A refused one may have taken effect in part.
    pub(super) fn merged(&mut self, asked: UpdateQueue, sent: UpdateQueue, accepted: bool) {
        let Some(queue) = self.all.iter_mut().find(|q| q.asked.queue_id == asked.queue_id) else { return };
        queue.given = accepted.then_some((sent.queue_percentage, sent.queue_priority));
        if accepted {
            queue.asked = asked;
        }
    }

    fn wanted(&self, queue: &Queue) -> UpdateQueue {
        let held = self.held.contains(&queue.gpu);
        let asked = queue.asked;
        UpdateQueue {
            queue_percentage: if held { asked.queue_percentage & !PERCENT } else { asked.queue_percentage },
            queue_priority: priority_of(self.class, asked.queue_priority),
            ..asked
        }
    }

    /// Passes a queue's wanted state to the kernel, unless the kernel has it already.
    fn settle(&mut self, at: usize, kernel: Kernel<'_>) -> Result<(), c_int> {
        let queue = self.all[at];
        let wanted = self.wanted(&queue);
        let new = Some((wanted.queue_percentage, wanted.queue_priority));
        if queue.given == new {
            return Ok(());
        }
        let outcome = kernel(wanted);
        self.all[at].given = if outcome.is_ok() { new } else { None };
        outcome
    }

    /// Passes the wanted state of all queues that `which` selects by device. Goes on after a refusal, and returns the
    /// first.
    fn settle_all(&mut self, which: impl Fn(u32) -> bool, kernel: Kernel<'_>) -> Result<(), c_int> {
        let mut result = Ok(());
        for at in 0..self.all.len() {
            if which(self.all[at].gpu) {
                let outcome = self.settle(at, kernel);
                result = result.and(outcome);
            }
        }
        result
    }

    /// Suspends all queues on these devices or none: after a refusal, the queues already suspended are resumed.
    pub(super) fn suspend(&mut self, gpus: &[u32], kernel: Kernel<'_>) -> Result<(), c_int> {
        let new: Vec<u32> = gpus.iter().copied().filter(|gpu| !self.held.contains(gpu)).collect();
        self.held.extend(&new);
        for at in 0..self.all.len() {
            if !gpus.contains(&self.all[at].gpu) {
                continue;
            }
            if let Err(error) = self.settle(at, kernel) {
                // The failed request may have taken effect too, so its queue is resumed as well.
                let _ = self.resume(gpus, kernel);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Resumes all queues on these devices, and retries once those that the kernel refuses: the level is given up after
    /// a refusal, so there may be no later request. Returns the first refusal even if the retry succeeds.
    pub(super) fn resume(&mut self, gpus: &[u32], kernel: Kernel<'_>) -> Result<(), c_int> {
        self.held.retain(|gpu| !gpus.contains(gpu));
        let outcome = self.settle_all(|gpu| gpus.contains(&gpu), kernel);
        if outcome.is_err() {
            let _ = self.settle_all(|gpu| gpus.contains(&gpu), kernel);
        }
        outcome
    }

    /// Resumes all queues, and retries once those that the kernel refuses.
    pub(super) fn resume_all(&mut self, kernel: Kernel<'_>) -> Result<(), c_int> {
        self.held.clear();
        self.settle_all(|_| true, kernel).or_else(|_| self.settle_all(|_| true, kernel))
    }

    /// Passes the wanted state of a new queue, on a device whose queues may be suspended just now.
    pub(super) fn catch_up(&mut self, id: u32, kernel: Kernel<'_>) -> Result<(), c_int> {
        let Some(at) = self.all.iter().position(|q| q.asked.queue_id == id) else { return Ok(()) };
        self.settle(at, kernel)
    }

    /// Changes the program's class, or removes it.
    pub(super) fn set_class(&mut self, class: Option<Class>, kernel: Kernel<'_>) -> Result<(), c_int> {
        self.class = class;
        self.settle_all(|_| true, kernel)
    }

    /// Class that priorities follow.
    pub(super) fn class(&self) -> Option<Class> {
        self.class
    }

    /// Reports whether a queue on one of these devices has no memory for the state of its work.
    pub(super) fn some_cannot_save(&self, gpus: &[u32]) -> bool {
        self.all.iter().any(|q| gpus.contains(&q.gpu) && !q.saves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(id: u32, gpu: u32) -> CreateQueue {
        CreateQueue {
            ring_base_address: 0x1000 * u64::from(id + 1),
            ring_size: 4096,
            gpu_id: gpu,
            queue_type: TYPE_COMPUTE_AQL,
            queue_percentage: 100,
            queue_priority: 7,
            queue_id: id,
            ctx_save_restore_address: 0x7000,
            ctx_save_restore_size: 64,
            ..CreateQueue::default()
        }
    }

    /// Requests recorded in place of a kernel: queue, percentage, priority; and the numbers of requests to refuse.
    struct Told(Vec<(u32, u32, u32)>, Vec<usize>);

    impl Told {
        fn record(&mut self, request: UpdateQueue) -> Result<(), c_int> {
            assert_eq!(request.ring_base_address, 0x1000 * u64::from(request.queue_id + 1), "as at creation");
            assert_eq!(request.ring_size, 4096, "as at creation");
            self.0.push((request.queue_id, request.queue_percentage, request.queue_priority));
            if self.1.contains(&(self.0.len() - 1)) { Err(libc::ETIME) } else { Ok(()) }
        }

        fn said(&mut self) -> Vec<(u32, u32, u32)> {
            std::mem::take(&mut self.0)
        }
    }

    /// Queues 0 and 1 on device 10, 2 on device 11.
    fn three() -> (Queues, Told) {
        let mut queues = Queues::default();
        for (id, gpu) in [(0, 10), (1, 10), (2, 11)] {
            queues.add(&made(id, gpu), 7);
        }
        (queues, Told(Vec::new(), Vec::new()))
    }

    fn update(id: u32, percentage: u32, priority: u32) -> UpdateQueue {
        UpdateQueue {
            ring_base_address: 0x1000 * u64::from(id + 1),
            queue_id: id,
            ring_size: 4096,
            queue_percentage: percentage,
            queue_priority: priority,
        }
    }

    /// Makes a request of the runtime, as the interposed call does.
    fn ask(queues: &mut Queues, told: &mut Told, asked: UpdateQueue) {
        let sent = queues.merge(asked).unwrap();
        let accepted = told.record(sent).is_ok();
        queues.merged(asked, sent, accepted);
    }

    #[test]
    fn all_queues_of_a_device_are_suspended_once_and_go_on_once() {
        let (mut queues, mut told) = three();
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 0, 7), (1, 0, 7)]);
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 100, 7), (1, 100, 7)]);
    }

    #[test]
    fn a_priority_set_meanwhile_does_not_resume() {
        let (mut queues, mut told) = three();
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        ask(&mut queues, &mut told, update(0, 100, 11));
        assert_eq!(told.said(), [(0, 0, 7), (1, 0, 7), (0, 0, 11)]);
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 100, 11), (1, 100, 7)]);
    }

    #[test]
    fn what_the_runtime_suspended_itself_stays_so() {
        let (mut queues, mut told) = three();
        ask(&mut queues, &mut told, update(0, 0, 7));
        assert_eq!(told.said(), [(0, 0, 7)]);
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(1, 0, 7)], "it is suspended already");
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(1, 100, 7)], "it is not ours to resume");
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        ask(&mut queues, &mut told, update(0, 100, 7));
        assert_eq!(told.said(), [(1, 0, 7), (0, 0, 7)], "its runtime resumes it while we hold it");
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 100, 7), (1, 100, 7)]);
    }

    #[test]
    fn the_part_of_the_device_that_a_percentage_names_stays() {
        let (mut queues, mut told) = three();
        ask(&mut queues, &mut told, update(0, 0x0364, 7));
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 0x364, 7), (0, 0x300, 7), (1, 0, 7), (0, 0x364, 7), (1, 100, 7)]);
    }

    #[test]
    fn a_suspension_that_fails_leaves_nothing_suspended() {
        let (mut queues, mut told) = three();
        told.1 = vec![1];
        assert_eq!(queues.suspend(&[10], &mut |r| told.record(r)), Err(libc::ETIME));
        // The second request failed, perhaps after it took effect, so both queues are resumed.
        assert_eq!(told.said(), [(0, 0, 7), (1, 0, 7), (0, 100, 7), (1, 100, 7)]);
        told.1 = vec![];
        queues.resume_all(&mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [], "nothing is left to say");
    }

    #[test]
    fn a_queue_that_could_not_be_resumed_is_tried_again() {
        let (mut queues, mut told) = three();
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        told.said();
        told.1 = vec![0];
        assert_eq!(queues.resume(&[10], &mut |r| told.record(r)), Err(libc::ETIME));
        assert_eq!(told.said(), [(0, 100, 7), (1, 100, 7), (0, 100, 7)], "the other one goes on, and this one then");
        queues.resume_all(&mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [], "nothing is left to say");
        // Failed twice, so the queue is resumed with the next request.
        told.1 = vec![];
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        told.said();
        told.1 = vec![0, 2];
        assert_eq!(queues.resume(&[10], &mut |r| told.record(r)), Err(libc::ETIME));
        told.said();
        assert_eq!(queues.resume_all(&mut |r| told.record(r)), Ok(()), "tried once more here too");
        assert_eq!(told.said(), [(0, 100, 7), (0, 100, 7)]);
    }

    #[test]
    fn what_a_refused_suspension_left_suspended_is_told_twice_to_go_on() {
        let (mut queues, mut told) = three();
        told.1 = vec![1, 2];
        assert_eq!(queues.suspend(&[10], &mut |r| told.record(r)), Err(libc::ETIME));
        assert_eq!(told.said(), [(0, 0, 7), (1, 0, 7), (0, 100, 7), (1, 100, 7), (0, 100, 7)]);
    }

    #[test]
    fn a_refused_request_of_the_runtime_changes_nothing() {
        let (mut queues, mut told) = three();
        told.1 = vec![0];
        ask(&mut queues, &mut told, update(0, 0, 16));
        told.1 = vec![];
        told.said();
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 0, 7), (1, 0, 7), (0, 100, 7), (1, 100, 7)]);
        told.1 = vec![0];
        ask(&mut queues, &mut told, update(0, 0, 7));
        told.1 = vec![];
        told.said();
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 100, 7)], "it may have been followed all the same");
    }

    #[test]
    fn a_queue_made_while_the_others_are_suspended_is_suspended_too_and_a_destroyed_one_is_forgotten() {
        let (mut queues, mut told) = three();
        queues.suspend(&[11], &mut |r| told.record(r)).unwrap();
        queues.add(&made(3, 11), 7);
        queues.catch_up(3, &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(2, 0, 7), (3, 0, 7)]);
        queues.remove(2);
        queues.resume(&[11], &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(3, 100, 7)]);
        // The kernel has reused the number 3 for a new queue, on another device.
        queues.suspend(&[11], &mut |r| told.record(r)).unwrap();
        queues.remove(3);
        queues.add(&made(3, 10), 7);
        queues.catch_up(3, &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(3, 0, 7)], "on the other device nothing is suspended");
    }

    #[test]
    fn priorities_follow_the_class_and_come_back() {
        let (mut queues, mut told) = three();
        ask(&mut queues, &mut told, update(1, 100, 11));
        told.said();
        queues.set_class(Some(Class::Low), &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 100, 0), (1, 100, 3), (2, 100, 0)]);
        queues.suspend(&[10], &mut |r| told.record(r)).unwrap();
        queues.set_class(Some(Class::High), &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 0, 0), (1, 0, 3), (0, 0, 11), (1, 0, 11), (2, 100, 11)], "suspended it stays");
        queues.resume(&[10], &mut |r| told.record(r)).unwrap();
        queues.set_class(None, &mut |r| told.record(r)).unwrap();
        assert_eq!(told.said(), [(0, 100, 11), (1, 100, 11), (0, 100, 7), (2, 100, 7)], "as the runtime asked");
        assert_eq!(queues.priority_for(7), 7);
    }

    #[test]
    fn no_class_rises_above_the_next_and_the_reserved_priority_is_never_given() {
        for asked in 0..16 {
            let by_class: Vec<u32> = Class::ALL.iter().map(|c| priority_of(Some(*c), asked)).collect();
            assert!(by_class.is_sorted(), "{asked}: {by_class:?}");
            assert!(by_class.iter().all(|p| *p < 15), "{asked}: {by_class:?}");
            assert_eq!(priority_of(None, asked), asked);
        }
        for class in Class::ALL {
            let by_request: Vec<u32> = (0..16).map(|asked| priority_of(Some(class), asked)).collect();
            assert!(by_request.is_sorted(), "{class}: {by_request:?}");
        }
    }

    #[test]
    fn queues_without_room_for_their_state_are_known() {
        let (mut queues, _) = three();
        assert!(!queues.some_cannot_save(&[10, 11]));
        queues.add(&CreateQueue { ctx_save_restore_size: 0, ..made(4, 11) }, 7);
        assert!(queues.some_cannot_save(&[11]) && !queues.some_cannot_save(&[10]));
    }
}
