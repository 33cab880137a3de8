//! The kernels that really run, found by plain or mangled name, whatever the contents of the program's code object.

use crate::result::{Error, Result};
use crate::runtime::{Device, driver};
use std::ffi::CString;

/// PTX of the same kernels; the built-in driver reads only the names. Each kernel is correct for any grid and block.
const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");

macro_rules! kernels {
    ($($(#[$doc:meta])* $variant:ident = $name:literal [$($size:literal),*];)*) => {
        /// The kernels available. Arguments are laid out as in C, with their natural alignment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kernel {
            $($(#[$doc])* $variant,)*
        }

        impl Kernel {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Sizes of its arguments, in bytes.
            pub(crate) fn parameters(self) -> &'static [usize] {
                match self {
                    $(Self::$variant => &[$($size),*],)*
                }
            }
        }
    };
}

kernels! {
    /// `empty()`: does nothing.
    Empty = "empty" [];
    /// `axpy(unsigned n, float a, float *x, float *y)`: `y[i] += a * x[i]`.
    Axpy = "axpy" [4, 4, 8, 8];
    /// `fill(unsigned n, float v, float *p)`: `p[i] = v`.
    Fill = "fill" [4, 4, 8];
    /// `reduce(unsigned n, float *in, float *out)`: `*out` = the sum of `in[i]`.
    Reduce = "reduce" [4, 8, 8];
    /// `copy(unsigned n, float *in, float *out)`: `out[i] = in[i]`.
    Copy = "copy" [4, 8, 8];
    /// `gemm(unsigned m, unsigned n, unsigned k, float *a, float *b, float *c)`: `c[m][n] = a[m][k] * b[k][n]`.
    Gemm = "gemm" [4, 4, 4, 8, 8, 8];
    /// `conv2d(unsigned h, unsigned w, unsigned kh, unsigned kw, float *in, float *filter, float *out)`: the
    /// correlation, where the filter fits.
    Conv2d = "conv2d" [4, 4, 4, 4, 8, 8, 8];
    /// `spin(unsigned long long ns)`: keeps the device busy for `ns` nanoseconds.
    Spin = "spin" [8];
    /// `stamp(unsigned long long *p)`: `*p` = device time in ns.
    Stamp = "stamp" [8];
    /// `crash()`: accesses memory that does not exist.
    Crash = "crash" [];
}

impl Kernel {
    /// Finds a kernel by name: `axpy`, or `_Z4axpyjfPfS_`.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let plain = plain(name);
        Self::ALL.iter().copied().find(|kernel| kernel.name() == plain)
    }

    /// Offsets of its arguments in a packed buffer, in bytes.
    pub(crate) fn offsets(self) -> impl Iterator<Item = usize> {
        let mut end = 0;
        self.parameters().iter().map(move |&size: &usize| {
            let start = usize::next_multiple_of(end, size);
            end = start + size;
            start
        })
    }

    /// Bytes of a packed buffer with all its arguments.
    pub(crate) fn packed_bytes(self) -> usize {
        self.offsets().zip(self.parameters()).map(|(offset, size)| offset + size).last().unwrap_or(0)
    }
}

/// Name of a function of the global namespace, without its mangling.
fn plain(name: &str) -> &str {
    let Some(rest) = name.strip_prefix("_Z") else { return name };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length: Option<usize> = rest[..digits].parse().ok();
    length.and_then(|length| rest.get(digits..digits + length)).unwrap_or(name)
}

/// Loads the kernels into the driver's current context, and returns the driver's functions.
fn load() -> Result<Vec<usize>> {
    let driver = driver()?;
    let mut module = 0;
    driver.module_load(&raw mut module, PTX.as_ptr().cast())?;
    let function = |kernel: &Kernel| {
        let name = CString::new(kernel.name()).map_err(|_| Error::UNKNOWN)?;
        let mut function = 0;
        driver.module_function(&raw mut function, module, name.as_ptr())?;
        Ok(function)
    };
    Kernel::ALL.iter().map(function).collect()
}

/// The driver's function for a kernel. The device's context must be the driver's current one.
pub(crate) fn on(device: &Device, kernel: Kernel) -> Result<usize> {
    let context = device.context()?;
    let functions = context.kernels.get_or_init(load);
    functions.as_ref().map(|functions| functions[kernel as usize]).map_err(|&error| error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_plain_and_mangled_names() {
        assert_eq!(Kernel::find("axpy"), Some(Kernel::Axpy));
        assert_eq!(Kernel::find("_Z4axpyjfPfS_"), Some(Kernel::Axpy));
        assert_eq!(Kernel::find("_Z4axpyd"), Some(Kernel::Axpy));
        assert_eq!(Kernel::find("_Z40axpy"), None);
        assert_eq!(Kernel::find("_ZN4axpyE"), None, "not in a namespace");
        assert_eq!(Kernel::find("saxpy"), None);
    }

    #[test]
    fn arguments_lie_where_a_compiler_puts_them() {
        assert_eq!(Kernel::Axpy.offsets().collect::<Vec<_>>(), [0, 4, 8, 16]);
        assert_eq!(Kernel::Gemm.offsets().collect::<Vec<_>>(), [0, 4, 8, 16, 24, 32]);
        assert_eq!((Kernel::Gemm.packed_bytes(), Kernel::Empty.packed_bytes()), (40, 0));
    }

    #[test]
    fn the_ptx_has_all_kernels() {
        for kernel in Kernel::ALL {
            assert!(PTX.contains(&format!(".entry {}(", kernel.name())), "{kernel:?}");
        }
    }
}
