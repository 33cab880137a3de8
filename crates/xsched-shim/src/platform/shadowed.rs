//! Detection of libraries preloaded before this one that define hooked functions. The loader binds the program to
//! those, and its calls never reach this library. This is reported, since nothing else would show it.
//!
//! The check runs when this library is loaded: a program whose calls all go elsewhere never makes a first device call
//! here. Usually no library comes between the program and this one, and a look at the order of the loaded objects is
//! the only cost.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicBool;

use xsched_agent::{refuse, say_once};
use xsched_proto::settings::{Log, Settings};

use crate::enabled;
use crate::interpose::objects::Objects;
use crate::interpose::{resolve, walk};

/// Constructor that runs after those of the C library and before those of the program.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        if something_is_before_us() {
            let _ = std::panic::catch_unwind(loaded);
        }
    }
    look
};

/// A library before this one that defines a hooked function.
struct Shadow {
    /// One of the functions that it defines.
    function: &'static CStr,
    file: String,
    is_needed: bool,
}

impl Shadow {
    /// Finds the library before this one that defines a launch function, if there is one and this library is preloaded.
    /// (A program that is linked with this library uses the C API, and its calls of vendors' interfaces are not
    /// expected here.)
    fn find() -> Option<Shadow> {
        if enabled::disabled() {
            return None;
        }
        let objects = Objects::now();
        let own = objects.place_of(Shadow::find as *const () as usize)?;
        if !resolve::is_preloaded() || objects.root_of(own) != own && !is_named_by_preload(&objects, own) {
            return None;
        }
        let launches = super::launches().filter(|hook| enabled::platform_enabled(hook.platform));
        launches.into_iter().find_map(|hook| {
            let place = objects.place_of(resolve::before_us(hook.name) as usize)?;
            // The program itself precedes all libraries.
            let file = match objects.file(place).to_string_lossy() {
                file if file.is_empty() => "the program itself".into(),
                file => file.into_owned(),
            };
            (place < own).then(|| Shadow { function: hook.name, file, is_needed: objects.is_needed(place) })
        })
    }

    fn line(&self) -> String {
        let Shadow { file, function, .. } = self;
        let function = function.to_string_lossy();
        format!("{file} stands before libxsched.so and answers {function}: what it does not pass on is not scheduled")
    }

    /// Reports whether the vendor's interface is in use in this process: most programs that a shell starts do not use
    /// it.
    fn is_in_use(&self) -> bool {
        self.is_needed || resolve::is_behind_us(self.function)
    }

    fn tell(&self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        say_once(&SAID, Settings::of_process().log, Log::Error, &self.line());
    }
}

/// The report as one line; `None` if there is no such library.
pub(crate) fn line() -> Option<String> {
    something_is_before_us().then(Shadow::find)?.map(|shadow| shadow.line())
}

/// Reports a library before this one, at once or at the end of the program.
#[cold]
fn loaded() {
    let Some(shadow) = Shadow::find() else { return };
    if Settings::of_process().required {
        refuse(&shadow.line());
    }
    if shadow.is_in_use() {
        shadow.tell();
    } else {
        // The program may load the interface later, and its calls may all miss this library.
        // SAFETY: a function that stays as long as this library does.
        unsafe { libc::atexit(ends) };
    }
}

extern "C" fn ends() {
    let _ = std::panic::catch_unwind(|| {
        if let Some(shadow) = Shadow::find().filter(Shadow::is_in_use) {
            shadow.tell();
        }
    });
}

fn is_named_by_preload(objects: &Objects, own: usize) -> bool {
    let file = objects.file(own).to_string_lossy();
    let preloads = xsched_proto::variables::text("LD_PRELOAD").unwrap_or_default();
    preloads.split([':', ' ']).any(|preload| preload == file)
}

/// Reports whether any object comes before this library, other than the program and the kernel's vDSO.
fn something_is_before_us() -> bool {
    /// Number of objects visited, and whether one of them counts.
    struct Seen {
        objects: usize,
        is_one: bool,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, seen: *mut c_void) -> c_int {
        // SAFETY: what dl_iterate_phdr promises, and what is passed below.
        let (info, seen) = unsafe { (&*info, &mut *seen.cast::<Seen>()) };
        let own = something_is_before_us as *const () as usize;
        // SAFETY: program headers of a loaded object.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let holds = |h: &libc::Elf64_Phdr| {
            let start = info.dlpi_addr as usize + h.p_vaddr as usize;
            h.p_type == libc::PT_LOAD && (start..start + h.p_memsz as usize).contains(&own)
        };
        if headers.iter().any(holds) {
            return 1;
        }
        // SAFETY: the loader's own string, unless it is null.
        let is_vdso = !info.dlpi_name.is_null()
            && unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes().starts_with(b"linux-vdso");
        seen.is_one |= seen.objects > 0 && !is_vdso;
        seen.objects += 1;
        c_int::from(seen.is_one)
    }
    let mut seen = Seen { objects: 0, is_one: false };
    // SAFETY: `visit` changes `seen` only, which outlives the call.
    unsafe { walk::objects(visit, (&raw mut seen).cast()) };
    seen.is_one
}
