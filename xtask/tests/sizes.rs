//! Sizes of functions and structs, against `xtask/sizes.toml`. [`xtask::sizes`] has the limits and describes what counts.

use std::path::Path;

use xtask::sizes::{self, Size};

#[test]
fn large_functions_and_structs_are_those_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let all = sizes::all(&root).unwrap();
    assert!(all.len() > 1000, "{} functions and structs", all.len());
    let wrong = sizes::check(&root, &all).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sizes in a text, by name.
fn sizes_of(text: &str) -> Vec<(String, Size)> {
    let all = sizes::of_text("own a.rs", text).unwrap();
    all.into_iter().map(|one| (one.place.trim_start_matches("own a.rs ").to_string(), one.size)).collect()
}

#[test]
fn branches_count_with_their_function_and_tests_do_not() {
    let text = "struct S;\nimpl S {\n    fn f(a: Option<u8>) -> Option<u8> {\n        if a? > 1 && true { loop {} }\n        fn g() { while true {} }\n        let Some(b) = a else { return None };\n        [b].iter().for_each(|b| match b { 0 => {} 1 => {} _ => {} });\n        a\n    }\n}\n#[cfg(test)]\nmod tests { fn h() {} }\n";
    let function = |lines, branches| Size::Function { lines, branches };
    let found = sizes_of(text);
    assert!(found.contains(&("S::f".into(), function(7, 7))), "{found:?}");
    assert!(found.contains(&("S::g".into(), function(1, 1))), "{found:?}");
    assert!(!found.iter().any(|(name, _)| name.ends_with('h')), "{found:?}");
}

#[test]
fn a_function_is_too_large_with_both_and_plain_data_never_is() {
    let is_large = |lines, branches| Size::Function { lines, branches }.is_too_large();
    assert!(is_large(61, 21) && !is_large(60, 99) && !is_large(999, 20));
    let fields = |mark: &str| (0..16).map(|n| format!("{mark} f{n}: u8,")).collect::<String>();
    assert_eq!(sizes_of(&format!("struct S {{ {} }}", fields(""))), [("S".into(), Size::Struct(16))]);
    assert!(Size::Struct(16).is_too_large() && !Size::Struct(15).is_too_large());
    assert!(sizes_of(&format!("pub struct S {{ {} }}", fields("pub"))).is_empty());
    assert!(sizes_of(&format!("#[derive(Debug, Deserialize)] struct S {{ {} }}", fields(""))).is_empty());
    assert!(sizes_of(&format!("#[repr(C)] struct S {{ {} }}", fields(""))).is_empty());
}

#[test]
fn the_list_is_exact_and_has_reasons() {
    let large = sizes::of_text("own a.rs", &format!("struct S {{ {} }}", "f: u8,".repeat(16))).unwrap();
    let list = |place: &str, reason: &str| format!("[[allowed]]\nplace = \"{place}\"\nreason = \"{reason}\"\n");
    let wrong = |list: &str| sizes::compare(list, &large).unwrap().join("\n");
    assert_eq!(wrong(&list("own a.rs S", "some")), "");
    assert!(wrong("").contains("16 fields: split it"));
    assert!(wrong(&(list("own a.rs S", "some") + &list("own a.rs T", "some"))).contains("delete it"));
    assert!(sizes::compare(&list("own a.rs S", " "), &large).is_err());
}
