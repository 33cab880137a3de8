//! Memory that is allocated and freed in the order of a stream, from segments of this library's that move.
//!
//! A block that was freed on a stream is given out again on that stream at once, and on others once the stream has got so far, which an
//! event tells. Pools that other processes may use, or that have an upper limit, and memory in captured commands are the driver's own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::*};

use super::super::api::Api;
use super::super::types::*;
use super::chunks;
use super::movable::{Movable, movable, pass};
use super::virtuals::INVALID;
use crate::lock::Lock;
use crate::platform::shared::{DefaultStreamMode, Driver as _};

/// Unit of blocks, in bytes.
const GRAIN: u64 = 512;
/// CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE.
const INVALID_CONTEXT: CUresult = 201;
const INVALID_HANDLE: CUresult = 400;
/// CU_EVENT_DISABLE_TIMING.
const UNTIMED: c_uint = 2;
/// CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, RESERVED_MEM_CURRENT, RESERVED_MEM_HIGH, USED_MEM_CURRENT, USED_MEM_HIGH.
const THRESHOLD: c_uint = 4;
const RESERVED: c_uint = 5;
const RESERVED_HIGH: c_uint = 6;
const USED: c_uint = 7;
const USED_HIGH: c_uint = 8;

/// Stream by which memory is ordered; 0 = none, only events say when it is free.
type Key = usize;

/// Free part of a segment.
#[derive(Clone, Copy)]
struct Free {
    bytes: u64,
    key: Key,
    /// Number of the free that must have been reached; 0 = free for all.
    number: u64,
}

/// Part of a segment that the program has.
struct Block {
    bytes: u64,
    asked: u64,
    id: u64,
}

#[derive(Default)]
struct Segment {
    bytes: u64,
    pool: usize,
    free: BTreeMap<u64, Free>,
    used: BTreeMap<u64, Block>,
}

#[derive(Default)]
struct Pool {
    /// The driver serves it.
    is_native: bool,
    is_destroyed: bool,
    threshold: u64,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
}

/// A free that its stream has perhaps not reached.
struct Pending {
    number: u64,
    event: usize,
}

#[derive(Default)]
struct State {
    pools: HashMap<usize, Pool>,
    segments: BTreeMap<u64, Segment>,
    pending: BTreeMap<Key, VecDeque<Pending>>,
    /// Plain memory that was freed in the order of a stream.
    doomed: Vec<(usize, u64)>,
    events: Vec<usize>,
    last: u64,
}

static STATE: Lock<State> = Lock::new();
/// Some memory may have to be released at a synchronisation.
static FREED: AtomicBool = AtomicBool::new(false);

/// A block, as the program sees it.
pub(super) struct Known {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) id: u64,
    pub(super) pool: usize,
}

impl Segment {
    /// Joins the free part at an address with its neighbours, where one order holds for both.
    fn join(&mut self, at: u64) {
        let fits = |one: &Free, other: &Free| {
            (one.number == 0 && other.number == 0)
                || (one.key != 0 && one.key == other.key && one.number != 0 && other.number != 0)
        };
        let Some(&own) = self.free.get(&at) else { return };
        let (mut start, mut whole) = (at, own);
        if let Some((&before, &part)) = self.free.range(..at).next_back()
            && before + part.bytes == at
            && fits(&part, &whole)
        {
            self.free.remove(&at);
            (start, whole.bytes, whole.number) = (before, whole.bytes + part.bytes, whole.number.max(part.number));
        }
        if let Some(&part) = self.free.get(&(start + whole.bytes))
            && fits(&part, &whole)
        {
            self.free.remove(&(start + whole.bytes));
            (whole.bytes, whole.number) = (whole.bytes + part.bytes, whole.number.max(part.number));
        }
        self.free.insert(start, whole);
    }

    /// Notes frees that streams have reached. A stream that has reached one has reached all before it.
    fn reached(&mut self, all: &[(Key, u64)]) {
        let is_reached = |free: &Free| {
            let by = |&(key, number): &(Key, u64)| {
                free.number == number || (key != 0 && free.key == key && free.number < number)
            };
            free.number != 0 && all.iter().any(by)
        };
        let now: Vec<u64> = self.free.iter().filter(|(_, free)| is_reached(free)).map(|(at, _)| *at).collect();
        for &at in &now {
            if let Some(free) = self.free.get_mut(&at) {
                (free.key, free.number) = (0, 0);
            }
        }
        now.into_iter().for_each(|at| self.join(at));
    }

    fn is_unused(&self) -> bool {
        self.used.is_empty() && self.free.values().all(|free| free.number == 0)
    }
}

impl State {
    fn segment_of(&mut self, address: u64) -> Option<(u64, &mut Segment)> {
        let (&at, segment) = self.segments.range_mut(..=address).next_back()?;
        (address - at < segment.bytes).then_some((at, segment))
    }

    /// Takes a block that is free in the order of a stream: of those that fit the smallest.
    fn take(&mut self, pool: usize, asked: u64, key: Key) -> Option<u64> {
        let bytes = asked.checked_next_multiple_of(GRAIN)?;
        let may = |free: &Free| free.bytes >= bytes && (free.number == 0 || (key != 0 && free.key == key));
        let of_pool = self.segments.values_mut().filter(|segment| segment.pool == pool);
        let parts = of_pool.flat_map(|segment| {
            let best = segment.free.iter().filter(|(_, free)| may(free)).min_by_key(|(_, free)| free.bytes);
            best.map(|(at, free)| (free.bytes, *at)).map(|found| (found, segment))
        });
        let ((_, at), segment) = parts.min_by_key(|(found, _)| *found)?;
        let free = segment.free.remove(&at)?;
        if free.bytes > bytes {
            segment.free.insert(at + bytes, Free { bytes: free.bytes - bytes, ..free });
        }
        segment.used.insert(at, Block { bytes, asked, id: chunks::new_id() });
        let pool = self.pools.entry(pool).or_default();
        pool.used += bytes;
        pool.used_high = pool.used_high.max(pool.used);
        Some(at)
    }

    /// Takes a block back, free for all (number 0) or after a free.
    fn put(&mut self, address: u64, key: Key, number: u64) -> bool {
        let Some((_, segment)) = self.segment_of(address) else { return false };
        let Some(block) = segment.used.remove(&address) else { return false };
        segment.free.insert(address, Free { bytes: block.bytes, key, number });
        segment.join(address);
        let pool = segment.pool;
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.used = pool.used.saturating_sub(block.bytes);
        }
        true
    }

    /// Notes which frees the streams have reached. `is_done` asks an event.
    fn reap(&mut self, is_done: impl Fn(usize) -> bool) -> Vec<u64> {
        let mut reached: Vec<(Key, u64)> = Vec::new();
        for (&key, queue) in &mut self.pending {
            while let Some(first) = queue.front().filter(|first| is_done(first.event)) {
                self.events.push(first.event);
                reached.push((key, first.number));
                queue.pop_front();
            }
        }
        if !reached.is_empty() {
            self.pending.retain(|_, queue| !queue.is_empty());
            self.segments.values_mut().for_each(|segment| segment.reached(&reached));
        }
        let (done, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.doomed).into_iter().partition(|(e, _)| is_done(*e));
        self.doomed = left;
        self.events.extend(done.iter().map(|(event, _)| *event));
        done.into_iter().map(|(_, at)| at).collect()
    }

    /// Takes segments out that are not in use, as far as their pool has more than it is to keep.
    fn unused(&mut self, keep: impl Fn(usize, &Pool) -> u64) -> Vec<u64> {
        let mut gone = Vec::new();
        for (&at, segment) in &self.segments {
            let Some(pool) = self.pools.get_mut(&segment.pool) else { continue };
            let keep = if pool.is_destroyed { 0 } else { keep(segment.pool, pool) };
            if pool.reserved > keep && segment.is_unused() {
                pool.reserved -= segment.bytes;
                gone.push(at);
            }
        }
        for at in &gone {
            self.segments.remove(at);
        }
        let State { pools, segments, .. } = self;
        pools.retain(|pool, known| !known.is_destroyed || segments.values().any(|segment| segment.pool == *pool));
        gone
    }
}

/// Key of a stream; 0 for those whose handle means another stream in each thread.
fn key_of(stream: CUstream, mode: DefaultStreamMode) -> Key {
    match (stream as usize, mode) {
        (STREAM_PER_THREAD, _) | (0, DefaultStreamMode::PerThread) => 0,
        (0, _) => STREAM_LEGACY,
        (handle, _) => handle,
    }
}

/// Movable memory, if commands for this stream are run and not recorded.
fn running(real: *mut c_void, stream: CUstream, mode: DefaultStreamMode) -> Option<&'static Movable> {
    let movable = chunks::ready(real)?;
    let api = Api::beside(real)?;
    let runs = !api.some_capture() || api.recording(stream, mode) == Some(false);
    (runs && super::calls::has_one_context()).then_some(movable)
}

fn reap(movable: &Movable) {
    let functions = &movable.calls.functions;
    // SAFETY: an event of this library.
    let done = |event: usize| unsafe { (functions.event_query)(event as CUevent) } == SUCCESS;
    let doomed = STATE.lock().reap(done);
    for at in doomed {
        chunks::drop_region(movable, at);
    }
}

fn release(movable: &Movable, keep: impl Fn(usize, &Pool) -> u64) {
    let gone = STATE.lock().unused(keep);
    for at in gone {
        chunks::drop_region(movable, at);
    }
}

/// Allocates. `None`, here and below: the driver is to handle the call. `real` is one of its functions.
pub(super) fn allocate(
    real: *mut c_void,
    asked: usize,
    pool: Option<usize>,
    stream: CUstream,
    mode: DefaultStreamMode,
) -> Option<u64> {
    if asked == 0 {
        return None;
    }
    let movable = running(real, stream, mode)?;
    let pool = pool.or_else(|| movable.calls.pool_in_use()).filter(|pool| *pool != 0)?;
    if STATE.lock().pools.entry(pool).or_default().is_native {
        return None;
    }
    let (asked, key) = (asked as u64, key_of(stream, mode));
    pass(|| {
        reap(movable);
        for is_last in [false, true] {
            if let Some(at) = STATE.lock().take(pool, asked, key) {
                return Some(at);
            }
            if let Some(at) = chunks::add_region(movable, asked, true) {
                let mut state = STATE.lock();
                let bytes = chunks::region_of(at, |_, region| region.mapped_bytes)?;
                let free = [(at, Free { bytes, key: 0, number: 0 })].into();
                state.segments.insert(at, Segment { bytes, pool, free, used: BTreeMap::new() });
                let known = state.pools.entry(pool).or_default();
                known.reserved += bytes;
                known.reserved_high = known.reserved_high.max(known.reserved);
                return state.take(pool, asked, key);
            }
            if !is_last {
                // Freed blocks come back as soon as their streams have got there.
                wait_for_pending(movable);
                release(movable, |_, _| 0);
            }
        }
        None
    })
}

fn wait_for_pending(movable: &Movable) {
    let events: Vec<usize> = {
        let state = STATE.lock();
        let of_blocks = state.pending.values().flatten().map(|pending| pending.event);
        of_blocks.chain(state.doomed.iter().map(|(event, _)| *event)).collect()
    };
    for event in events {
        // SAFETY: an event of this library, which is destroyed only with its context.
        unsafe { (movable.calls.functions.event_synchronize)(event as CUevent) };
    }
    reap(movable);
}

/// Records a new event on a stream.
fn mark(movable: &Movable, stream: CUstream, mode: DefaultStreamMode) -> Result<usize, CUresult> {
    let functions = &movable.calls.functions;
    let known = STATE.lock().events.pop();
    let make = || {
        let mut event = std::ptr::null_mut();
        // SAFETY: pointer to a local.
        let rc = unsafe { (functions.event_create)(&mut event, UNTIMED) };
        if rc == SUCCESS { Ok(event as usize) } else { Err(rc) }
    };
    let event = known.map_or_else(make, Ok)?;
    let record = match mode {
        DefaultStreamMode::PerThread => functions.event_record_per_thread,
        DefaultStreamMode::Legacy | DefaultStreamMode::Own => functions.event_record,
    };
    // SAFETY: an event of this library, and the caller's own stream.
    let rc = unsafe { record(event as CUevent, stream) };
    if rc == SUCCESS {
        return Ok(event);
    }
    STATE.lock().events.push(event);
    Err(rc)
}

/// Frees in the order of a stream.
pub(super) fn free_async(
    real: *mut c_void,
    address: u64,
    stream: CUstream,
    mode: DefaultStreamMode,
) -> Option<CUresult> {
    let is_plain = chunks::begins_at(address);
    if !is_plain && !begins_at(address) {
        return None;
    }
    let movable = running(real, stream, mode)?;
    pass(|| {
        let event = match mark(movable, stream, mode) {
            Ok(event) => event,
            Err(rc @ (INVALID_CONTEXT | INVALID_HANDLE)) => return Some(rc),
            // Without an event memory is free once the device has executed everything.
            Err(_) if is_plain => return chunks::free(address),
            Err(_) => return free(address),
        };
        let mut state = STATE.lock();
        FREED.store(true, Release);
        if is_plain {
            if state.doomed.iter().any(|(_, at)| *at == address) {
                state.events.push(event);
                return Some(INVALID);
            }
            state.doomed.push((event, address));
            return Some(SUCCESS);
        }
        state.last += 1;
        let (number, key) = (state.last, key_of(stream, mode));
        if !state.put(address, key, number) {
            state.events.push(event);
            return Some(INVALID);
        }
        state.pending.entry(key).or_default().push_back(Pending { number, event });
        Some(SUCCESS)
    })
}

/// Reports whether a block in use begins there.
pub(super) fn begins_at(address: u64) -> bool {
    !STATE.is_untouched()
        && STATE.lock().segment_of(address).is_some_and(|(_, segment)| segment.used.contains_key(&address))
}

/// Frees, once the device has executed all commands.
pub(super) fn free(address: u64) -> Option<CUresult> {
    let movable = movable().filter(|_| begins_at(address))?;
    pass(|| {
        if let Err(refusal) = movable.calls.synchronize_own() {
            return Some(refusal);
        }
        let is_freed = STATE.lock().put(address, 0, 0);
        reap(movable);
        release(movable, |_, pool| pool.threshold);
        is_freed.then_some(SUCCESS)
    })
}

/// Releases what pools need not keep, after a synchronisation.
pub(super) fn synchronized() {
    if !FREED.load(Acquire) {
        return;
    }
    // Not while a capture forbids it to ask for events.
    let Some(movable) = movable().filter(|movable| !movable.is_over()) else { return };
    if Api::known().is_some_and(|api| api.some_capture()) {
        return;
    }
    pass(|| {
        FREED.store(false, Release);
        reap(movable);
        release(movable, |_, pool| pool.threshold);
        let state = STATE.lock();
        if !state.pending.is_empty() || !state.doomed.is_empty() {
            FREED.store(true, Release);
        }
    });
}

/// A stream ends: its handle may soon mean another one.
pub(super) fn stream_ends(stream: CUstream) {
    if STATE.is_untouched() {
        return;
    }
    let key = stream as usize;
    let mut state = STATE.lock();
    for free in state.segments.values_mut().flat_map(|segment| segment.free.values_mut()) {
        if free.key == key {
            free.key = 0;
        }
    }
}

/// CUmemPoolProps of cuda.h.
#[repr(C)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: super::calls::Location,
    windows: usize,
    most: usize,
}

/// Notes a pool that was made; null properties: it is another process's.
pub(super) fn made(pool: usize, properties: *const c_void) {
    // SAFETY: null, or the caller's own properties, which the driver has read too.
    let moves = unsafe { properties.cast::<Properties>().as_ref() }.is_some_and(|properties| {
        properties.handle_types == 0
            && properties.most == 0
            && super::virtuals::calls().is_none_or(|calls| properties.location.is_on(calls.device()))
    });
    STATE.lock().pools.insert(pool, Pool { is_native: !moves, ..Pool::default() });
}

pub(super) fn destroyed(pool: usize) {
    if STATE.is_untouched() {
        return;
    }
    if let Some(known) = STATE.lock().pools.get_mut(&pool) {
        known.is_destroyed = true;
    }
    trim(pool, 0);
}

/// Releases what a pool does not use, but for so many bytes.
pub(super) fn trim(pool: usize, keep: u64) {
    if STATE.is_untouched() {
        return;
    }
    if let Some(movable) = movable().filter(|movable| !movable.is_over()) {
        pass(|| {
            reap(movable);
            release(movable, |of, known| if of == pool { keep } else { known.reserved });
        });
    }
}

/// Memory that a pool has in segments, and that is in use of it, in bytes.
pub(super) fn figures(pool: usize) -> (u64, u64) {
    if STATE.is_untouched() {
        return (0, 0);
    }
    STATE.lock().pools.get(&pool).map_or((0, 0), |pool| (pool.reserved, pool.used))
}

/// Adds to the driver's value of an attribute.
pub(super) fn attribute(pool: usize, which: c_uint, place: *mut c_void) {
    if STATE.is_untouched() || place.is_null() || which < RESERVED {
        return;
    }
    if let Some(movable) = movable().filter(|movable| !movable.is_over()) {
        pass(|| reap(movable));
    }
    let state = STATE.lock();
    let Some(pool) = state.pools.get(&pool) else { return };
    let more = match which {
        RESERVED => pool.reserved,
        RESERVED_HIGH => pool.reserved_high,
        USED => pool.used,
        USED_HIGH => pool.used_high,
        _ => return,
    };
    // SAFETY: the caller's own place, which the driver just wrote: a number of 64 bits for these attributes.
    unsafe {
        let place = place.cast::<u64>();
        place.write_unaligned(place.read_unaligned().saturating_add(more));
    }
}

/// Notes an attribute that the driver has accepted.
pub(super) fn attribute_set(pool: usize, which: c_uint, value: *const c_void) {
    if value.is_null() {
        return;
    }
    let mut state = STATE.lock();
    let pool = state.pools.entry(pool).or_default();
    match which {
        // SAFETY: the caller's own value, which the driver has read too.
        THRESHOLD => pool.threshold = unsafe { value.cast::<u64>().read_unaligned() },
        RESERVED_HIGH => pool.reserved_high = pool.reserved,
        USED_HIGH => pool.used_high = pool.used,
        _ => {}
    }
}

/// The block that contains an address.
pub(super) fn block(address: u64) -> Option<Known> {
    if STATE.is_untouched() {
        return None;
    }
    let mut state = STATE.lock();
    let (_, segment) = state.segment_of(address)?;
    let (&at, block) = segment.used.range(..=address).next_back()?;
    (address - at < block.bytes).then_some(Known { at, bytes: block.asked, id: block.id, pool: segment.pool })
}

/// Drops all, when the context ends. The segments are regions, which end with it.
pub(super) fn end_all() {
    if !STATE.is_untouched() {
        *STATE.lock() = State::default();
    }
}

/// Empties the tables, in a forked child.
pub(super) fn forget_all() {
    STATE.forget();
    FREED.store(false, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: usize = 7;
    const MIB: u64 = 1 << 20;

    fn with_segment() -> State {
        let mut state = State::default();
        let free = [(0, Free { bytes: 4 * MIB, key: 0, number: 0 })].into();
        state.segments.insert(0, Segment { bytes: 4 * MIB, pool: POOL, free, used: BTreeMap::new() });
        state.pools.insert(POOL, Pool { reserved: 4 * MIB, ..Pool::default() });
        state
    }

    fn freed(state: &mut State, at: u64, key: Key, number: u64) {
        assert!(state.put(at, key, number));
        state.pending.entry(key).or_default().push_back(Pending { number, event: number as usize });
    }

    #[test]
    fn a_block_is_reused_on_its_stream_at_once_and_elsewhere_once_reached() {
        let mut state = with_segment();
        let all: Vec<u64> = (0..4).filter_map(|_| state.take(POOL, MIB, 1)).collect();
        assert_eq!(all, [0, MIB, 2 * MIB, 3 * MIB]);
        assert_eq!(state.take(POOL, 1, 1), None);
        freed(&mut state, 0, 1, 1);
        assert_eq!((state.take(POOL, MIB, 2), state.take(POOL, MIB, 1)), (None, Some(0)));
        freed(&mut state, 0, 1, 2);
        freed(&mut state, MIB, 1, 3);
        assert_eq!(state.take(POOL, 2 * MIB, 1), Some(0), "one stream's parts are joined");
        freed(&mut state, 0, 1, 4);
        freed(&mut state, 2 * MIB, 0, 5);
        assert_eq!(state.take(POOL, MIB, 0), None, "no order");
        state.reap(|event| event == 5);
        assert_eq!(state.take(POOL, MIB, 9), Some(2 * MIB));
        state.reap(|event| event < 4);
        assert_eq!(state.take(POOL, MIB, 9), None, "the joined part has the last number");
        state.reap(|_| true);
        assert_eq!(state.take(POOL, 2 * MIB, 9), Some(0));
        assert_eq!(state.events.len(), 5);
    }

    #[test]
    fn what_is_left_of_a_joined_part_is_free_for_all_in_the_end() {
        let mut state = with_segment();
        let all: Vec<u64> = (0..4).filter_map(|_| state.take(POOL, MIB, 1)).collect();
        freed(&mut state, all[1], 1, 1);
        freed(&mut state, all[0], 1, 2);
        assert_eq!(state.take(POOL, MIB, 1), Some(0), "the beginning, whose number the rest has");
        freed(&mut state, 0, 1, 3);
        freed(&mut state, all[2], 1, 4);
        freed(&mut state, all[3], 1, 5);
        state.reap(|_| true);
        assert_eq!(state.unused(|_, _| 0), [0]);
    }

    #[test]
    fn unused_segments_go_as_far_as_the_pool_keeps_less() {
        let mut state = with_segment();
        assert_eq!(state.take(POOL, MIB, 1), Some(0));
        assert!(state.unused(|_, _| 0).is_empty(), "in use");
        freed(&mut state, 0, 1, 1);
        assert!(state.unused(|_, _| 0).is_empty(), "not reached");
        state.reap(|_| true);
        assert!(state.unused(|_, _| 4 * MIB).is_empty(), "kept");
        assert_eq!(state.unused(|_, _| 0), [0]);
        assert_eq!((state.pools[&POOL].reserved, state.segments.len()), (0, 0));
    }
}
