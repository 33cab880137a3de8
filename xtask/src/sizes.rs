//! Sizes of functions and structs: `cargo xtask sizes`.
//!
//! A function is too large if it has more than [`LINES_MAX`] lines *and* more than [`BRANCHES_MAX`] branches: `if`, `while`, `for`,
//! `loop`, `?`, `&&`, `||`, `let … else`, and each arm of a `match` but one. Closures count with their function; a function inside
//! another one counts alone. A struct is too large if it has more than [`FIELDS_MAX`] fields, unless all are `pub`, or it is
//! made by serde or clap, or laid out for C: such a struct is plain data. Tests, and branches inside macros, are left out. [`LIST`] has those that are allowed.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;
use syn::visit::{self, Visit};

use crate::circles::tree::{self, is_test};

/// Place of the list in the workspace.
pub const LIST: &str = "xtask/sizes.toml";
/// Largest number of lines of a function that has many branches.
pub const LINES_MAX: usize = 60;
/// Largest number of branches of a function that has many lines.
pub const BRANCHES_MAX: usize = 20;
/// Largest number of fields of a struct that is not plain data.
pub const FIELDS_MAX: usize = 15;

/// Function or struct of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sized {
    /// Crate, file below `src` and name: `xsched-core engine.rs Engine::step`.
    pub place: String,
    /// Size of it.
    pub size: Size,
}

/// Size of a function or struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Lines and branches of a function.
    Function {
        /// Number of lines, from `fn` to the last brace.
        lines: usize,
        /// Number of branches.
        branches: usize,
    },
    /// Number of fields of a struct that is not plain data.
    Struct(usize),
}

impl Size {
    /// Reports whether it is above the limits.
    #[must_use]
    pub fn is_too_large(self) -> bool {
        match self {
            Size::Function { lines, branches } => lines > LINES_MAX && branches > BRANCHES_MAX,
            Size::Struct(fields) => fields > FIELDS_MAX,
        }
    }

    /// Size in relation to the limits, in percent: of the smaller excess for a function, which must have both.
    fn percent(self) -> usize {
        match self {
            Size::Function { lines, branches } => (lines * 100 / LINES_MAX).min(branches * 100 / BRANCHES_MAX),
            Size::Struct(fields) => fields * 100 / FIELDS_MAX,
        }
    }
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    allowed: Vec<Allowed>,
}

#[derive(Deserialize)]
struct Allowed {
    place: String,
    reason: String,
}

/// Functions and structs of a file.
struct Found<'a> {
    /// Crate and file.
    place: &'a str,
    /// Type of the present `impl` block, with `::`.
    own: String,
    branches: usize,
    found: Vec<Sized>,
}

impl Found<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let outer = std::mem::take(&mut self.branches);
        self.visit_block(block);
        let branches = std::mem::replace(&mut self.branches, outer);
        let lines = block.brace_token.span.close().end().line + 1 - signature.fn_token.span.start().line;
        self.enter(&signature.ident, Size::Function { lines, branches });
    }

    fn enter(&mut self, name: &syn::Ident, size: Size) {
        self.found.push(Sized { place: format!("{} {}{name}", self.place, self.own), size });
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| format!("{}::", last.ident)),
            _ => None,
        };
        let outer = std::mem::replace(&mut self.own, name.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.own = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_public = |field: &syn::Field| matches!(field.vis, syn::Visibility::Public(_));
        let is_plain = item.fields.iter().all(is_public) || item.attrs.iter().any(is_of_data);
        if !is_plain && !is_test(&item.attrs) {
            self.enter(&item.ident, Size::Struct(item.fields.len()));
        }
    }

    fn visit_expr(&mut self, expression: &'ast syn::Expr) {
        use syn::{BinOp, Expr};
        self.branches += match expression {
            Expr::If(_) | Expr::While(_) | Expr::ForLoop(_) | Expr::Loop(_) | Expr::Try(_) => 1,
            Expr::Match(inner) => inner.arms.len().saturating_sub(1),
            Expr::Binary(inner) => usize::from(matches!(inner.op, BinOp::And(_) | BinOp::Or(_))),
            _ => 0,
        };
        visit::visit_expr(self, expression);
    }

    fn visit_local_init(&mut self, init: &'ast syn::LocalInit) {
        self.branches += usize::from(init.diverge.is_some());
        visit::visit_local_init(self, init);
    }
}

/// Reports whether an attribute makes a struct plain data: its layout is that of C, or it derives a reader or writer.
fn is_of_data(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let names = ["Serialize", "Deserialize", "Parser", "Args", "C"];
    (list.path.is_ident("derive") || list.path.is_ident("repr"))
        && list.tokens.clone().into_iter().any(|token| names.contains(&token.to_string().as_str()))
}

/// Functions and structs of a file with this text; `place` = its crate and name.
///
/// # Errors
/// The text is no Rust.
pub fn of_text(place: &str, text: &str) -> Result<Vec<Sized>, String> {
    Ok(of_file(place, &syn::parse_file(text).map_err(|error| format!("{place}: {error}"))?))
}

fn of_file(place: &str, file: &syn::File) -> Vec<Sized> {
    let mut found = Found { place, own: String::new(), branches: 0, found: Vec::new() };
    found.visit_file(file);
    found.found
}

/// Functions and structs of all crates, the largest first.
///
/// # Errors
/// A crate cannot be read.
pub fn all(root: &Path) -> Result<Vec<Sized>, String> {
    let folders = crate::workspace::crates(root)?;
    let mut sources = Vec::new();
    for (number, folder) in folders.iter().enumerate() {
        tree::read(folder, number, &mut sources)?;
    }
    let of_source = |source: &tree::Source| {
        let name = folders[source.package].file_name().unwrap_or_default().to_string_lossy();
        of_file(&format!("{name} {}", source.name), &source.syntax)
    };
    let mut found: Vec<Sized> = sources.iter().flat_map(of_source).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.size.percent()));
    Ok(found)
}

/// Compares sizes with the list; returns a line for each that differs.
///
/// # Errors
/// The list cannot be read, or a reason is missing.
pub fn check(root: &Path, all: &[Sized]) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    compare(&text, all)
}

/// Compares sizes with the text of a list; see [`check`].
///
/// # Errors
/// The text is no list, or a reason is missing.
pub fn compare(list: &str, all: &[Sized]) -> Result<Vec<String>, String> {
    let List { allowed } = toml::from_str(list).map_err(|error| format!("{LIST}: {error}"))?;
    if let Some(one) = allowed.iter().find(|one| one.reason.trim().is_empty()) {
        return Err(format!("{LIST}: {} has no reason", one.place));
    }
    let large: Vec<_> = all.iter().filter(|one| one.size.is_too_large()).collect();
    let is_listed = |one: &Sized| allowed.iter().any(|allowed| allowed.place == one.place);
    let new = large.iter().filter(|one| !is_listed(one)).map(|one| format!("{}: split it", line(one)));
    let gone = allowed.iter().filter(|allowed| !large.iter().any(|one| one.place == allowed.place));
    let gone = gone.map(|allowed| format!("{}: within the limits, or gone; delete it from {LIST}", allowed.place));
    Ok(new.chain(gone).collect())
}

fn line(one: &Sized) -> String {
    match one.size {
        Size::Function { lines, branches } => format!("{}: {lines} lines, {branches} branches", one.place),
        Size::Struct(fields) => format!("{}: {fields} fields", one.place),
    }
}

/// Prints all that are above the limits, and at least the ten largest.
///
/// # Errors
/// A crate cannot be read.
pub fn run(root: &Path) -> Result<(), String> {
    let mut text = String::new();
    for (at, one) in all(root)?.iter().enumerate().filter(|(at, one)| *at < 10 || one.size.is_too_large()) {
        let mark = if one.size.is_too_large() { "" } else { " (within the limits)" };
        let _ = writeln!(text, "{:2}. {}{mark}", at + 1, line(one));
    }
    print!("{text}");
    Ok(())
}
