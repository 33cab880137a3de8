//! NVIDIA's Multi-Process Service (MPS): contexts of several processes in one context of the device.
//!
//! [`control`] is `nvidia-cuda-mps-control`, [`server`] is `nvidia-cuda-mps-server`, and [`pool`] is the driver's part in a
//! process whose `CUDA_MPS_PIPE_DIRECTORY` names a control daemon that answers when `cuInit` is called.
//!
//! # How a client gets a context
//! The client connects to `control` in the pipe directory. The control daemon starts the server if there is none, and passes the
//! connection on to it. The server has a context on each device, made with its channel groups as any other ([`crate::rm`]); for
//! each context that a client wants, it has its own invite one more client, and the client [joins](xsched_sim::client::Context::join)
//! by that invitation. The connection stays: its end is the end of the client. [`packet`] is how all of them talk: lines of text
//! in packets.
//!
//! # What is as with NVIDIA's
//! - Clients number the devices that the server sees. They have no channel groups, and no turn of their own.
//! - Kernels of different clients run side by side where there is room, else in the order in which they came. How much a client
//!   takes is `FAKECUDA_WIDTH` percent of the device, 100 unless set, and no more than `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`.
//! - A device has room for 48 contexts of clients (`FAKECUDA_MPS_CONTEXTS`, read by the server); then
//!   CUDA_ERROR_MPS_MAX_CLIENTS_REACHED.
//! - A device-side assertion that fails ends the contexts of its client only, as measured with driver 580.
//! - A kernel that faults ends the contexts of all clients on that device with its sticky error. The server is then in the state
//!   FAULT, and answers new clients with CUDA_ERROR_MPS_SERVER_NOT_READY, until all those clients have ended. Then it makes its
//!   context anew.
//! - `quit` lets the clients end first, and the daemon with the last.
//!
//! # What is not
//! - `get_server_timeslices PID` is this stand-in's own: a line for each device, with its number and the slice of the server's
//!   compute channel group there, in µs.
//! - One server, of the user who started the daemon. Its state INITIALIZING is not seen: a question waits meanwhile.
//! - Client priorities, memory limits and all else that can be set by the control program: it says so.
//! - A client is not made slower by a percentage below 100.
//! - The end of the control daemon is the end of its server, and so is that of its pipe directory: nothing is left of a test.

pub mod control;
mod log;
mod packet;
mod pool;
mod server;

pub(crate) use pool::Pool;
