//! Objects by handle. Handles look like addresses but are never followed, and are reused at once after a destroy, as a
//! driver's are.

use std::sync::{Arc, RwLock};

/// Objects of one kind, by handle.
pub(crate) struct Slab<T> {
    kind: u8,
    items: RwLock<Items<T>>,
}

struct Items<T> {
    slots: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    /// Makes an empty slab. `kind` is different for each slab and below 0x80, so that a handle of the wrong kind is
    /// detected.
    pub(crate) const fn new(kind: u8) -> Self {
        Self { kind, items: RwLock::new(Items { slots: Vec::new(), free: Vec::new() }) }
    }

    fn handle(&self, index: usize) -> usize {
        usize::from(self.kind) << 40 | (index + 1) << 6
    }

    fn index(&self, handle: usize) -> Option<usize> {
        let index = ((handle & 0xff_ffff_ffff) >> 6).checked_sub(1)?;
        (self.handle(index) == handle).then_some(index)
    }

    /// Adds the object that `make` returns for its handle.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> Arc<T>) -> Arc<T> {
        let mut items = self.items.write().unwrap_or_else(|e| e.into_inner());
        let index = items.free.pop().unwrap_or_else(|| {
            items.slots.push(None);
            items.slots.len() - 1
        });
        let object = make(self.handle(index));
        items.slots[index] = Some(object.clone());
        object
    }

    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        let index = self.index(handle)?;
        self.items.read().unwrap_or_else(|e| e.into_inner()).slots.get(index)?.clone()
    }

    /// Removes an object; its handle may be reused.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let index = self.index(handle)?;
        let mut items = self.items.write().unwrap_or_else(|e| e.into_inner());
        let object = items.slots.get_mut(index)?.take()?;
        items.free.push(index);
        Some(object)
    }

    /// Removes all objects for which `unwanted` returns true.
    pub(crate) fn remove_if(&self, unwanted: impl Fn(&T) -> bool) {
        let mut items = self.items.write().unwrap_or_else(|e| e.into_inner());
        for index in 0..items.slots.len() {
            if items.slots[index].as_ref().is_some_and(|object| unwanted(object)) {
                items.slots[index] = None;
                items.free.push(index);
            }
        }
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.items.read().unwrap_or_else(|e| e.into_inner()).slots.iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_and_kinds_are_told_apart() {
        let (slab, other) = (Slab::new(0x51), Slab::<usize>::new(0x52));
        let (a, b) = (*slab.add(Arc::new), *slab.add(Arc::new));
        assert!(a != b && a > 2 && slab.get(a).is_some() && other.get(a).is_none());
        assert!(slab.remove(a).is_some() && slab.get(a).is_none() && slab.remove(a).is_none());
        assert_eq!(*slab.add(Arc::new), a);
        assert_eq!(slab.get(a + 1), None);
        assert_eq!(slab.get(0), None);
        assert_eq!(slab.all().len(), 2);
    }
}
