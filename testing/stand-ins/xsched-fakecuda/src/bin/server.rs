//! A fake `nvidia-cuda-mps-server`. Like NVIDIA's, it loads the driver, which does all the work.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Candidate paths of the driver: beside this program under its usual name or where cargo puts it, else the loader's
/// search.
fn places() -> Vec<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = |name: &str| own.with_file_name(name);
    let built = ["libcuda.so.1", "deps/libfakecuda.so", "libfakecuda.so"].map(beside);
    built.into_iter().filter(|path| path.exists()).chain([Path::new("libcuda.so.1").to_owned()]).collect()
}

fn driver() -> Result<extern "C" fn() -> c_int, String> {
    let path = places().remove(0);
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte")?;
    // SAFETY: a C string; the constructors of a driver may be run by dlopen.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        // SAFETY: dlerror returns a text right after a failed call.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(why.to_string_lossy().into_owned());
    }
    // SAFETY: the library is loaded, and never unloaded.
    let serve = unsafe { libc::dlsym(library, c"fakeMpsServe".as_ptr()) };
    if serve.is_null() {
        return Err(format!("{} is not the software driver", path.display()));
    }
    // SAFETY: the software driver has this function, of this type.
    Ok(unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> c_int>(serve) })
}

fn main() {
    let status = match driver() {
        Ok(serve) => serve(),
        Err(why) => {
            eprintln!("nvidia-cuda-mps-server: {why}");
            1
        }
    };
    std::process::exit(status);
}
