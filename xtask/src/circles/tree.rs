//! Files of a crate, found the way the compiler does: from its roots (`lib.rs`, `main.rs`, `bin/*.rs`) along `mod`, also where a macro
//! of the same file declares modules. Modules of tests are left out.

use std::path::{Path, PathBuf};

/// A parsed file.
pub(crate) struct Source {
    /// Path of the file below the crate's `src`.
    pub(crate) name: String,
    /// Number of the crate.
    pub(crate) package: usize,
    /// Path of the module, with the crate's name first.
    pub(crate) module: String,
    pub(crate) syntax: syn::File,
}

/// Reads all files of a crate.
pub(crate) fn read(folder: &Path, package: usize, found: &mut Vec<Source>) -> Result<(), String> {
    let source = folder.join("src");
    let name = folder.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
    let mut roots = vec![("lib.rs".to_string(), name.clone()), ("main.rs".to_string(), format!("{name}#main"))];
    for entry in std::fs::read_dir(source.join("bin")).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        roots.push((format!("bin/{file}"), format!("{name}#{file}")));
    }
    roots.sort();
    for (file, module) in roots {
        let path = source.join(file);
        if path.is_file() {
            let beside = path.parent().unwrap_or(&source).to_path_buf();
            Reader { source: &source, package, found }.file(&path, &beside, module)?;
        }
    }
    Ok(())
}

struct Reader<'a> {
    source: &'a Path,
    package: usize,
    found: &'a mut Vec<Source>,
}

impl Reader<'_> {
    /// Reads a file whose modules lie in `below`, and these modules.
    fn file(&mut self, path: &Path, below: &Path, module: String) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let syntax = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut modules = Vec::new();
        children(&syntax.items, path, below, &module, &mut modules);
        // For `list! { a, b }`, whose macro makes `mod a; mod b;`: each name that has a file.
        for name in syntax.items.iter().filter_map(listed).flatten() {
            let (own, inner) = (below.join(format!("{name}.rs")), below.join(&name));
            modules.push((own, inner, format!("{module}::{name}")));
        }
        let name = path.strip_prefix(self.source).unwrap_or(path).display().to_string();
        self.found.push(Source { name, package: self.package, module, syntax });
        for (path, below, module) in modules {
            // Files outside the crate's `src` do not belong to it, and each module is read once.
            let is_known = self.found.iter().any(|source| source.module == module);
            let inside = |path: &Path| !path.components().any(|part| part.as_os_str() == "..");
            if path.is_file() && !is_known && path.strip_prefix(self.source).is_ok_and(inside) {
                self.file(&path, &below, module)?;
            }
        }
        Ok(())
    }
}

/// File, folder of its modules and path of each module that is declared among these items.
fn children(items: &[syn::Item], file: &Path, below: &Path, module: &str, found: &mut Vec<(PathBuf, PathBuf, String)>) {
    for item in items {
        let syn::Item::Mod(declared) = item else { continue };
        if is_test(&declared.attrs) {
            continue;
        }
        let name = declared.ident.to_string();
        let (path, inner) = (format!("{module}::{name}"), below.join(&name));
        if let Some((_, items)) = &declared.content {
            children(items, file, &inner, &path, found);
        } else if let Some(named) = path_attribute(&declared.attrs) {
            let file = file.parent().unwrap_or(below).join(named);
            let inner = file.parent().unwrap_or(below).to_path_buf();
            found.push((file, inner, path));
        } else {
            let own = below.join(format!("{name}.rs"));
            let file = if own.is_file() { own } else { inner.join("mod.rs") };
            found.push((file, inner, path));
        }
    }
}

/// Names among the arguments of a macro that stands in the place of an item.
fn listed(item: &syn::Item) -> Option<Vec<String>> {
    let syn::Item::Macro(used) = item else { return None };
    let names = used.mac.tokens.clone().into_iter().filter_map(|token| match token {
        proc_macro2::TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    });
    used.ident.is_none().then(|| names.collect())
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    let named = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Meta::NameValue(pair) = &named.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
    Some(text.value())
}

/// Reports whether an item is for tests only: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let text: String = list.tokens.to_string().split_whitespace().collect();
        list.path.is_ident("cfg") && (text == "test" || text.starts_with("all(test,"))
    })
}
