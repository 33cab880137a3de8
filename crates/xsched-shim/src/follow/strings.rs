//! Lists of strings, as the kernel takes them, and the strings of an environment that matter here. Code here may run in
//! a child of `vfork`, as in [`super`].

use std::ffi::c_char;

/// A list of strings that ends in null, as the kernel expects it.
pub(crate) type Strings = *const *const c_char;

pub(super) const PRELOAD: &[u8] = b"LD_PRELOAD=";
pub(super) const DISABLE: &[u8] = b"XSCHED_DISABLE=";
pub(super) const FOLLOW: &[u8] = b"XSCHED_FOLLOW=";

/// Entries of a list; a null list has none.
///
/// # Safety
/// A list of strings that ends in null, or a null list.
pub(super) unsafe fn entries(list: Strings) -> impl Iterator<Item = *const c_char> {
    let mut at = list;
    std::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: within the list, whose null was not reached.
        let entry = unsafe { *at };
        // SAFETY: as above.
        at = unsafe { at.add(1) };
        if entry.is_null() {
            at = std::ptr::null()
        }
        (!entry.is_null()).then_some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_has_no_entries() {
        // SAFETY: no list, and one that is empty.
        unsafe {
            assert_eq!(entries(std::ptr::null()).count(), 0);
            assert_eq!(entries([std::ptr::null()].as_ptr()).count(), 0);
        }
    }
}
