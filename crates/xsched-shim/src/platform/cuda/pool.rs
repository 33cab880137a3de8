//! Whether this process is in the pool of its user: a process asks when it first calls `cuInit`, and keeps what it gets until
//! it ends, since the driver looks for an MPS daemon then and never again.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use xsched_agent::say;
use xsched_proto::ask::{self, NoAnswer};
use xsched_proto::settings::{Mode, Settings};
use xsched_proto::variables;
use xsched_proto::wire::{DaemonMsg, ProgramOptions, Request};

use super::types::*;
use super::{device_runtime, real, sig};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::process;

/// Where the driver looks for an MPS daemon.
const PIPE_DIRECTORY: &CStr = c"CUDA_MPS_PIPE_DIRECTORY";
/// Priority of a process among the clients of its server: 0 = normal, 1 = below normal.
const CLIENT_PRIORITY: &CStr = c"CUDA_MPS_CLIENT_PRIORITY";
/// CUDA_ERROR_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_RPC_FAILURE, CUDA_ERROR_MPS_SERVER_NOT_READY.
const MPS_REFUSALS: [CUresult; 3] = [805, 806, 807];
/// Errors of a context that is lost by a fault of its own kernels: CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
/// CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE,
/// CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED. (An assertion that fails ends no pool.)
const FAULTS: [CUresult; 8] = [700, 702, 714, 715, 716, 717, 718, 719];
/// Longest wait for the daemon to take notice of such a fault.
const FAULT_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for a pool that starts; the daemon gives it up sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this process was given a place.
static MEMBER: AtomicBool = AtomicBool::new(false);
/// Whether it has asked, and not in vain.
static ASKED: Lock<bool> = Lock::new();

/// Has the daemon told, once, of a GPU fault of this process, by the result of a call that waits. In a pool it may be another's, and the
/// server's log names the process.
#[inline]
pub(super) fn noting(rc: CUresult) -> CUresult {
    if rc != SUCCESS && FAULTS.contains(&rc) {
        process::guarded("after a GPU fault", tell_of_fault);
    }
    rc
}

#[cold]
fn tell_of_fault() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if insists().is_none() || is_member() || !platform_enabled(CUDA) || TOLD.swap(true, AcqRel) {
        return;
    }
    if let Mode::Daemon(socket) = Settings::of_process().mode {
        let _ = ask::ask(&socket, Request::Faulted, FAULT_PATIENCE);
    }
}

/// Whether this process was given a place in a pool.
pub(super) fn is_member() -> bool {
    MEMBER.load(Acquire)
}

/// A forked child asks anew, and has no pool until then.
pub(super) fn forget() {
    ASKED.forget();
    MEMBER.store(false, Release);
}

unsafe extern "C" fn cuInit(flags: c_uint) -> CUresult {
    let (_, function) = real!(cuInit);
    let entered = process::guarded("before cuInit", enter).flatten();
    // SAFETY: the caller's own argument.
    let rc = unsafe { function(flags) };
    if let Some(entered) = entered {
        process::guarded("after cuInit", || entered.end(rc));
    }
    rc
}

hooks! { CUDA, BEGINS: Begin; cuInit }

/// A first call of `cuInit` for which the driver is pointed at a pool.
struct Entered {
    /// Where it was pointed before.
    before: CString,
    pipe: CString,
    socket: PathBuf,
}

/// Points the driver at the pool that this process is given a place in. None where it has asked before, or is in no pool. Another
/// thread that comes by meanwhile waits: the driver must not begin without.
fn enter() -> Option<Entered> {
    let insists = insists()?;
    let mut asked = ASKED.lock();
    if !platform_enabled(CUDA) || std::mem::replace(&mut *asked, true) {
        return None;
    }
    // SAFETY: a C string; what it finds is copied at once.
    let before = unsafe {
        let found = libc::getenv(PIPE_DIRECTORY.as_ptr());
        (!found.is_null()).then(|| CStr::from_ptr(found).to_owned())?
    };
    let settings = Settings::of_process();
    let Mode::Daemon(socket) = settings.mode else { return None };
    let pipe = place(&socket, settings.options, insists)?;
    replace(PIPE_DIRECTORY, &pipe);
    MEMBER.store(true, Release);
    Some(Entered { before, pipe, socket })
}

impl Entered {
    fn end(self, rc: CUresult) {
        // What this process starts decides for itself.
        replace(PIPE_DIRECTORY, &self.before);
        if rc == SUCCESS {
            return;
        }
        MEMBER.store(false, Release);
        if !MPS_REFUSALS.contains(&rc) {
            *ASKED.lock() = false;
            return;
        }
        // The driver remembers it: a further call returns the same, or none at all (driver 580).
        say("the MPS server of the pool refused this process; the next one finds another: start it again");
        if let Ok(pipe) = self.pipe.into_string() {
            let _ = ask::ask(&self.socket, Request::PoolRefused { pipe }, PATIENCE);
        }
    }
}

/// Whether this process would be in a pool wherever there can be one; none = it would not be in any.
fn insists() -> Option<bool> {
    match variables::text("XSCHED_SHARE")?.to_ascii_lowercase().as_str() {
        "auto" => Some(false),
        "pool" => Some(true),
        _ => None,
    }
}

/// The pipe directory of the pool that this process is given a place in; none = it shares by time.
fn place(socket: &Path, options: ProgramOptions, insists: bool) -> Option<CString> {
    let request = Request::JoinPool { job: options.job, priority: options.priority, insists, obstacle: obstacle() };
    let answer = match ask::ask(socket, request, PATIENCE) {
        Ok(answer) => answer.into_iter().next()?,
        // That no daemon answers is told where the program attaches.
        Err(NoAnswer::NotConnected(_)) => return None,
        Err(_) => {
            say("in no pool: the daemon's answer does not come or makes no sense");
            return None;
        }
    };
    match answer {
        DaemonMsg::Pool { pipe, note, is_urgent } => {
            if let Some(note) = note {
                say(&note);
            }
            // SAFETY: a C string; what it finds is not read.
            if !unsafe { libc::getenv(CLIENT_PRIORITY.as_ptr()) }.is_null() {
                replace(CLIENT_PRIORITY, if is_urgent { c"0" } else { c"1" });
            }
            CString::new(pipe).ok()
        }
        DaemonMsg::ByTime { why } => {
            if let Some(why) = why {
                say(&format!("time sharing: {why}"));
            }
            None
        }
        _ => None,
    }
}

/// Why this process must not be in a pool, as far as it can tell: tools that watch a program on its device do not work in one, nor do
/// kernels that launch others.
fn obstacle() -> Option<String> {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let preloads = var("LD_PRELOAD");
    if preloads.contains("libsanitizer") || !var("NV_SANITIZER_INJECTION_PORT_BASE").is_empty() {
        return Some("compute-sanitizer needs a context of its own".into());
    }
    if !var("CUDA_INJECTION64_PATH").is_empty() || preloads.contains("Injection") || preloads.contains("TreeLauncher") {
        return Some("a profiler needs a context of its own".into());
    }
    if var("CUDA_VISIBLE_DEVICES").contains("MIG-") {
        return Some("an instance of a divided GPU has no pool".into());
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map_or("0", str::trim);
    if tracer != "0" {
        return Some("a debugger needs a context of its own".into());
    }
    device_runtime::linked_into().map(|file| format!("kernels of {file} launch others, which MPS does not run"))
}

/// Replaces the value of a variable that is there: then no table of the C library's moves, which other threads may be reading.
fn replace(variable: &CStr, value: &CStr) {
    // SAFETY: two C strings.
    unsafe { libc::setenv(variable.as_ptr().cast::<c_char>(), value.as_ptr(), 1) };
}
