//! Numbers about this process for whoever wants to check them against another count.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::process;

/// Marker commands placed to follow completions, see the OpenCL platform.
pub(crate) static ADDED_MARKERS: AtomicU64 = AtomicU64::new(0);

/// Vendor calls that the application did not make.
pub(crate) fn added() -> Vec<(&'static str, u64)> {
    let markers = ADDED_MARKERS.load(Relaxed);
    if markers == 0 { Vec::new() } else { vec![("clEnqueueMarkerWithWaitList", markers)] }
}

/// At exit: appends one line of JSON to the file that `XSCHED_STATS` names.
pub(crate) extern "C" fn write() {
    let _ = std::panic::catch_unwind(|| {
        let (Some(path), Some(rt)) = (std::env::var_os("XSCHED_STATS"), process::running()) else { return };
        let (launches, [attach, passthrough, error]) = rt.totals();
        let (bound_escapes, signal_escapes) = rt.escapes();
        let added: Vec<String> = added().iter().map(|(name, n)| format!("\"{name}\":{n}")).collect();
        let line = format!(
            "{{\"pid\":{},\"launches\":{launches},\"unscheduled\":{{\"attach\":{attach},\"passthrough\":{passthrough},\
             \"error\":{error}}},\"gate_waits\":{},\"bound_escapes\":{bound_escapes},\
             \"signal_escapes\":{signal_escapes},\"added\":{{{}}}}}\n",
            std::process::id(),
            rt.gate_waits(),
            added.join(",")
        );
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
            let _ = file.write_all(line.as_bytes());
        }
    });
}
