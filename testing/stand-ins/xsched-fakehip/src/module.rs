//! Modules of device code and their functions.

use crate::code::Image;
use crate::kernel::Kernel;
use crate::memory;
use crate::registry::Registry;
use crate::result::{Error, Result};
use crate::runtime::{driver, given, lock, runtime};
use crate::stats;
use fakecuda::{In, Out, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, Mutex};

/// A module that a program loaded.
pub(crate) struct Module {
    pub(crate) handle: usize,
    image: Image,
    /// Names of its kernels; `None` if the image cannot be read.
    names: Option<BTreeSet<String>>,
    functions: Mutex<BTreeMap<String, usize>>,
    variables: Mutex<BTreeMap<String, (u64, usize)>>,
}

/// A kernel as launches name it. `kernel` is `None` for a name without code here.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) handle: usize,
    /// Handle of the module; 0 for a kernel registered by host address.
    pub(crate) module: usize,
    pub(crate) name: String,
    pub(crate) kernel: Option<Kernel>,
    /// Limit of dynamic shared memory for launches, in bytes. It is stored and reported, not enforced.
    pub(crate) most_shared: Arc<AtomicI32>,
}

static MODULES: LazyLock<Registry<Module>> = LazyLock::new(Registry::new);

/// Modules by handle.
pub(crate) fn modules() -> Result<&'static Registry<Module>> {
    runtime().map(|_| &*MODULES)
}

static FUNCTIONS: LazyLock<Registry<Function>> = LazyLock::new(Registry::new);

/// Functions by handle.
pub(crate) fn functions() -> Result<&'static Registry<Function>> {
    runtime().map(|_| &*FUNCTIONS)
}

/// Shared memory available to a block, in bytes.
pub(crate) const SHARED: c_int = 64 << 10;

impl Function {
    fn new(handle: usize, module: usize, name: String) -> Self {
        let kernel = Kernel::find(&name);
        Self { handle, module, name, kernel, most_shared: Arc::new(SHARED.into()) }
    }

    /// A kernel that was registered by host address, and belongs to no module.
    pub(crate) fn registered(name: String) -> Self {
        Self::new(0, 0, name)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.module == 0
    }
}

fn find(handle: usize) -> Result<Arc<Module>> {
    match modules()?.get(handle) {
        Some(module) => Ok(module),
        None => stats::wrong(&format!("module {handle:#x} does not exist"), Error::INVALID_HANDLE),
    }
}

/// The function of a handle. NULL is an invalid handle, and so is any handle that this copy did not return.
pub(crate) fn function(handle: usize) -> Result<Arc<Function>> {
    match functions()?.get(handle) {
        Some(function) => Ok(function),
        None if handle == 0 => Err(Error::INVALID_HANDLE),
        None => stats::wrong(&format!("function {handle:#x} does not exist"), Error::INVALID_HANDLE),
    }
}

fn add(image: Image) -> Result<usize> {
    let names = image.kernels();
    let mut handle = 0;
    modules()?.add(|made| {
        handle = made;
        Module { handle, image, names, functions: Mutex::default(), variables: Mutex::default() }
    });
    Ok(handle)
}

pub(crate) fn load_data(out: Out<usize>, image: *const c_void) -> Result<()> {
    let out = out.required()?;
    if image.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the program passes an image, which must stay in real runtimes, too.
    let image = unsafe { Image::at(image.cast()) }.ok_or(Error::INVALID_IMAGE)?;
    Ok(out.put(add(image)?)?)
}

pub(crate) fn load_data_ex(
    out: Out<usize>,
    image: *const c_void,
    _: c_uint,
    _: In<c_int>,
    _: In<*mut c_void>,
) -> Result<()> {
    load_data(out, image)
}

/// Loads a library: a module whose kernels belong to no device. Here both are loaded in the same way.
#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn library_load_data(
    out: Out<usize>,
    image: *const c_void,
    _: In<c_int>,
    _: In<*mut c_void>,
    options: c_uint,
    _: In<c_int>,
    _: In<*mut c_void>,
    _: c_uint,
) -> Result<()> {
    no_options(options)?;
    load_data(out, image)
}

#[allow(clippy::too_many_arguments)] // the runtime's
pub(crate) fn library_load(
    out: Out<usize>,
    path: Text,
    _: In<c_int>,
    _: In<*mut c_void>,
    options: c_uint,
    _: In<c_int>,
    _: In<*mut c_void>,
    _: c_uint,
) -> Result<()> {
    no_options(options)?;
    load(out, path)
}

/// Refuses compiler options: the code of a library is compiled already.
fn no_options(count: c_uint) -> Result<()> {
    if count == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// Returns the function of a kernel, whose handle is the same.
pub(crate) fn of_kernel(out: Out<usize>, kernel: usize) -> Result<()> {
    let out = out.required()?;
    Ok(out.put(function(kernel)?.handle)?)
}

pub(crate) fn library_of_kernel(out: Out<usize>, kernel: usize) -> Result<()> {
    let out = out.required()?;
    Ok(out.put(function(kernel)?.module)?)
}

pub(crate) fn load(out: Out<usize>, path: Text) -> Result<()> {
    let out = out.required()?;
    let mut bytes = std::fs::read(path.get()?).map_err(|_| Error::FILE_NOT_FOUND)?;
    // Enough zeros for a read of a header to end inside even a short file.
    bytes.extend([0; 64]);
    // SAFETY: leaked, so that it stays for ever.
    let image = unsafe { Image::at(bytes.leak().as_ptr()) }.ok_or(Error::INVALID_IMAGE)?;
    Ok(out.put(add(image)?)?)
}

/// Unloads a module once the device is idle, as its code may be running.
pub(crate) fn unload(handle: usize) -> Result<()> {
    let module = find(handle)?;
    driver()?.synchronize()?;
    modules()?.remove(handle);
    functions()?.remove_if(|function| function.module == handle);
    for (_, (address, _)) in std::mem::take(&mut *lock(&module.variables)) {
        memory::free(address)?;
    }
    Ok(())
}

pub(crate) fn get_function(out: Out<usize>, handle: usize, name: Text) -> Result<()> {
    let (out, module, name) = (out.required()?, find(handle)?, name.get()?);
    let there = module.names.as_ref().is_none_or(|names| names.contains(&name));
    if name.is_empty() || !there {
        return Err(Error::NOT_FOUND);
    }
    Ok(out.put(module.function(name)?)?)
}

impl Module {
    /// Handle of one of the module's kernels.
    fn function(&self, name: String) -> Result<usize> {
        let mut own = lock(&self.functions);
        if let Some(&known) = own.get(&name) {
            return Ok(known);
        }
        let mut handle = 0;
        functions()?.add(|made| {
            handle = made;
            Function::new(made, self.handle, name.clone())
        });
        own.insert(name, handle);
        Ok(handle)
    }
}

/// Stores the handles of the first `room` kernels of a library.
pub(crate) fn kernels(out: Out<usize>, room: c_uint, handle: usize) -> Result<()> {
    let (out, module) = (out.required()?, find(handle)?);
    let names = module.names.as_ref().ok_or(Error::NOT_SUPPORTED)?;
    let handles: Vec<usize> =
        names.iter().take(room as usize).map(|name| module.function(name.clone())).collect::<Result<_>>()?;
    out.list(handles);
    Ok(())
}

/// Names handed out as C strings, with their addresses. They live as long as the process.
static NAMES: Mutex<Vec<(String, usize)>> = Mutex::new(Vec::new());

/// Address of a name as a C string, which lives as long as the process.
pub(crate) fn name_address(name: &str) -> *const c_char {
    let mut names = lock(&NAMES);
    if let Some((_, address)) = names.iter().find(|(known, _)| known == name) {
        return std::ptr::with_exposed_provenance(*address);
    }
    let Ok(text) = std::ffi::CString::new(name) else { return std::ptr::null() };
    let address = text.into_raw().expose_provenance();
    names.push((name.into(), address));
    std::ptr::with_exposed_provenance(address)
}

/// hipKernelNameRef: name of a function, or null.
pub(crate) fn name_of_function(handle: usize) -> *const c_char {
    let function = functions().ok().and_then(|functions| functions.get(handle));
    function.map_or(std::ptr::null(), |function| name_address(&function.name))
}

/// Stores the name of a kernel, which lives as long as the process.
pub(crate) fn kernel_name(out: Out<*const c_char>, kernel: usize) -> Result<()> {
    let out = out.required()?;
    if kernel == 0 {
        return Err(Error::INVALID_VALUE);
    }
    function(kernel)?;
    Ok(out.put(name_of_function(kernel))?)
}

/// Offset and size of an argument in a packed buffer. They are not known for a kernel without code here.
pub(crate) fn kernel_parameter(kernel: usize, index: usize, offset: Out<usize>, size: Out<usize>) -> Result<()> {
    let offset = offset.required()?;
    if kernel == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let known = function(kernel).map_err(|_| Error::INVALID_DEVICE_FUNCTION)?.kernel.ok_or(Error::NOT_SUPPORTED)?;
    let place = known.offsets().zip(known.parameters()).nth(index);
    let (at, &bytes) = place.ok_or(Error::INVALID_VALUE)?;
    size.maybe(bytes);
    Ok(offset.put(at)?)
}

pub(crate) fn kernel_attribute(out: Out<c_int>, which: c_int, kernel: usize, device: c_int) -> Result<()> {
    let out = out.required()?;
    function(kernel)?;
    given(device)?;
    attribute(out, which, kernel)
}

pub(crate) fn set_kernel_attribute(which: c_int, value: c_int, kernel: usize, device: c_int) -> Result<()> {
    if kernel == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let function = function(kernel).map_err(|_| Error::INVALID_DEVICE_FUNCTION)?;
    given(device)?;
    match which {
        MOST_SHARED if (0..=SHARED).contains(&value) => function.most_shared.store(value, Relaxed),
        // A hint, which has no effect here.
        CARVEOUT => {}
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

/// HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT.
const MOST_SHARED: c_int = 8;
const CARVEOUT: c_int = 9;

pub(crate) fn function_count(out: Out<c_uint>, handle: usize) -> Result<()> {
    Ok(out.put(find(handle)?.names.as_ref().map_or(0, BTreeSet::len) as c_uint)?)
}

pub(crate) fn get_global(out: Out<u64>, size: Out<usize>, handle: usize, name: Text) -> Result<()> {
    let (module, name) = (find(handle)?, name.get()?);
    let mut variables = lock(&module.variables);
    let (address, bytes) = match variables.get(&name) {
        Some(&known) => known,
        None => {
            let (bytes, data) = module.image.variable(&name).ok_or(Error::NOT_FOUND)?;
            let made = (allocate(bytes, &data)?, bytes);
            variables.insert(name, made);
            made
        }
    };
    out.maybe(address);
    size.maybe(bytes);
    Ok(())
}

/// Allocates device memory of `bytes` bytes that begins with `data` and is zero behind it.
pub(crate) fn allocate(bytes: usize, data: &[u8]) -> Result<u64> {
    let mut address = 0;
    memory::alloc(Out::to(&mut address), bytes.max(1))?;
    driver()?.set_8(address, 0, bytes.max(1), 0)?;
    if !data.is_empty() {
        driver()?.copy_to_device(address, data.as_ptr().expose_provenance() as u64, data.len().min(bytes))?;
    }
    Ok(address)
}

/// `hipFuncGetAttribute`: 0 = threads in a block at most, 4 = registers; static shared, constant and local memory are
/// 0.
pub(crate) fn attribute(out: Out<c_int>, which: c_int, handle: usize) -> Result<()> {
    let function = function(handle)?;
    Ok(out.put(match which {
        0 => 1024,
        4 => 32,
        MOST_SHARED => function.most_shared.load(Relaxed),
        1..=9 => 0,
        _ => return Err(Error::INVALID_VALUE),
    })?)
}

pub(crate) fn blocks(threads: c_int) -> Result<c_int> {
    if (1..=1024).contains(&threads) { Ok(2560 / threads.max(64)) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn module_occupancy(out: Out<c_int>, handle: usize, threads: c_int, _: usize) -> Result<()> {
    function(handle)?;
    Ok(out.put(blocks(threads)?)?)
}

pub(crate) fn module_occupancy_with_flags(
    out: Out<c_int>,
    handle: usize,
    threads: c_int,
    shared: usize,
    _: c_uint,
) -> Result<()> {
    module_occupancy(out, handle, threads, shared)
}

pub(crate) fn module_best_block(
    grid: Out<c_int>,
    block: Out<c_int>,
    handle: usize,
    _: usize,
    limit: c_int,
) -> Result<()> {
    function(handle)?;
    best(grid, block, limit)
}

pub(crate) fn module_best_block_with_flags(
    grid: Out<c_int>,
    block: Out<c_int>,
    handle: usize,
    shared: usize,
    limit: c_int,
    _: c_uint,
) -> Result<()> {
    module_best_block(grid, block, handle, shared, limit)
}

pub(crate) fn best(grid: Out<c_int>, block: Out<c_int>, limit: c_int) -> Result<()> {
    grid.put(60)?;
    Ok(block.put(if limit > 0 { limit.min(256) } else { 256 })?)
}
