//! Measurements and checks with programs side by side, bare and under xsched: [`demo`] with programs of its own, [`compare`] with the
//! user's, [`check`] whether results stay the same. Each has a folder and daemons of its own (`private`), programs that end with it
//! (`children`), pictures of distributions (`picture`), and a sentence of result (`verdict`).

pub mod check;
mod children;
pub mod compare;
pub mod demo;
mod picture;
mod private;
mod verdict;

use xsched_command::{client, failure, preload, progress, width};
