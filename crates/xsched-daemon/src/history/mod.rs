//! Records of the past that answers are made of: ended and refused programs, the part of a device that each group had, bursts.

pub(crate) mod bursts;
pub(crate) mod ended;
pub(crate) mod recent;
pub(crate) mod refusals;
pub(crate) mod shares;
