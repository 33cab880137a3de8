//! Parts of the engine's state that are more than a table. Each, or each field of `follow_ups` and `history`, is written by
//! the module beside it that has its name or task.

pub(crate) mod books;
pub(crate) mod changing;
pub(crate) mod follow_ups;
pub(crate) mod gone;
pub(crate) mod history;
pub(crate) mod idling;
pub(crate) mod measures;
pub(crate) mod memory_work;
pub(crate) mod outcomes;
pub(crate) mod pages;
pub(crate) mod queues;
pub(crate) mod recordings;
pub(crate) mod servers;
pub(crate) mod targets;
pub(crate) mod wants;
pub(crate) mod windows;
