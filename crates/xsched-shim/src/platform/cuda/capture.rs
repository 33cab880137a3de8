//! Functions that begin and end captures.

use super::api::Api;
use super::hot::hot;
use super::stream::asked_recording;
use super::types::*;
use super::{real, residency, sig};
use crate::interpose::hooks;
use crate::platform::shared::{Driver, late};

fn began(rc: CUresult, stream: CUstream) -> CUresult {
    if rc == SUCCESS {
        hot().captures.began(stream);
    }
    rc
}

/// Handles an attempt to end a capture. The driver may refuse it (from the wrong thread), and the capture goes on.
fn ended(real: *mut c_void, rc: CUresult, stream: CUstream) -> CUresult {
    if Api::beside(real).is_none_or(|api| asked_recording(api, stream) == Some(false)) {
        hot().captures.forget(stream);
    }
    rc
}

macro_rules! begins {
    ($list:ident: $class:ident; $(fn $name:ident($stream:ident: CUstream $(, $arg:ident: $ty:ty)*);)*) => {
        $(
            unsafe extern "C" fn $name($stream: CUstream $(, $arg: $ty)*) -> CUresult {
                let (_, function) = real!($name);
                // SAFETY: the caller's own arguments.
                late::alone(|| residency::capturing(|| began(unsafe { function($stream $(, $arg)*) }, $stream)))
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

macro_rules! ends {
    ($list:ident: $class:ident; $(fn $name:ident($stream:ident: CUstream $(, $arg:ident: $ty:ty)*);)*) => {
        $(
            unsafe extern "C" fn $name($stream: CUstream $(, $arg: $ty)*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                ended(real, unsafe { function($stream $(, $arg)*) }, $stream)
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

begins! {
    BEGINS: Capture;
    fn cuStreamBeginCapture(hStream: CUstream);
    fn cuStreamBeginCaptureToCig(hStream: CUstream, streamCigCaptureParams: *mut c_void);
    fn cuStreamBeginCaptureToCig_ptsz(hStream: CUstream, streamCigCaptureParams: *mut c_void);
    fn cuStreamBeginCaptureToGraph(hStream: CUstream, hGraph: CUgraph, dependencies: *mut c_void, dependencyData: *mut c_void, numDependencies: usize, mode: c_uint);
    fn cuStreamBeginCaptureToGraph_ptsz(hStream: CUstream, hGraph: CUgraph, dependencies: *mut c_void, dependencyData: *mut c_void, numDependencies: usize, mode: c_uint);
    fn cuStreamBeginCapture_ptsz(hStream: CUstream);
    fn cuStreamBeginCapture_v2(hStream: CUstream, mode: c_uint);
    fn cuStreamBeginCapture_v2_ptsz(hStream: CUstream, mode: c_uint);
    fn cuStreamBeginRecaptureToGraph(hStream: CUstream, mode: c_uint, hGraph: CUgraph, callbackFunc: *mut c_void, userData: *mut c_void);
    fn cuStreamBeginRecaptureToGraph_ptsz(hStream: CUstream, mode: c_uint, hGraph: CUgraph, callbackFunc: *mut c_void, userData: *mut c_void);
}

ends! {
    ENDS: Capture;
    fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut c_void);
    fn cuStreamEndCaptureToCig(hStream: CUstream);
    fn cuStreamEndCaptureToCig_ptsz(hStream: CUstream);
    fn cuStreamEndCapture_ptsz(hStream: CUstream, phGraph: *mut c_void);
}
