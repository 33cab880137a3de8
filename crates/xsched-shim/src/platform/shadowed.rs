//! What is preloaded before this library and has functions of the same names: the loader binds the program to those, and
//! their calls never come by here. That is told, since nothing else would show it.
//!
//! It is looked for when this library is loaded: a program all of whose calls go elsewhere never makes a first device call
//! here. Where nothing stands between the program and this library, as usual, that look is all it costs.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicBool;

use xsched_agent::{refuse, say_once};
use xsched_proto::settings::{Log, Settings};

use crate::enabled;
use crate::interpose::objects::Objects;
use crate::interpose::{resolve, walk};

/// After the C library's own constructors, before the program's.
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

/// A library before this one.
struct Shadow {
    /// One of the functions that it answers.
    function: &'static CStr,
    file: String,
    is_needed: bool,
}

impl Shadow {
    /// The one that answers a function which launches, if there is one and this library is preloaded. (A program that is
    /// linked with it asks for the C API, and no call of a vendor's interface comes by.)
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
            // The program itself is in front of all.
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

    /// Whether the program has the vendor's interface at all: most programs that a shell starts have not.
    fn is_in_use(&self) -> bool {
        self.is_needed || resolve::is_behind_us(self.function)
    }

    fn tell(&self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        say_once(&SAID, Settings::of_process().log, Log::Error, &self.line());
    }
}

/// As a line; none = there is none.
pub(crate) fn line() -> Option<String> {
    something_is_before_us().then(Shadow::find)?.map(|shadow| shadow.line())
}

/// This library was loaded behind another one.
#[cold]
fn loaded() {
    let Some(shadow) = Shadow::find() else { return };
    if Settings::of_process().required {
        refuse(&shadow.line());
    }
    if shadow.is_in_use() {
        shadow.tell();
    } else {
        // It may load the interface later, and nothing of that need come by.
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

/// Whether any object but the program and the kernel's stands before this library.
fn something_is_before_us() -> bool {
    /// How many were seen, and whether one of them counts.
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
