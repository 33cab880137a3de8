//! `libsimdev.so`: the simulated device called like a vendor's library (see include/simdev.h).

mod api;
mod calls;
mod connect;
mod context;
mod error;
mod handle;
mod heap;
mod maps;
mod process;
mod spawn;
mod transfer;
