//! Functions of the program that run when a stream reaches them.

use crate::edge::Null;
use crate::op::{Argument, Callback, HostFunction, Op};
use crate::result::{Error, Result};
use crate::stream::{self, Stream};
use std::ffi::{c_uint, c_void};
use std::sync::Arc;

pub(crate) fn launch_host_function(
    null: Null,
    stream: usize,
    function: Option<HostFunction>,
    argument: *mut c_void,
) -> Result<()> {
    let function = function.ok_or(Error::INVALID_VALUE)?;
    stream::find(null, stream)?.issue(Op::Host(function, Argument(argument))).map(drop)
}

pub(crate) fn launch_host_function_v2(
    null: Null,
    stream: usize,
    function: Option<HostFunction>,
    argument: *mut c_void,
    _sync_mode: c_uint,
) -> Result<()> {
    launch_host_function(null, stream, function, argument)
}

pub(crate) fn add_callback(
    null: Null,
    handle: usize,
    function: Option<Callback>,
    argument: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    let function = function.filter(|_| flags == 0).ok_or(Error::INVALID_VALUE)?;
    let stream: Arc<Stream> = stream::find(null, handle)?;
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.issue(Op::Callback(handle, function, Argument(argument))).map(drop)
}
