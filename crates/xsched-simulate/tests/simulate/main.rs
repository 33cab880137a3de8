//! The simulator's models, alone and against each other.

mod bursts;
mod common;
mod gaps;
mod held_out;
mod properties;
mod recordings;
mod scenarios;
