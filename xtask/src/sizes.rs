//! Sizes of functions and structs: `cargo xtask sizes`.
//!
//! A function is too large with more than [`LINES_MAX`] lines *and* more than [`BRANCHES_MAX`] branches: `if`, `while`, `for`, `loop`, each
//! arm of a `match` but one, `?`, `&&`, `||`, `let … else`. Lines are those of the body, blank ones and comments too; closures count
//! with their function, functions inside it count on their own. A struct is too large with more than [`FIELDS_MAX`] fields, unless all
//! of them are public: such a struct is plain data. [`LIST`] has those that are allowed, each with its reason. Tests are left out.

use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use serde::Deserialize;
use syn::spanned::Spanned;
