//! Registrations of compiled programs before `main`: code objects, kernels by host address, and variables; and the
//! functions that look these up.

use crate::code::{Image, WRAPPER};
use crate::module::{self, Function, SHARED, functions};
use crate::result::{Error, Result};
use crate::runtime::{current, driver, lock};
use crate::stats::{self, COUNTERS};
use fakecuda::{Out, Text};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Arc, LazyLock, RwLock};

/// All registrations in this copy.
#[derive(Default)]
struct Registered {
    /// Addresses of images, by the handle that their registration returned.
    binaries: HashMap<usize, usize>,
    /// Code object and function of each kernel, by host address.
    functions: HashMap<usize, (usize, Arc<Function>)>,
    variables: HashMap<usize, Variable>,
}

#[derive(Clone)]
struct Variable {
    binary: usize,
    name: String,
    size: usize,
    /// For managed variables, the address at which the program keeps the pointer.
    managed: Option<u64>,
}

static REGISTERED: LazyLock<RwLock<Registered>> = LazyLock::new(RwLock::default);

fn read() -> std::sync::RwLockReadGuard<'static, Registered> {
    REGISTERED.read().unwrap_or_else(|e| e.into_inner())
}

fn write() -> std::sync::RwLockWriteGuard<'static, Registered> {
    REGISTERED.write().unwrap_or_else(|e| e.into_inner())
}

/// The function of a host address, which must be registered with this copy.
pub(crate) fn function(host: usize) -> Result<Arc<Function>> {
    match read().functions.get(&host) {
        Some((_, function)) => Ok(function.clone()),
        None => stats::wrong(&format!("host function {host:#x} is not registered"), Error::INVALID_DEVICE_FUNCTION),
    }
}

/// `__CudaFatBinaryWrapper`: magic, version, image, unused.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wrapper {
    magic: u32,
    version: u32,
    binary: usize,
    unused: usize,
}

/// `__hipRegisterFatBinary`: returns a handle, or NULL if the argument is no wrapper.
pub(crate) fn fat_binary(wrapper: *const Wrapper) -> *mut c_void {
    if wrapper.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the program's constructor passes its own wrapper.
    let wrapper = unsafe { wrapper.read() };
    if wrapper.magic != WRAPPER || wrapper.version != 1 {
        stats::misuse(&format!("no fat binary: magic {:#x}, version {}", wrapper.magic, wrapper.version));
        return std::ptr::null_mut();
    }
    let handle = std::ptr::from_mut(Box::leak(Box::new([0_usize; 2])));
    write().binaries.insert(handle.expose_provenance(), wrapper.binary);
    handle.cast()
}

/// Removes a code object with its kernels and variables, and waits for the device, which may be running its code.
pub(crate) fn unregister(binary: usize) {
    let mut registered = write();
    if registered.binaries.remove(&binary).is_none() {
        stats::misuse(&format!("fat binary {binary:#x} is not registered"));
    }
    registered.functions.retain(|_, (owner, _)| *owner != binary);
    registered.variables.retain(|_, variable| variable.binary != binary);
    drop(registered);
    // A program that has not used a device must not initialise one at its end.
    if crate::runtime::is_up() && current().is_ok_and(crate::runtime::Device::is_active) {
        let _ = crate::runtime::enter().and_then(|()| driver()?.synchronize());
    }
}

pub(crate) fn register_function(binary: usize, host: usize, name: Text) {
    let mut registered = write();
    if !registered.binaries.contains_key(&binary) {
        stats::misuse(&format!("kernel {host:#x} of fat binary {binary:#x}, which is not registered"));
        return;
    }
    let Ok(name) = name.get() else { return };
    if registered.functions.contains_key(&host) {
        return;
    }
    stats::add(&COUNTERS.registered);
    let function = Arc::new(Function::registered(name));
    registered.functions.insert(host, (binary, function));
}

pub(crate) fn register_variable(binary: usize, host: usize, name: Text, size: usize) {
    let Ok(name) = name.get() else { return };
    write().variables.insert(host, Variable { binary, name, size, managed: None });
}

/// Registers a managed variable. It is allocated, and the program's pointer set, at once, which creates the device's
/// context.
pub(crate) fn register_managed(binary: usize, pointer: *mut u64, init: *const c_void, name: Text, size: usize) {
    let Ok(name) = name.get() else { return };
    let mut address = 0;
    let made = crate::runtime::enter().and_then(|()| crate::memory::alloc_managed(Out::to(&mut address), size, 1));
    if made.is_err() || pointer.is_null() {
        return;
    }
    // SAFETY: the program's pointer, its initial value of `size` bytes, and as many that the host may write.
    unsafe {
        if !init.is_null() {
            std::ptr::copy_nonoverlapping(
                init.cast::<u8>(),
                std::ptr::with_exposed_provenance_mut::<u8>(address as usize),
                size,
            );
        }
        pointer.write(address);
    }
    let variable = Variable { binary, name, size, managed: Some(address) };
    write().variables.insert(pointer.expose_provenance(), variable);
}

/// Address and size of a variable on this thread's device, by the host address that it was registered with.
pub(crate) fn variable(host: usize) -> Result<(u64, usize)> {
    let registered = read();
    let Some(variable) = registered.variables.get(&host) else {
        drop(registered);
        return stats::wrong(&format!("symbol {host:#x} is not registered"), Error::INVALID_SYMBOL);
    };
    if let Some(address) = variable.managed {
        return Ok((address, variable.size));
    }
    let (variable, image) = (variable.clone(), registered.binaries.get(&variable.binary).copied().unwrap_or(0));
    drop(registered);
    let context = current()?.context()?;
    let mut variables = lock(&context.variables);
    if let Some(&address) = variables.get(&host) {
        return Ok((address, variable.size));
    }
    // SAFETY: the image of a registered binary stays until it is unregistered.
    let image = unsafe { Image::at(std::ptr::with_exposed_provenance(image)) };
    let data = image.and_then(|image| image.variable(&variable.name)).map(|(_, data)| data).unwrap_or_default();
    let address = module::allocate(variable.size, &data)?;
    variables.insert(host, address);
    Ok((address, variable.size))
}

pub(crate) fn symbol_address(out: Out<u64>, host: usize) -> Result<()> {
    Ok(out.put(variable(host)?.0)?)
}

pub(crate) fn symbol_size(out: Out<usize>, host: usize) -> Result<()> {
    Ok(out.put(variable(host)?.1)?)
}

/// Grid, block, shared memory (bytes) and stream of a launch by `<<<…>>>`.
pub(crate) type Configuration = (Dim3, Dim3, usize, usize);

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: c_uint,
    pub(crate) y: c_uint,
    pub(crate) z: c_uint,
}

type Kept<T> = ManuallyDrop<RefCell<Vec<T>>>;

thread_local! {
    // Never dropped, since exit handlers launch kernels, too.
    static CONFIGURATIONS: Kept<Configuration> = const { Kept::new(RefCell::new(Vec::new())) };
    /// Arguments passed one by one (hipSetupArgument), for hipLaunchByPtr.
    static ARGUMENTS: Kept<u8> = const { Kept::new(RefCell::new(Vec::new())) };
}

pub(crate) fn push(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> Result<()> {
    CONFIGURATIONS.with(|stack| stack.borrow_mut().push((grid, block, shared, stream)));
    Ok(())
}

pub(crate) fn pop_configuration() -> Result<Configuration> {
    CONFIGURATIONS.with(|stack| stack.borrow_mut().pop()).ok_or(Error::MISSING_CONFIGURATION)
}

pub(crate) fn pop(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<usize>) -> Result<()> {
    let (g, b, bytes, handle) = pop_configuration()?;
    grid.put(g)?;
    block.put(b)?;
    shared.put(bytes)?;
    Ok(stream.put(handle)?)
}

pub(crate) fn setup_argument(value: *const c_void, size: usize, offset: usize) -> Result<()> {
    if value.is_null() || size == 0 {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the program passes an argument of this size.
    let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
    ARGUMENTS.with(|packed| {
        let mut packed = packed.borrow_mut();
        if packed.len() < offset + size {
            packed.resize(offset + size, 0);
        }
        packed[offset..offset + size].copy_from_slice(bytes);
    });
    Ok(())
}

pub(crate) fn take_arguments() -> Vec<u8> {
    ARGUMENTS.with(|packed| packed.take())
}

/// hipKernelNameRefByPtr.
pub(crate) fn name_of_host(host: usize) -> *const c_char {
    read().functions.get(&host).map_or(std::ptr::null(), |(_, function)| module::name_address(&function.name))
}

/// Returns the handle of the function that belongs to a host address.
pub(crate) fn by_symbol(out: Out<usize>, host: usize) -> Result<()> {
    let (out, registered) = (out.required()?, function(host)?);
    let functions = functions()?;
    // A module's function has a handle of its own, even under the same name; a registered function has module 0.
    if let Some(known) = functions.find(|f| f.is_registered() && f.name == registered.name) {
        return Ok(out.put(known.handle)?);
    }
    let made = functions.add(|handle| Function { handle, ..(*registered).clone() });
    Ok(out.put(made.handle)?)
}

/// `hipFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes {
    binary_version: c_int,
    cache_mode: c_int,
    constants: usize,
    locals: usize,
    most_dynamic_shared: c_int,
    most_threads: c_int,
    registers: c_int,
    carveout: c_int,
    ptx_version: c_int,
    shared: usize,
}

pub(crate) fn attributes(out: Out<Attributes>, host: usize) -> Result<()> {
    function(host)?;
    let all = Attributes { most_dynamic_shared: SHARED, most_threads: 1024, registers: 32, ..Attributes::default() };
    Ok(out.put(all)?)
}

pub(crate) fn set_attribute(host: usize, _: c_int, _: c_int) -> Result<()> {
    function(host).map(drop)
}

pub(crate) fn set_config(host: usize, _: c_int) -> Result<()> {
    function(host).map(drop)
}

pub(crate) fn occupancy(out: Out<c_int>, host: usize, threads: c_int, _: usize) -> Result<()> {
    function(host)?;
    Ok(out.put(module::blocks(threads)?)?)
}

pub(crate) fn occupancy_with_flags(out: Out<c_int>, host: usize, threads: c_int, s: usize, _: c_uint) -> Result<()> {
    occupancy(out, host, threads, s)
}

pub(crate) fn best_block(grid: Out<c_int>, block: Out<c_int>, host: usize, _: usize, limit: c_int) -> Result<()> {
    function(host)?;
    module::best(grid, block, limit)
}
