//! Whether this process is in the pool of its user: a process asks when it first calls `cuInit`, and keeps what it gets until
//! it ends, since the driver looks for an MPS daemon then and never again.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use xsched_agent::{Mode, Settings, say};
use xsched_proto::ask::{self, NoAnswer};
use xsched_proto::wire::{DaemonMsg, Request};

use super::types::*;
use super::{real, sig};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::process;

/// Where the driver looks for an MPS daemon.
const PIPE_DIRECTORY: &CStr = c"CUDA_MPS_PIPE_DIRECTORY";
/// Longest wait for a pool that starts; the daemon gives it up sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this process was given a place.
static MEMBER: AtomicBool = AtomicBool::new(false);
/// Whether it has asked.
static ASKED: Lock<bool> = Lock::new();

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
    let before = process::guarded("before cuInit", enter).flatten();
    // SAFETY: the caller's own argument.
    let rc = unsafe { function(flags) };
    if let Some(before) = before {
        process::guarded("after cuInit", || {
            if rc != SUCCESS {
                MEMBER.store(false, Release);
            }
            // What this process starts decides for itself.
            point_at(&before);
        });
    }
    rc
}

hooks! { CUDA, BEGINS: Begin; cuInit }

/// Where the driver is pointed at a pool, where it was pointed before.
fn enter() -> Option<CString> {
    if !platform_enabled(CUDA) {
        return None;
    }
    let mut asked = ASKED.lock();
    if std::mem::replace(&mut *asked, true) {
        return None;
    }
    let insists = match std::env::var("XSCHED_SHARE").ok()?.as_str() {
        "auto" => false,
        "pool" => true,
        _ => return None,
    };
    // SAFETY: a C string; what it finds is copied at once.
    let before = unsafe {
        let found = libc::getenv(PIPE_DIRECTORY.as_ptr());
        (!found.is_null()).then(|| CStr::from_ptr(found).to_owned())?
    };
    let settings = Settings::read(|name| std::env::var(name).ok());
    let Mode::Daemon(socket) = settings.mode else { return None };
    let (job, priority) = (settings.options.job, settings.options.priority);
    let request = Request::JoinPool { job, priority, insists, obstacle: obstacle() };
    let answer = match ask::ask(&socket, request, PATIENCE) {
        Ok(answer) => answer.into_iter().next()?,
        // That no daemon answers is told where the program attaches.
        Err(NoAnswer::NotConnected(_)) => return None,
        Err(_) => {
            say("in no pool: the daemon's answer does not come or makes no sense");
            return None;
        }
    };
    match answer {
        DaemonMsg::Pool { pipe, note } => {
            if let Some(note) = note {
                say(&note);
            }
            point_at(&CString::new(pipe).ok()?);
            MEMBER.store(true, Release);
            Some(before)
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

/// Why this process must not be in a pool, as far as it can tell: tools that watch a program on its device do not work in one.
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
    (tracer != "0").then(|| "a debugger needs a context of its own".into())
}

/// Replaces the value of a variable that is there: then no table of the C library's moves, which other threads may be reading.
fn point_at(folder: &CStr) {
    // SAFETY: two C strings.
    unsafe { libc::setenv(PIPE_DIRECTORY.as_ptr().cast::<c_char>(), folder.as_ptr(), 1) };
}
