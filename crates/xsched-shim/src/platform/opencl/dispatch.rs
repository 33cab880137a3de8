//! Check which functions a platform behind an ICD loader implements.
//!
//! Every object of an ICD platform begins with the address of the platform's dispatch table (`cl_khr_icd`,
//! `cl_icd_dispatch` in CL/cl_icd.h). A loader exports every OpenCL function and jumps to the table's entry, null or
//! not. An application calls only the functions that the platform's version promises; this library must check the table
//! before it calls others. Libraries without a loader need no table, so nothing is assumed about the memory behind a
//! handle.

use std::ffi::{c_int, c_void};

use crate::interpose::walk;

/// Entries of the table, by their index in `cl_icd_dispatch`. The audit test compares them with CL/cl_icd.h.
macro_rules! entries {
    ($($entry:ident = $index:literal $name:literal;)*) => {
        #[derive(Clone, Copy)]
        pub(super) enum Entry {
            $($entry = $index,)*
        }

        /// Name and index of each entry used.
        pub(super) const ENTRIES: &[(&str, usize)] = &[$(($name, $index)),*];
    };
}

entries! {
    DeviceInfo = 3 "clGetDeviceInfo";
    ContextInfo = 8 "clGetContextInfo";
    RetainQueue = 10 "clRetainCommandQueue";
    ReleaseQueue = 11 "clReleaseCommandQueue";
    QueueInfo = 12 "clGetCommandQueueInfo";
    EventInfo = 42 "clGetEventInfo";
    ReleaseEvent = 44 "clReleaseEvent";
    Flush = 46 "clFlush";
    Finish = 47 "clFinish";
    NdRangeKernel = 59 "clEnqueueNDRangeKernel";
    SetEventCallback = 81 "clSetEventCallback";
    SetDestructor = 83 "clSetMemObjectDestructorCallback";
    MarkerWithWaitList = 105 "clEnqueueMarkerWithWaitList";
}

const WORD: usize = size_of::<usize>();

/// A platform's dispatch table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Table(usize);

impl Table {
    /// The table that an object begins with; `None` if the handle refers to no memory or no table.
    pub(super) fn of(handle: *mut c_void) -> Option<Table> {
        let table = Table(word_at(handle as usize)?);
        (table.has(Entry::NdRangeKernel) && table.has(Entry::Finish)).then_some(table)
    }

    /// Reports whether the platform implements a function. The table of an old platform may be shorter than today's, so
    /// an entry counts only if it points to code.
    pub(super) fn has(self, entry: Entry) -> bool {
        let at = self.0.checked_add(entry as usize * WORD);
        at.and_then(word_at).is_some_and(|code| code != 0 && is_code(code))
    }
}

/// The word at an address, if it can be read. Memory that the platform unmaps at the same moment would be the
/// application's mistake: the object behind a handle in use stays.
fn word_at(address: usize) -> Option<usize> {
    // An aligned word lies within one page.
    if address < 4096 || !address.is_multiple_of(WORD) || !is_readable(address) {
        return None;
    }
    // SAFETY: readable, aligned memory; any value is a usize.
    Some(unsafe { (address as *const usize).read_volatile() })
}

/// Reports whether the 8 bytes at an aligned address can be read. The kernel is asked to copy a signal set from there,
/// for an operation that does not exist: it copies first, and then refuses.
fn is_readable(address: usize) -> bool {
    const NO_OPERATION: c_int = -1;
    // SAFETY: the kernel checks the address; the signal mask stays as it is.
    let rc = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, NO_OPERATION, address, std::ptr::null_mut::<c_void>(), 8usize)
    };
    rc == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// Reports whether an address lies in the code of a loaded object.
fn is_code(address: usize) -> bool {
    let mut search = (address, false);
    // SAFETY: `visit` gets the search back, for as long as this call takes.
    unsafe { walk::objects(visit, (&raw mut search).cast()) };
    search.1
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: both pointers are what dl_iterate_phdr promises and what `is_code` passed.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<(usize, bool)>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the headers of a loaded object.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    search.1 = headers.iter().any(|header| {
        let begin = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let is_executable = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
        is_executable && search.0.wrapping_sub(begin) < header.p_memsz as usize
    });
    search.1.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(entries: &[usize; 130]) -> [usize; 2] {
        [entries.as_ptr() as usize, 7]
    }

    #[test]
    fn a_table_tells_what_there_is() {
        let code = libc::getpid as *const () as usize;
        let mut entries = [code; 130];
        entries[Entry::SetEventCallback as usize] = 0;
        entries[Entry::MarkerWithWaitList as usize] = (&raw const entries) as usize;
        let mut object = object(&entries);
        let table = Table::of(object.as_mut_ptr().cast()).expect("a table");
        assert!(table.has(Entry::Flush) && table.has(Entry::DeviceInfo));
        assert!(!table.has(Entry::SetEventCallback), "null");
        assert!(!table.has(Entry::MarkerWithWaitList), "data behind a short table");
    }

    #[test]
    fn no_handle_is_followed_blindly() {
        let not_a_table = [0usize; 130];
        let mut words = object(&not_a_table);
        for handle in [0, 1, 8, 4097, usize::MAX - 7, 0xdead_beef_0000, words.as_mut_ptr() as usize] {
            assert!(Table::of(handle as *mut c_void).is_none(), "{handle:#x}");
        }
        words[0] = 0xdead_beef_0000;
        assert!(Table::of(words.as_mut_ptr().cast()).is_none());
    }
}
