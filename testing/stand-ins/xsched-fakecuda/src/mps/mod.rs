//! NVIDIA's Multi-Process Service (MPS): contexts of several processes in one context of the device.
//!
//! [`control`] is `nvidia-cuda-mps-control`, [`server`] is `nvidia-cuda-mps-server`, and [`pool`] is the driver's side
//! in a process whose `CUDA_MPS_PIPE_DIRECTORY` names a control daemon that answers when `cuInit` is called.
//!
//! # How a client gets a context
//! The client connects to `control` in the pipe directory. The control daemon starts the server if there is none, and
//! passes the connection to it. The server has a context on each device, created with its channel groups like any other
//! ([`crate::rm`]). For each context that a client wants, the server has its own context invite one more client, and
//! the client [joins](xsched_sim::client::Context::join) by that invitation. The connection stays open: its end is the
//! end of the client. All of them talk by [`packet`]s: lines of text.
//!
//! # Behaviour as of NVIDIA's
//! - Clients number the devices that the server sees. They have no channel groups and no time slice of their own.
//! - Kernels of different clients run side by side if there is room, else in the order of their arrival. A client takes
//!   `FAKECUDA_WIDTH` percent of the device, 100 by default, limited by `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`.
//! - A device has room for 48 contexts of clients (`FAKECUDA_MPS_CONTEXTS`, read by the server); further ones fail with
//!   CUDA_ERROR_MPS_MAX_CLIENTS_REACHED.
//! - A device-side assertion that fails ends the contexts of its client only, as measured with driver 580.
//! - A kernel that faults ends the contexts of all clients on that device with its sticky error. The server is then in the
//!   state FAULT, and answers new clients with CUDA_ERROR_MPS_SERVER_NOT_READY, until all those clients have ended. Then
//!   it creates a new context.
//! - `quit` lets the clients end first, and the daemon with the last.
//!
//! # Differences from NVIDIA's
//! - `get_server_timeslices PID` exists here only: it prints a line for each device, with its number and the slice of the
//!   server's compute channel group there, in µs.
//! - There is one server, of the user who started the daemon. Its state INITIALIZING is never seen: a query waits meanwhile.
//! - Client priorities, memory limits and all other settings of the control program are refused with a message.
//! - A percentage below 100 does not slow a client down.
//! - The server ends with the control daemon, and the daemon with its pipe directory, so that a test leaves nothing behind.

pub mod control;
mod log;
mod packet;
mod pool;
mod server;

pub(crate) use pool::Pool;
