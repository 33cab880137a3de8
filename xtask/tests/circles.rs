//! Circles of files by calls, against `xtask/circles.toml`. [`xtask::circles`] describes how calls are found, and which are not.

use std::path::{Path, PathBuf};

use xtask::circles;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Largest share of unresolved calls in a crate, in percent: above it the circles mean little. Crates with few calls, and crates of tests,
/// are exempt.
const UNRESOLVED_MAX: f64 = 10.0;

#[test]
fn circles_are_those_listed() {
    let packages = circles::packages(&root()).unwrap();
    for package in &packages {
        let share = package.unresolved_percent();
        println!("{}: {share:.1} % of calls unresolved", package.name);
        let counts = package.resolved > 300;
        assert!(!counts || share <= UNRESOLVED_MAX, "{}: {share:.1} % of calls unresolved", package.name);
    }
    let wrong = circles::check(&root(), &packages).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Circles of a crate with these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    for (name, text) in files {
        let path = own.join("src").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let package = circles::read(&[own]).unwrap().remove(0);
    let named = |circle: &Vec<usize>| circle.iter().map(|file| package.files[*file].clone()).collect();
    package.circles.iter().map(named).collect()
}

const ROOT: (&str, &str) =
    ("lib.rs", "mod a; mod b; pub struct S { pub b: b::B, pub map: std::collections::HashMap<u8, b::B> }");

#[track_caller]
fn go_round(a: &str, b: &str) {
    assert_eq!(circles_of(&[ROOT, ("a.rs", a), ("b.rs", b)]), [["a.rs", "b.rs"]]);
}

#[track_caller]
fn do_not_go_round(a: &str, b: &str) {
    assert!(circles_of(&[ROOT, ("a.rs", a), ("b.rs", b)]).is_empty());
}

/// File with one function that the other file calls, and one that calls back.
const B: &str =
    "pub struct B; impl B { pub fn len(&self) { crate::a::back() } pub fn new() -> B { crate::a::back(); B } }";

#[test]
fn methods_of_one_type_in_two_files_go_round_without_a_use() {
    go_round(
        "impl crate::S { fn one(&self) { self.two() } pub fn three(&self) {} }",
        "pub struct B; impl crate::S { fn two(&self) { self.three() } }",
    );
    do_not_go_round(
        "impl crate::S { fn one(&self) { self.two() } }",
        "pub struct B; impl crate::S { fn two(&self) {} }",
    );
}

#[test]
fn a_method_that_std_has_too_counts_where_the_type_is_evident() {
    let back = "pub fn back() {}";
    for caller in [
        "fn f(s: &crate::S) { s.b.len() }",
        "fn f(b: &crate::b::B) { b.len() }",
        "fn f(s: &crate::S) { if let Some(b) = s.map.get(&1) { b.len() } }",
        "fn f(s: &crate::S) { s.map.values().for_each(|b| b.len()) }",
        "fn f(s: &crate::S) { for (_, b) in &s.map { b.len() } }",
        "fn f() { crate::b::B::new().len() }",
        "fn f() { println!(\"{:?}\", crate::b::B::new()) }",
        "use crate::b::B as C; fn f() { let of = C::new; of(); }",
        "fn f(all: Vec<crate::b::B>) { all.iter().for_each(crate::b::B::len) }",
    ] {
        go_round(&format!("{back} {caller}"), B);
    }
    for caller in ["fn f(s: &str) { s.len() }", "fn f(s: &crate::S) { s.map.len() }", "fn f() { unknown!(x).len() }"] {
        do_not_go_round(&format!("{back} {caller}"), B);
    }
}

/// Callers of a method of a trait through a trait object, a generic parameter, and a path.
const CALLERS: [&str; 3] =
    ["fn f(t: &dyn T) { t.act() }", "fn f<X: T>(t: X) { t.act() }", "fn f(t: impl T) { T::act(&t) }"];

#[test]
fn a_call_of_a_trait_of_another_file_is_one_of_each_implementation() {
    let b = "pub struct B; impl crate::T for B { fn act(&self) { crate::a::back() } }";
    let root = "mod a; mod b; pub trait T { fn act(&self); }";
    let circles = |a: &str| circles_of(&[("lib.rs", root), ("a.rs", a), ("b.rs", b)]);
    for caller in CALLERS {
        let a = format!("use crate::T; pub fn back() {{}} {caller}");
        assert_eq!(circles(&a), [["a.rs", "b.rs"]], "{caller}");
    }
    assert!(circles("pub fn back() {}").is_empty());
}

#[test]
fn a_call_of_a_trait_that_the_file_declares_is_one_of_the_trait_only() {
    let declared = "pub trait T { fn act(&self); fn twice(&self) { self.act(); self.act() } } pub fn back() {}";
    let b = "pub struct B; impl crate::a::T for B { fn act(&self) { crate::a::back() } }";
    for caller in CALLERS {
        do_not_go_round(&format!("{declared} {caller}"), b);
    }
    // A file that names an implementation stands above it all the same.
    for caller in
        ["fn f(b: &crate::b::B) { b.act() }", "fn f(b: &crate::b::B) { T::act(b); <crate::b::B as T>::act(b) }"]
    {
        go_round(&format!("{declared} {caller}"), b);
    }
    // The trait is no cover for other calls of the file.
    go_round(
        &format!("{declared} fn f(t: &dyn T) {{ t.act(); crate::b::help() }}"),
        &format!("{b} pub fn help() {{}}"),
    );
}

#[test]
fn parents_and_children_count_and_tests_do_not() {
    let child = "pub fn g() { super::f() }";
    let parent = "mod b; pub fn f() { b::g() }";
    assert_eq!(circles_of(&[("lib.rs", "mod a;"), ("a.rs", parent), ("a/b.rs", child)]), [["a.rs", "a/b.rs"]]);
    let tests = "#[cfg(test)] mod b; pub fn f() {} #[cfg(test)] mod tests { #[test] fn g() { super::b::g() } }";
    assert!(circles_of(&[("lib.rs", "mod a;"), ("a.rs", tests), ("a/b.rs", child)]).is_empty());
}
