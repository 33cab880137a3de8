//! Objects by handle. A handle is the address of a block of memory of this copy of the library, as in the real runtime:
//! another copy in the same process does not know it. A block is reused soon after its object is destroyed, as memory
//! is.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// Bytes of a block.
const BLOCK: usize = 64;

/// The objects of one kind, by handle.
pub(crate) struct Registry<T>(RwLock<Inner<T>>);

struct Inner<T> {
    items: HashMap<usize, Arc<T>>,
    free: Vec<usize>,
}

impl<T> Registry<T> {
    pub(crate) fn new() -> Self {
        Self(RwLock::new(Inner { items: HashMap::new(), free: Vec::new() }))
    }

    /// Adds the object that `make` returns for its handle.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> T) -> Arc<T> {
        let mut inner = self.0.write().unwrap_or_else(|e| e.into_inner());
        let fresh = || std::ptr::from_mut(Box::leak(Box::new([0_u8; BLOCK]))).expose_provenance();
        let handle = inner.free.pop().unwrap_or_else(fresh);
        let object = Arc::new(make(handle));
        inner.items.insert(handle, object.clone());
        object
    }

    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(|e| e.into_inner()).items.get(&handle).cloned()
    }

    /// Removes an object. Its handle may be reused.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let mut inner = self.0.write().unwrap_or_else(|e| e.into_inner());
        let object = inner.items.remove(&handle)?;
        inner.free.push(handle);
        Some(object)
    }

    /// Removes all objects for which `unwanted` returns true.
    pub(crate) fn remove_if(&self, unwanted: impl Fn(&T) -> bool) {
        let mut inner = self.0.write().unwrap_or_else(|e| e.into_inner());
        let gone: Vec<usize> =
            inner.items.iter().filter(|(_, item)| unwanted(item)).map(|(&handle, _)| handle).collect();
        for handle in gone {
            inner.items.remove(&handle);
            inner.free.push(handle);
        }
    }

    /// Handle of the first object for which `wanted` returns true.
    pub(crate) fn handle_of(&self, wanted: impl Fn(&T) -> bool) -> Option<usize> {
        let inner = self.0.read().unwrap_or_else(|e| e.into_inner());
        inner.items.iter().find(|(_, item)| wanted(item)).map(|(&handle, _)| handle)
    }

    /// The first object for which `wanted` returns true.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(|e| e.into_inner()).items.values().find(|item| wanted(item)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_do_not_know_each_others_handles() {
        let (a, b) = (Registry::new(), Registry::new());
        let (one, other) = (*a.add(|handle| handle), *b.add(|handle| handle));
        assert!(a.get(one).is_some() && a.get(other).is_none() && b.get(one).is_none());
        assert!(a.remove(one).is_some() && a.get(one).is_none() && a.remove(one).is_none());
        assert_eq!(*a.add(|handle| handle), one, "a handle comes back");
    }
}
