//! Parameters of graph nodes, which are kept here because the driver does not return them in HIP's form.

use crate::arguments::{Arguments, Shape};
use crate::kernel::Kernel;
use crate::register::Dim3;
use crate::volume::Copy3d;
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// hipGraphNodeType, which has the driver's numbers.
pub(crate) const KERNEL: c_int = 0;
pub(crate) const COPY: c_int = 1;
pub(crate) const SET: c_int = 2;

/// Parameters of a node, by its kind.
#[derive(Clone)]
pub(crate) enum Note {
    Kernel(Arc<Launch>),
    Copy(Copy3d),
    Set(SetParams),
    /// Commands of a child graph.
    Child(Work),
}

/// Numbers of commands that a launch of a graph submits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) kernels: u64,
    /// Number of `kernels` without code here.
    pub(crate) unknown: u64,
    pub(crate) copies: u64,
    pub(crate) sets: u64,
}

impl Work {
    pub(crate) fn add(&mut self, other: Self) {
        self.kernels += other.kernels;
        self.unknown += other.unknown;
        self.copies += other.copies;
        self.sets += other.sets;
    }

    pub(crate) fn kernel(has_code: bool) -> Self {
        Self { kernels: 1, unknown: u64::from(!has_code), ..Self::default() }
    }

    /// Commands of a node of this kind.
    pub(crate) fn of(kind: c_int, note: Option<&Note>) -> Self {
        match (kind, note) {
            (_, Some(Note::Child(inner))) => *inner,
            (KERNEL, Some(Note::Kernel(launch))) => Self::kernel(launch.kernel.is_some()),
            (KERNEL, _) => Self::kernel(true),
            (COPY, _) => Self { copies: 1, ..Self::default() },
            (SET, _) => Self { sets: 1, ..Self::default() },
            _ => Self::default(),
        }
    }
}

/// A kernel and its arguments, as a program passed them.
pub(crate) struct Launch {
    /// Name of the kernel: a host address, or the handle of a module's function.
    pub(crate) function: usize,
    pub(crate) kernel: Option<Kernel>,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: c_uint,
    /// Addresses of the arguments, each in a word of `_values`; empty for a kernel with unknown arguments.
    pub(crate) addresses: Box<[usize]>,
    _values: Box<[u64]>,
}

impl Launch {
    pub(crate) fn new(
        function: usize,
        kernel: Option<Kernel>,
        (grid, block, shared): Shape,
        arguments: &Arguments,
    ) -> Self {
        let values: Box<[u64]> = kernel.map_or_else(Box::default, |kernel| arguments.values(kernel));
        let addresses = values.iter().map(|value| std::ptr::from_ref(value).expose_provenance()).collect();
        Self { function, kernel, grid, block, shared, addresses, _values: values }
    }
}

/// `hipMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SetParams {
    pub(crate) dst: u64,
    pub(crate) unit: c_uint,
    pub(crate) height: usize,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) width: usize,
}
