//! Pages of other arenas in this one.

use super::wait::lock;
use crate::layout::ARENA_BYTES;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Pages of other arenas in a context's arena: offset → bytes.
#[derive(Default)]
pub(super) struct Imports(pub(super) Mutex<BTreeMap<u64, u64>>);

impl Imports {
    /// Offsets and lengths of the arena's own pages, in bytes.
    pub(super) fn gaps(&self) -> Vec<(u64, u64)> {
        let (mut gaps, mut next) = (Vec::new(), 0);
        for (&at, &bytes) in lock(&self.0).iter() {
            gaps.push((next, at - next));
            next = at + bytes;
        }
        gaps.push((next, ARENA_BYTES as u64 - next));
        gaps
    }
}
