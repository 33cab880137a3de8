//! Value of `LD_PRELOAD` with the library in it. Nothing here allocates: a child of `vfork` composes it too.

/// Separators of libraries in `LD_PRELOAD`.
const SEPARATORS: &[u8] = b" :";
/// Beginning of the library's file name. `run` links to the library as `libxsched-HASH.so` where its path cannot stand in `LD_PRELOAD`.
const NAME: &[u8] = b"libxsched";

/// Finds the library in a value, and returns it as the value names it.
pub fn named(value: &[u8]) -> Option<&[u8]> {
    let is_library =
        |entry: &&[u8]| entry.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(NAME));
    value.split(|byte| SEPARATORS.contains(byte)).find(is_library)
}

/// Beginnings of the names of sanitizers' runtimes, of GCC and of Clang.
const SANITIZERS: [&[u8]; 6] = [b"libasan.", b"libtsan.", b"libubsan.", b"liblsan.", b"libhwasan.", b"libclang_rt."];

/// Reports whether an entry is the runtime of a sanitizer, which must be loaded before all else, or ends the program.
fn is_sanitizer(entry: &[u8]) -> bool {
    let name = entry.rsplit(|byte| *byte == b'/').next().unwrap_or(entry);
    SANITIZERS.iter().any(|begin| name.starts_with(begin))
}

/// Composes the value that has the library and all entries of another value, and passes it on piece by piece. The library comes first, but
/// behind the runtimes of sanitizers and everything before these; in a run within a run it occurs once.
pub fn compose<'a>(library: &'a [u8], others: &'a [u8], mut piece: impl FnMut(&'a [u8])) {
    let entries = || others.split(|byte| SEPARATORS.contains(byte)).filter(|entry| !entry.is_empty());
    let is_other = |entry: &&[u8]| *entry != library;
    let behind = entries().enumerate().filter(|(_, entry)| is_sanitizer(entry)).last().map_or(0, |(at, _)| at + 1);
    let before = entries().take(behind).filter(is_other);
    let after = entries().skip(behind).filter(is_other);
    for (at, entry) in before.chain([library]).chain(after).enumerate() {
        if at > 0 {
            piece(b":");
        }
        piece(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_its_file_name() {
        for value in ["/l/libxsched.so", "/a.so:/l/libxsched.so", "/a.so /l/libxsched-0a.so:/b.so", "libxsched.so"] {
            assert!(named(value.as_bytes()).is_some(), "{value}");
        }
        for value in ["", "/a.so", "/libxsched/a.so", "/l/notlibxsched.so"] {
            assert!(named(value.as_bytes()).is_none(), "{value}");
        }
        assert_eq!(named(b"/a.so:/l/libxsched.so /b"), Some(&b"/l/libxsched.so"[..]));
    }

    #[test]
    fn the_library_comes_first_and_only_once() {
        let composed = |others: &str| {
            let mut value = Vec::new();
            compose(b"/l/libxsched.so", others.as_bytes(), |piece| value.extend_from_slice(piece));
            String::from_utf8(value).unwrap()
        };
        assert_eq!(composed(""), "/l/libxsched.so");
        assert_eq!(composed("/a.so /b.so"), "/l/libxsched.so:/a.so:/b.so");
        assert_eq!(composed("/l/libxsched.so:/a.so"), "/l/libxsched.so:/a.so");
    }

    #[test]
    fn the_runtimes_of_sanitizers_stay_before_the_library() {
        let composed = |others: &str| {
            let mut value = Vec::new();
            compose(b"/l/libxsched.so", others.as_bytes(), |piece| value.extend_from_slice(piece));
            String::from_utf8(value).unwrap()
        };
        for (existing, value) in [
            ("/u/libasan.so.8", "/u/libasan.so.8:/l/libxsched.so"),
            ("libasan.so /a.so", "libasan.so:/l/libxsched.so:/a.so"),
            ("/a.so:/u/libclang_rt.asan-x86_64.so:/b.so", "/a.so:/u/libclang_rt.asan-x86_64.so:/l/libxsched.so:/b.so"),
            ("/l/libxsched.so:/u/libtsan.so.2", "/u/libtsan.so.2:/l/libxsched.so"),
            ("/u/libasan.so.8:/l/libxsched.so:/a.so", "/u/libasan.so.8:/l/libxsched.so:/a.so"),
            ("/u/libasanas.so", "/l/libxsched.so:/u/libasanas.so"),
        ] {
            assert_eq!(composed(existing), value, "{existing}");
        }
    }
}
