//! Submission of commands to streams.

use crate::capture;
use crate::op::Op;
use crate::result::{Error, Result};
use crate::sequence::potentially_unsafe;
use crate::stream::Stream;
use std::sync::Arc;
use xsched_sim::client::{Mark, lock};

impl Stream {
    /// Submits a command, or records it in a capture. Returns its mark if it was submitted.
    pub(crate) fn issue(self: &Arc<Self>, op: Op) -> Result<Option<Mark>> {
        let ctx = self.context()?;
        if let Some(capture) = self.capture() {
            capture::add(&capture, self, op)?;
            return Ok(None);
        }
        self.no_implicit(&ctx)?;
        let given = {
            let _turn = lock(&self.turn);
            op.run(&ctx, self.slot, false)?
        };
        given.finish().map(Some)
    }

    /// Submits several commands without others in between.
    pub(crate) fn issue_all(self: &Arc<Self>, ops: &[Op]) -> Result<()> {
        let ctx = self.context()?;
        self.no_implicit(&ctx)?;
        let _turn = lock(&self.turn);
        ops.iter().try_for_each(|op| op.run(&ctx, self.slot, true).map(drop))
    }

    /// Submits a command and waits for it.
    pub(crate) fn issue_and_wait(self: &Arc<Self>, op: Op) -> Result<()> {
        potentially_unsafe()?;
        match self.issue(op)? {
            Some(mark) => self.context()?.wait(mark),
            None => {
                self.capture().inspect(|capture| capture.invalidate());
                Err(Error::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }
}
