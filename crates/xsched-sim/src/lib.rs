//! The simulated device: its model, its server process and their protocol.
pub mod command;
pub mod layout;
pub mod memory;
pub mod model;
pub mod server;
pub mod wire;
