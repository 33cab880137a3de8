//! Queues that a program creates through AMD's runtime (HSA) itself.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use xsched_agent::say_once;
use xsched_core::{QueueSpec, XQueue, thread};
use xsched_proto::settings::Log;
use xsched_proto::wire;

use crate::enabled::{HSA, platform_enabled};
use crate::interpose::{hooks, resolve};
use crate::platform::shared::amd::{kfd, topology};
use crate::platform::start::runtime;
use crate::process;

/// HSA_STATUS_SUCCESS.
const OK: c_int = 0;
/// HSA_STATUS_ERROR_NOT_INITIALIZED: result of a call if there is no library behind us.
const MISSING: c_int = 0x100b;
/// HSA_AGENT_INFO_DEVICE, and its value for a GPU.
const AGENT_DEVICE: c_int = 17;
const AGENT_GPU: u32 = 1;
/// HSA_AMD_AGENT_INFO_BDFID.
const AGENT_LOCATION: c_int = 0xa006;
/// HSA_AMD_AGENT_INFO_DOMAIN.
const AGENT_DOMAIN: c_int = 0xa00f;
/// HSA_SYSTEM_INFO_VERSION_MAJOR.
const SYSTEM_VERSION: c_int = 0;

/// hsa_agent_t.
#[repr(C)]
#[derive(Clone, Copy)]
struct Agent {
    handle: u64,
}

/// amd_queue_t of amd_hsa_queue.h, to which a queue's handle points, as far as it is read: the two indices.
#[repr(C)]
pub struct AmdQueue {
    /// hsa_queue_t, and reserved words behind it.
    pub before: [u64; 7],
    /// Number of packets that the program has written.
    pub write_dispatch_id: AtomicU64,
    /// Members that are not read.
    pub between: [u64; 8],
    /// Number of packets that the device has read.
    pub read_dispatch_id: AtomicU64,
}

type AgentInfoFn = unsafe extern "C" fn(Agent, c_int, *mut c_void) -> c_int;
type SystemInfoFn = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
type QueueErrorFn = Option<unsafe extern "C" fn(c_int, *mut AmdQueue, *mut c_void)>;

/// Function pointer types of the hooked functions, as in hsa.h.
#[allow(non_camel_case_types)]
mod sig {
    use super::*;
    pub(super) type hsa_queue_create =
        unsafe extern "C" fn(Agent, u32, u32, QueueErrorFn, *mut c_void, u32, u32, *mut *mut AmdQueue) -> c_int;
    pub(super) type hsa_queue_destroy = unsafe extern "C" fn(*mut AmdQueue) -> c_int;
    pub(super) type hsa_shut_down = unsafe extern "C" fn() -> c_int;
}

macro_rules! real {
    ($name:ident) => {{
        let real = $name::real();
        if real.is_null() {
            return MISSING;
        }
        // SAFETY: the address of the real function of this name, whose signature is hsa.h's.
        (real, unsafe { std::mem::transmute::<*mut c_void, sig::$name>(real) })
    }};
}

/// Reports whether the call comes from HIP, whose queues are scheduled by the commands that enter its streams.
fn is_from_hip(caller: usize) -> bool {
    resolve::object_of(caller).is_some_and(|(_, file)| {
        let file = file.to_string_lossy();
        file.rsplit('/').next().is_some_and(|name| name.starts_with("libamdhip64"))
    })
}

/// Error: the runtime gives no information on a queue's agent.
struct Untold;

/// Key of an agent's device; `None` if it is no GPU.
fn device_of(real: *mut c_void, agent: Agent) -> Result<Option<String>, Untold> {
    let ask = resolve::in_scope_of(real as usize, c"hsa_agent_get_info");
    if ask.is_null() {
        return Err(Untold);
    }
    // SAFETY: the function beside hsa_queue_create, whose signature is hsa.h's.
    let ask = unsafe { std::mem::transmute::<*mut c_void, AgentInfoFn>(ask) };
    let number = |attribute| {
        let mut value = 0u32;
        // SAFETY: each of the attributes asked for is 32 bits.
        (unsafe { ask(agent, attribute, std::ptr::from_mut(&mut value).cast()) } == OK).then_some(value).ok_or(Untold)
    };
    if number(AGENT_DEVICE)? != AGENT_GPU {
        return Ok(None);
    }
    // Older runtimes know no PCI domains.
    Ok(Some(topology::key_of(number(AGENT_DOMAIN).unwrap_or(0), number(AGENT_LOCATION)?)))
}

unsafe extern "C" fn hsa_queue_create(
    agent: Agent,
    size: u32,
    kind: u32,
    callback: QueueErrorFn,
    data: *mut c_void,
    private_bytes: u32,
    group_bytes: u32,
    queue: *mut *mut AmdQueue,
) -> c_int {
    let caller = thread::current().caller.get();
    let (real, function) = real!(hsa_queue_create);
    // SAFETY: the caller's own arguments.
    let rc = unsafe { function(agent, size, kind, callback, data, private_bytes, group_bytes, queue) };
    if rc == OK && !queue.is_null() && platform_enabled(HSA) {
        process::guarded("after a queue was made", || {
            if !is_from_hip(caller) {
                // SAFETY: the library stored a handle there.
                register(real, agent, unsafe { *queue });
            }
        });
    }
    rc
}

hooks! { HSA, CREATES: Create; hsa_queue_create }

/// Registers a queue that its program fills by itself. The agent thread reads its indices from now on.
fn register(real: *mut c_void, agent: Agent, queue: *mut AmdQueue) {
    if queue.is_null() {
        return;
    }
    let device = match device_of(real, agent) {
        Ok(Some(device)) => device,
        Ok(None) => return,
        Err(Untold) => {
            static SAID: AtomicBool = AtomicBool::new(false);
            let text = "HSA queues run unscheduled: AMD's runtime does not tell which device they are on";
            return say_once(&SAID, Log::Error, Log::Error, text);
        }
    };
    let Some(rt) = runtime() else { return };
    let insists = rt.forced_level().filter(|level| *level < 3);
    let insists = insists.map(|level| format!("level 3 is all there is, and the program insists on level {level}"));
    if let Some(why) = insists.or_else(|| kfd::hindrance(&device)) {
        static SAID: AtomicBool = AtomicBool::new(false);
        let text = format!("HSA queues on {device} run unscheduled: {why}");
        say_once(&SAID, Log::Error, Log::Error, &text);
        return;
    }
    rt.remove_queue(queue as usize);
    rt.queue(queue as usize, || {
        // The runtime's own requests for a queue's priority reach the hardware, see `shared::amd`, so no steps are set
        // here. All queues are suspended together, so that level 3 stays possible.
        Some(QueueSpec { handle: queue.cast(), platform: HSA, device, priority_steps: 0, in_order: true })
    });
}

/// Removes all such queues. They can no longer be suspended, and must not count as if they could.
pub(super) fn forget_queues() {
    let Some(rt) = process::running() else { return };
    let keys: Vec<usize> = rt.queues().filter(|q| filled_by_program(rt, q)).map(XQueue::key).collect();
    keys.into_iter().for_each(|key| rt.remove_queue(key));
}

/// Numbers of packets written to a queue and read from it.
pub(super) fn filled(queue: &XQueue) -> Option<(u64, u64)> {
    // SAFETY: a queue that was registered above and, as the caller sees to, is not destroyed meanwhile; its memory is
    // shared with the device, hence atomics.
    let queue = unsafe { queue.handle().cast::<AmdQueue>().as_ref() }?;
    // The read index is read first, so that it is never ahead of the write index.
    let taken = queue.read_dispatch_id.load(Acquire);
    Some((queue.write_dispatch_id.load(Acquire).max(taken), taken))
}

unsafe extern "C" fn hsa_queue_destroy(queue: *mut AmdQueue) -> c_int {
    let (_, function) = real!(hsa_queue_destroy);
    process::guarded("before the end of a queue", || process::running().map(|rt| rt.remove_queue(queue as usize)));
    // SAFETY: the caller's own argument.
    unsafe { function(queue) }
}

/// Ends the runtime with all its queues, if it is the last of several calls. Only afterwards is it known whether it
/// was.
unsafe extern "C" fn hsa_shut_down() -> c_int {
    let (real, function) = real!(hsa_shut_down);
    let mut queues = Vec::new();
    process::guarded("before the end of the runtime", || {
        let Some(rt) = process::running() else { return };
        for queue in rt.queues().filter(|q| filled_by_program(rt, q)) {
            queues.push((queue.key(), rt.device_of(queue.group(rt).index()).map(|(device, _)| device)));
        }
        queues.iter().for_each(|(key, _)| rt.remove_queue(*key));
    });
    // SAFETY: no arguments.
    let rc = unsafe { function() };
    process::guarded("after the end of the runtime", || {
        if !is_up(real) {
            return;
        }
        let Some(rt) = process::running() else { return };
        for (key, device) in queues {
            rt.queue(key, || {
                Some(QueueSpec {
                    handle: key as *mut c_void,
                    platform: HSA,
                    device: device?,
                    priority_steps: 0,
                    in_order: true,
                })
            });
        }
    });
    rc
}

hooks! { HSA, DESTROYS: Destroy; hsa_queue_destroy hsa_shut_down }

fn filled_by_program(rt: &xsched_core::Runtime, queue: &XQueue) -> bool {
    queue.kind(rt) == wire::Platform::Hsa
}

/// Reports whether the runtime is still initialised.
fn is_up(real: *mut c_void) -> bool {
    let ask = resolve::in_scope_of(real as usize, c"hsa_system_get_info");
    let mut version = 0u16;
    // SAFETY: the function beside hsa_shut_down, whose signature is hsa.h's; the attribute is 16 bits.
    !ask.is_null()
        && unsafe {
            let ask = std::mem::transmute::<*mut c_void, SystemInfoFn>(ask);
            ask(SYSTEM_VERSION, std::ptr::from_mut(&mut version).cast()) == OK
        }
}
