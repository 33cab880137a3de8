//! Modules, libraries and functions. A module is PTX text; its kernels are found by name among those of [`Kernel`].

use crate::context::{self, Ctx, current};
use crate::edge::{In, Out, Text};
use crate::memory;
use crate::process::known;
use crate::result::{Error, Result};
use crate::sequence::potentially_unsafe;
use crate::slab::Slab;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::lock;

/// The available kernels. Arguments are as in C, with their natural alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `empty()`: no effect.
    Empty,
    /// `axpy(unsigned n, float a, float *x, float *y)`: `y[i] += a * x[i]`.
    Axpy,
    /// `fill(unsigned n, float v, float *p)`: `p[i] = v`.
    Fill,
    /// `reduce(unsigned n, float *in, float *out)`: `*out` = the sum of `in[i]`.
    Reduce,
    /// `spin(unsigned long long ns)`: keeps the device busy for this long.
    Spin,
    /// `stamp(unsigned long long *p)`: `*p` = device time in ns.
    Stamp,
    /// `copy(unsigned n, float *in, float *out)`: `out[i] = in[i]`.
    Copy,
    /// `gemm(unsigned m, unsigned n, unsigned k, float *a, float *b, float *c)`: `c[m][n] = a[m][k] * b[k][n]`.
    Gemm,
    /// `conv2d(unsigned h, unsigned w, unsigned kh, unsigned kw, float *in, float *filter, float *out)`: the
    /// correlation, where the filter fits.
    Conv2d,
    /// `crash()`: accesses invalid memory.
    Crash,
    /// `assert_false()`: a device-side assertion fails.
    AssertFalse,
}

impl Kernel {
    fn find(name: &str) -> Option<Self> {
        Some(match name {
            "empty" => Self::Empty,
            "axpy" => Self::Axpy,
            "fill" => Self::Fill,
            "reduce" => Self::Reduce,
            "spin" => Self::Spin,
            "stamp" => Self::Stamp,
            "copy" => Self::Copy,
            "gemm" => Self::Gemm,
            "conv2d" => Self::Conv2d,
            "crash" => Self::Crash,
            "assert_false" => Self::AssertFalse,
            _ => return None,
        })
    }

    /// Sizes of its arguments, in bytes.
    pub(crate) fn parameters(self) -> &'static [usize] {
        match self {
            Self::Empty | Self::Crash | Self::AssertFalse => &[],
            Self::Axpy => &[4, 4, 8, 8],
            Self::Fill => &[4, 4, 8],
            Self::Reduce | Self::Copy => &[4, 8, 8],
            Self::Gemm => &[4, 4, 4, 8, 8, 8],
            Self::Conv2d => &[4, 4, 4, 4, 8, 8, 8],
            Self::Spin | Self::Stamp => &[8],
        }
    }

    /// Offsets of its arguments in a packed buffer, in bytes.
    pub(crate) fn offsets(self) -> Vec<usize> {
        let mut end = 0;
        let place = |&size: &usize| {
            let start = usize::next_multiple_of(end, size);
            end = start + size;
            start
        };
        self.parameters().iter().map(place).collect()
    }
}

/// A module of a context, or a library of the process if `ctx` is `None`.
pub(crate) struct Module {
    handle: usize,
    pub(crate) ctx: Option<Weak<Ctx>>,
    /// Memory of the device that it takes, in bytes.
    own_bytes: u64,
    kernels: BTreeMap<String, Kernel>,
    /// Managed variables: sizes in bytes, and addresses once one was asked for.
    managed: BTreeMap<String, (usize, Mutex<Option<u64>>)>,
    /// Handles of functions by kernel and, for a library's function in a context, context.
    functions: Mutex<BTreeMap<(String, usize), usize>>,
}

/// A `CUfunction`, or a library's `CUkernel` if `ctx` is `None`.
pub(crate) struct Function {
    pub(crate) handle: usize,
    module: usize,
    pub(crate) ctx: Option<Weak<Ctx>>,
    pub(crate) kernel: Kernel,
    name: CString,
}

/// Modules and functions by handle.
pub(crate) static MODULES: Slab<Module> = Slab::new(0x54);
pub(crate) static FUNCTIONS: Slab<Function> = Slab::new(0x55);

/// Names after `.entry`.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(".entry").skip(1).filter_map(|rest| {
        let rest = rest.trim_start();
        rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').next().filter(|name| !name.is_empty())
    })
}

/// Names and sizes in bytes of managed variables: `.attribute(.managed) .align 8 .b8 NAME[BYTES];`
fn managed(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.split(".attribute(.managed)").skip(1).filter_map(|rest| {
        let (name, bytes) = rest.split_once(".b8")?.1.split_once('[')?;
        Some((name.trim(), bytes.split_once(']')?.0.parse().ok()?))
    })
}

/// Address and size of a module's managed variable, the only ones that are known.
pub(crate) fn variable(out: Out<u64>, size: Out<usize>, module: usize, name: Text) -> Result<()> {
    let (module, name) = (find_module(module)?, name.get()?);
    let (bytes, place) = module.managed.get(&name).ok_or(Error::NOT_FOUND)?;
    let mut place = lock(place);
    let at = match *place {
        Some(at) => at,
        None => {
            let mut at = 0;
            memory::alloc_managed(Out::to(&mut at), *bytes, 1)?;
            *place.insert(at)
        }
    };
    out.maybe(at);
    size.maybe(*bytes);
    Ok(())
}

/// Creates a module from its image: text that ends with a NUL.
fn load(image: Text, ctx: Option<Weak<Ctx>>) -> Result<Arc<Module>> {
    let text = image.get()?;
    if !text.contains(".version") {
        return Err(Error::INVALID_IMAGE);
    }
    let kernels = entries(&text).filter_map(|name| Some((name.to_string(), Kernel::find(name)?))).collect();
    let managed = managed(&text).map(|(name, bytes)| (name.to_string(), (bytes, Mutex::default()))).collect();
    let functions = Mutex::default();
    let own_bytes = if let Some(ctx) = ctx.as_ref().and_then(Weak::upgrade) { own_bytes(&ctx)? } else { 0 };
    Ok(MODULES.add(|handle| Arc::new(Module { handle, ctx, own_bytes, kernels, managed, functions })))
}

/// Takes the memory that a module itself has of its device, in bytes: `FAKECUDA_MODULE_MIB`.
fn own_bytes(ctx: &Ctx) -> Result<u64> {
    let bytes = context::mib_of("FAKECUDA_MODULE_MIB") << 20;
    if bytes > 0 {
        ctx.sim.take(bytes)?;
    }
    Ok(bytes)
}

fn find_module(handle: usize) -> Result<Arc<Module>> {
    known("module", handle, MODULES.get(handle))
}

/// The function of a handle, which may also be that of a library's kernel.
pub(crate) fn find_function(handle: usize) -> Result<Arc<Function>> {
    known("function", handle, FUNCTIONS.get(handle))
}

impl Module {
    fn function(&self, name: &str, ctx: Option<&Arc<Ctx>>) -> Result<usize> {
        let kernel = *self.kernels.get(name).ok_or(Error::NOT_FOUND)?;
        let key = (name.to_string(), ctx.map_or(0, |ctx| ctx.handle));
        let mut functions = lock(&self.functions);
        // Functions end with their context, and a handle of a context may have been reused.
        if let Some(&handle) = functions.get(&key)
            && FUNCTIONS.get(handle).is_some_and(|f| f.module == self.handle)
        {
            return Ok(handle);
        }
        let (module, ctx) = (self.handle, ctx.map(Arc::downgrade));
        let name = CString::new(name).map_err(|_| Error::NOT_FOUND)?;
        let made = FUNCTIONS.add(|handle| Arc::new(Function { handle, module, ctx, kernel, name }));
        functions.insert(key, made.handle);
        Ok(made.handle)
    }
}

pub(crate) fn module_load_data(out: Out<usize>, image: Text) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    potentially_unsafe()?;
    out.put(load(image, Some(Arc::downgrade(&ctx)))?.handle)
}

pub(crate) fn module_load_data_ex(
    out: Out<usize>,
    image: Text,
    _: c_uint,
    _: In<c_int>,
    _: In<*mut c_void>,
) -> Result<()> {
    module_load_data(out, image)
}

pub(crate) fn module_load(out: Out<usize>, path: Text) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    potentially_unsafe()?;
    let text = std::fs::read_to_string(path.get()?).map_err(|_| Error(301))?;
    let text = CString::new(text).map_err(|_| Error::INVALID_IMAGE)?;
    out.put(load(Text::from_c(&text), Some(Arc::downgrade(&ctx)))?.handle)
}

pub(crate) fn module_unload(handle: usize) -> Result<()> {
    current()?;
    potentially_unsafe()?;
    unload(handle)
}

fn unload(handle: usize) -> Result<()> {
    let module = known("module", handle, MODULES.remove(handle))?;
    if let Some(ctx) = module.ctx.as_ref().and_then(Weak::upgrade).filter(|_| module.own_bytes > 0) {
        ctx.sim.give(module.own_bytes)?;
    }
    FUNCTIONS.remove_if(|function| function.module == handle);
    Ok(())
}

pub(crate) fn module_get_function(out: Out<usize>, module: usize, name: Text) -> Result<()> {
    let (out, ctx) = (out.required()?, current()?);
    out.put(find_module(module)?.function(&name.get()?, Some(&ctx))?)
}

pub(crate) fn module_function_count(out: Out<c_uint>, module: usize) -> Result<()> {
    out.put(find_module(module)?.kernels.len() as c_uint)
}

pub(crate) fn module_functions(out: Out<usize>, room: c_uint, module: usize) -> Result<()> {
    let (module, ctx) = (find_module(module)?, current()?);
    let handles: Result<Vec<usize>> =
        module.kernels.keys().take(room as usize).map(|name| module.function(name, Some(&ctx))).collect();
    out.required()?.list(handles?);
    Ok(())
}

/// CU_MODULE_EAGER_LOADING.
pub(crate) fn loading_mode(out: Out<c_int>) -> Result<()> {
    out.put(1)
}

#[allow(clippy::too_many_arguments)] // the driver's
pub(crate) fn library_load_data(
    out: Out<usize>,
    image: Text,
    _: In<c_int>,
    _: In<*mut c_void>,
    _: c_uint,
    _: In<c_int>,
    _: In<*mut c_void>,
    _: c_uint,
) -> Result<()> {
    out.required()?.put(load(image, None)?.handle)
}

pub(crate) fn library_unload(handle: usize) -> Result<()> {
    potentially_unsafe()?;
    unload(handle)
}

pub(crate) fn library_get_kernel(out: Out<usize>, library: usize, name: Text) -> Result<()> {
    out.required()?.put(find_module(library)?.function(&name.get()?, None)?)
}

pub(crate) fn library_kernel_count(out: Out<c_uint>, library: usize) -> Result<()> {
    module_function_count(out, library)
}

pub(crate) fn library_kernels(out: Out<usize>, room: c_uint, library: usize) -> Result<()> {
    let library = find_module(library)?;
    let handles: Result<Vec<usize>> =
        library.kernels.keys().take(room as usize).map(|name| library.function(name, None)).collect();
    out.required()?.list(handles?);
    Ok(())
}

/// Module of a library in a context: the library itself.
pub(crate) fn library_get_module(out: Out<usize>, library: usize) -> Result<()> {
    current()?;
    out.put(find_module(library)?.handle)
}

pub(crate) fn kernel_get_function(out: Out<usize>, kernel: usize) -> Result<()> {
    let (out, ctx, kernel) = (out.required()?, current()?, find_function(kernel)?);
    let name = kernel.name.to_string_lossy();
    out.put(find_module(kernel.module)?.function(&name, Some(&ctx))?)
}

/// Handles in the parameters of a graph's kernel node: the function in this context and, if a library's kernel was
/// launched, the kernel.
pub(crate) fn function_and_kernel(handle: usize) -> Result<(usize, usize)> {
    let launched = find_function(handle)?;
    if launched.ctx.is_some() {
        return Ok((handle, 0));
    }
    let name = launched.name.to_string_lossy();
    Ok((find_module(launched.module)?.function(&name, Some(&current()?))?, handle))
}

pub(crate) fn get_module(out: Out<usize>, function: usize) -> Result<()> {
    out.put(find_function(function)?.module)
}

/// Name of a function. The text lives as long as the function.
pub(crate) fn get_name(out: Out<*const c_char>, function: usize) -> Result<()> {
    out.put(find_function(function)?.name.as_ptr())
}

pub(crate) fn param_count(function: usize, out: Out<usize>) -> Result<()> {
    out.put(find_function(function)?.kernel.parameters().len())
}

pub(crate) fn param_info(function: usize, index: usize, offset: Out<usize>, size: Out<usize>) -> Result<()> {
    let kernel = find_function(function)?.kernel;
    offset.put(*kernel.offsets().get(index).ok_or(Error::INVALID_VALUE)?)?;
    size.maybe(kernel.parameters()[index]);
    Ok(())
}

fn attribute(out: Out<c_int>, which: c_int) -> Result<()> {
    out.put(match which {
        0 => 1024,  // MAX_THREADS_PER_BLOCK
        1..=3 => 0, // SHARED_SIZE_BYTES, CONST_SIZE_BYTES, LOCAL_SIZE_BYTES
        4 => 16,    // NUM_REGS
        5 | 6 => 90,
        7 => 0,
        8 => 48 << 10,
        9 => -1,
        10..=15 => 0,
        _ => return Err(Error::INVALID_VALUE),
    })
}

pub(crate) fn function_attribute(out: Out<c_int>, which: c_int, function: usize) -> Result<()> {
    find_function(function)?;
    attribute(out, which)
}

pub(crate) fn kernel_attribute(out: Out<c_int>, which: c_int, kernel: usize, _: c_int) -> Result<()> {
    find_function(kernel)?;
    attribute(out, which)
}

pub(crate) fn set_attribute(function: usize, which: c_int, _: c_int) -> Result<()> {
    find_function(function)?;
    // MAX_DYNAMIC_SHARED_SIZE_BYTES and the attributes after it can be set.
    if (8..=15).contains(&which) { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn set_cache_config(function: usize, _: c_int) -> Result<()> {
    find_function(function).map(drop)
}

/// CU_FUNCTION_LOADING_STATE_LOADED.
pub(crate) fn is_loaded(out: Out<c_int>, function: usize) -> Result<()> {
    find_function(function)?;
    out.put(1)
}

pub(crate) fn function_load(function: usize) -> Result<()> {
    find_function(function).map(drop)
}

pub(crate) fn occupancy(out: Out<c_int>, function: usize, block: c_int, _: usize) -> Result<()> {
    find_function(function)?;
    if !(1..=1024).contains(&block) {
        return Err(Error::INVALID_VALUE);
    }
    out.put(2048 / block)
}

pub(crate) fn occupancy_with_flags(
    out: Out<c_int>,
    function: usize,
    block: c_int,
    shared: usize,
    _: c_uint,
) -> Result<()> {
    occupancy(out, function, block, shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_a_text_are_found() {
        let text = ".version 6.0\n.visible .entry axpy(\n.param .u32 n)\n{ ret; }\n.entry  spin ( .param .u64 ns ) {}";
        assert_eq!(entries(text).collect::<Vec<_>>(), ["axpy", "spin"]);
        assert_eq!(entries("no code").count(), 0);
    }

    #[test]
    fn arguments_are_aligned() {
        assert_eq!(Kernel::Axpy.offsets(), [0, 4, 8, 16]);
        assert_eq!(Kernel::Reduce.offsets(), [0, 8, 16]);
    }
}
