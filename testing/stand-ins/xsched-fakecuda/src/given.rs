//! Commands that were submitted to the device.

use crate::context::Ctx;
use crate::result::Result;
use xsched_sim::client::{Mark, Slot};
use xsched_sim::command::Action;

/// A submitted command, and the host's remaining work for it.
pub(crate) struct Given {
    pub(crate) mark: Mark,
    rest: Option<Box<dyn FnOnce() -> Result<()>>>,
}

impl From<Mark> for Given {
    fn from(mark: Mark) -> Self {
        Self { mark, rest: None }
    }
}

impl Given {
    pub(crate) fn and_then(mark: Mark, rest: impl FnOnce() -> Result<()> + 'static) -> Self {
        Self { mark, rest: Some(Box::new(rest)) }
    }

    /// Does the remaining work, which may wait for the device.
    pub(crate) fn finish(self) -> Result<Mark> {
        self.rest.map_or(Ok(()), |rest| rest())?;
        Ok(self.mark)
    }
}

/// Submits one action to a stream.
pub(crate) fn give(ctx: &Ctx, slot: Slot, action: Action) -> Result<Mark> {
    Ok(ctx.sim.submit(slot, |_, _| Ok(Some(action)))?)
}
