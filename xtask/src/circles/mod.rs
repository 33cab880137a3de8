//! Circles of files by calls: `cargo xtask circles [CRATE [--calls | --unresolved]] [--write]`.
//!
//! A file that calls a function of another file of its crate stands above it. Functions, methods, methods of traits and functions passed
//! as values count. A call of a trait's method counts as a call of each implementation in the crate, and of the default one, unless the
//! caller's own file declares the trait: that file states its needs, and the implementations stand above it. Parent and child modules are
//! files like all others. Files that stand above each other form a circle, which [`LIST`] must name.
//!
//! Limits. Types are inferred only as far as they are evident: written types of arguments, fields, results and `let`, and what the containers of the
//! standard library make of them. A method call on anything else counts if one file only of the workspace defines a method of that name, and no
//! type of the standard library is known to have one; otherwise it is *unresolved* and left out, and the share of those is printed. Not seen
//! at all are calls that the compiler adds (operators, `Drop`, `Deref`, `?`, derived and formatting traits), calls through
//! stored closures, and functions that macros define. Tests are left out.

mod calls;
mod graph;
mod index;
mod list;
pub(crate) mod tree;
mod types;

use std::fmt::Write;
use std::path::Path;

use calls::Calls;
use index::Index;
pub use list::{LIST, check};
use tree::Source;

use crate::Failure;

/// Detail in which the circles of a crate are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Calls of each circle, one as an example.
    Example,
    /// All calls of each circle.
    Calls,
    /// Calls whose target was not found.
    Unresolved,
}

/// Crate and the calls between its files.
#[derive(Debug)]
pub struct Package {
    /// Name of the crate.
    pub name: String,
    /// Files of the crate, by their places below `src`.
    pub files: Vec<String>,
    /// Circles of more than one file, the largest first, as numbers of files.
    pub circles: Vec<Vec<usize>>,
    /// Number of calls whose target was found.
    pub resolved: usize,
    /// File, line and name of each possible call of a function of this crate whose target was not found.
    pub unresolved: Vec<(usize, usize, String)>,
    edges: Vec<Edge>,
}

/// Calls from one file into another one.
#[derive(Debug)]
struct Edge {
    from: usize,
    to: usize,
    calls: Vec<calls::Call>,
}

impl Package {
    /// Share of unresolved calls, in percent.
    pub fn unresolved_percent(&self) -> f64 {
        let all = self.resolved + self.unresolved.len();
        if all == 0 { 0.0 } else { 100.0 * self.unresolved.len() as f64 / all as f64 }
    }

    /// Names of the files of a circle.
    fn named(&self, circle: &[usize]) -> Vec<String> {
        circle.iter().map(|file| self.files[*file].clone()).collect()
    }

    /// Summary of the crate in one line, and its circles.
    fn summary(&self) -> String {
        let mut text = format!(
            "{}: {} files; {:.1} % of {} calls unresolved\n",
            self.name,
            self.files.len(),
            self.unresolved_percent(),
            self.resolved + self.unresolved.len()
        );
        for circle in &self.circles {
            let _ = writeln!(text, "  circle of {}: {}", circle.len(), self.named(circle).join(", "));
        }
        text
    }

    /// Calls that form the circles.
    fn in_full(&self, all_calls: bool) -> String {
        let mut text = String::new();
        for circle in &self.circles {
            let _ = writeln!(text, "circle of {}: {}", circle.len(), self.named(circle).join(", "));
            for edge in self.edges.iter().filter(|edge| circle.contains(&edge.from) && circle.contains(&edge.to)) {
                let (from, to) = (&self.files[edge.from], &self.files[edge.to]);
                let count = edge.calls.len();
                let shown = if all_calls { count } else { 1 };
                let _ = writeln!(text, "  {from} -> {to}: {count} {}", if count == 1 { "call" } else { "calls" });
                for call in &edge.calls[..shown] {
                    let _ = writeln!(text, "      {from}:{} {} calls {}", call.line, call.caller, call.called);
                }
            }
        }
        text
    }
}

/// Reads all crates of the workspace but this one.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let mut folders = crate::workspace::crates(root)?;
    folders.retain(|folder| !folder.ends_with("xtask"));
    read(&folders)
}

/// Reads these crates, which may call each other.
pub fn read(folders: &[std::path::PathBuf]) -> Result<Vec<Package>, String> {
    let mut sources = Vec::new();
    for (number, folder) in folders.iter().enumerate() {
        tree::read(folder, number, &mut sources)?;
    }
    let index = Index::new(&sources);
    let package = |(number, folder): (usize, &std::path::PathBuf)| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        package(name, number, &sources, calls::calls(&sources, &index, number))
    };
    Ok(folders.iter().enumerate().map(package).collect())
}

fn package(name: String, number: usize, sources: &[Source], calls: Calls) -> Package {
    let own: Vec<usize> = (0..sources.len()).filter(|file| sources[*file].package == number).collect();
    let place = |file: usize| own.iter().position(|one| *one == file).unwrap_or(usize::MAX);
    let files = own.iter().map(|file| sources[*file].name.clone()).collect();
    let edges: Vec<Edge> =
        calls.between.into_iter().map(|((from, to), calls)| Edge { from: place(from), to: place(to), calls }).collect();
    let mut below = vec![Vec::new(); own.len()];
    for edge in &edges {
        below[edge.from].push(edge.to);
    }
    let unresolved = calls.unknown.into_iter().map(|(file, line, name)| (place(file), line, name)).collect();
    Package { name, files, circles: graph::circles(&below), resolved: calls.found, unresolved, edges }
}

/// Shortens the list to the circles that there are.
///
/// # Errors
/// A crate cannot be read, or the list cannot be written.
pub fn write(root: &Path) -> Result<(), String> {
    list::shorten(root, &packages(root)?)
}

/// Prints the circles of all crates, or of one in detail.
///
/// # Errors
/// There is no such crate, or one cannot be read.
pub fn run(root: &Path, name: Option<&str>, detail: Detail) -> Result<(), Failure> {
    print(&packages(root)?, name, detail).map_err(Failure::Input)
}

fn print(packages: &[Package], name: Option<&str>, detail: Detail) -> Result<(), String> {
    let Some(name) = name else {
        packages.iter().for_each(|package| print!("{}", package.summary()));
        return Ok(());
    };
    let whole = [name.to_string(), format!("xsched-{name}")];
    let Some(package) = packages.iter().find(|package| whole.contains(&package.name)) else {
        let names: Vec<_> = packages.iter().map(|package| package.name.as_str()).collect();
        return Err(format!("no crate `{name}`; there are {}", names.join(", ")));
    };
    print!("{}", package.summary());
    if detail == Detail::Unresolved {
        let mut sorted = package.unresolved.clone();
        sorted.sort_by(|one, other| (&one.2, one.0, one.1).cmp(&(&other.2, other.0, other.1)));
        for (file, line, name) in sorted {
            println!("  {name}: {}:{line}", package.files[file]);
        }
    } else {
        print!("{}", package.in_full(detail == Detail::Calls));
    }
    Ok(())
}
