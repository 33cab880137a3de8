//! NVIDIA's Multi-Process Service: programs that share one context of the GPU and run side by side.

/// The variable that names the folder where the programs and the control daemon of an MPS meet.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
