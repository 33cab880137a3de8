//! Generates the HIP signature list of the preload library from `hip_runtime_api.h`.
//!
//! The header comes with ROCm, or inside the PyPI package `triton`; it is not committed. Read as C, for HIP on AMD's GPUs,
//! together with the header that declares the functions for a per-thread default stream (`_spt`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::{c, cuda, opencl};

/// The PyPI package that the committed files were made from.
const PACKAGE: &str = "triton==3.9.0";

/// Source of the header.
pub(crate) const SOURCE: cuda::Source = cuda::Source {
    variable: "HIP_HEADER",
    file: "hip_runtime_api.h",
    folder: "hip-header",
    package: PACKAGE,
    what: "hip/hip_runtime_api.h of ROCm 7.1",
};

/// Output of the generator.
pub(crate) struct Generated {
    pub(crate) signatures: String,
    /// Number of functions listed.
    pub(crate) functions: usize,
}

/// Reads the header: the file that `HIP_HEADER` names (`…/include/hip/hip_runtime_api.h`), or else the one in `work`, which is fetched if
/// missing.
pub(crate) fn generate(work: &Path) -> Result<Generated, String> {
    let header = SOURCE.find(work)?;
    let folder = header.parent().and_then(Path::parent).ok_or("HIP_HEADER: …/include/hip/hip_runtime_api.h, please")?;
    let mut types = BTreeMap::new();
    let mut functions: BTreeMap<String, c::Decl> = BTreeMap::new();
    for statement in opencl::statements(&c::tokens(&preprocess(folder)?)) {
        let statement = after_functions(statement);
        match statement.first().map(String::as_str) {
            Some("typedef") => cuda::typedef(&statement[1..], &mut types),
            Some("enum") => drop(types.insert(statement[1].clone(), "c_uint".into())),
            Some("static" | "extern") | None => {}
            Some(_) => {
                let statement: Vec<c::Token> = statement.into_iter().filter(|t| t != "enum").collect();
                let Ok(decl) = c::declaration(&statement) else { continue };
                let is_one = |name: &String| ["hip", "__hip", "amd_dbgapi"].iter().any(|p| name.starts_with(p));
                if let Some(name) = decl.name.clone().filter(|name| decl.params.is_some() && is_one(name)) {
                    functions.insert(name, decl);
                }
            }
        }
    }
    let signatures = opencl::rustfmt(&signatures(&functions, &types, &version(folder)?))?;
    Ok(Generated { signatures, functions: functions.len() })
}

/// Removes the functions with a body that a statement begins with: no semicolon separates them from the next statement.
fn after_functions(mut statement: Vec<c::Token>) -> Vec<c::Token> {
    while statement.first().is_some_and(|t| t == "static" || t == "inline") {
        let mut depth = 0;
        let end = statement.iter().position(|t| {
            depth += i32::from(t == "{") - i32::from(t == "}");
            depth == 0 && t == "}"
        });
        match end {
            Some(end) => drop(statement.drain(..=end)),
            None => break,
        }
    }
    statement
}

fn preprocess(folder: &Path) -> Result<String, String> {
    let mut command = Command::new("cc");
    command.args(["-E", "-P", "-D__HIP_PLATFORM_AMD__", "-D__attribute__(x)=", "-D__extension__=", "-x", "c"]);
    command.args(["-include", "hip/hip_runtime_api.h", "-include", "hip/amd_detail/amd_hip_runtime_pt_api.h"]);
    let output = command.arg("-I").arg(folder).arg("/dev/null").output().map_err(|e| format!("cc -E: {e}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cc -E of {}/hip/hip_runtime_api.h failed:\n{errors}", folder.display()));
    }
    let text = String::from_utf8(output.stdout).map_err(|e| format!("cc -E: {e}"))?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect())
}

/// Version such as `7.1`, from the header beside this one.
fn version(folder: &Path) -> Result<String, String> {
    let path = folder.join("hip/hip_version.h");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let number = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_string()));
    match (number("#define HIP_VERSION_MAJOR"), number("#define HIP_VERSION_MINOR")) {
        (Some(major), Some(minor)) => Ok(format!("{major}.{minor}")),
        _ => Err(format!("{}: no version", path.display())),
    }
}

/// A parameter as the calling convention sees it: pointers and handles, numbers, and the few structures that are passed
/// by value.
fn abi(rust: &str, types: &BTreeMap<String, String>) -> String {
    const KEPT: [&str; 4] = ["hipStream_t", "hipEvent_t", "hipFunction_t", "hipGraphExec_t"];
    if rust.starts_with('*') || rust.starts_with("Option<") {
        return "*mut c_void".into();
    }
    if KEPT.contains(&rust) {
        return rust.into();
    }
    match rust {
        "c_int" | "c_uint" | "c_char" | "c_uchar" | "usize" => rust.into(),
        "u64" | "uint64_t" | "__uint64_t" => "u64".into(),
        "uint32_t" | "__uint32_t" | "GLuint" | "GLenum" => "c_uint".into(),
        "u16" | "uint16_t" | "__uint16_t" => "u16".into(),
        "float" => "f32".into(),
        "dim3" => "Dim3".into(),
        // The first is passed as three words, the next as four, and the last as two ints in one register.
        "hipExtent" => "Words<3>".into(),
        "hipPitchedPtr" => "Words<4>".into(),
        "hipMemLocation" => "u64".into(),
        "hipIpcMemHandle_t" | "hipIpcEventHandle_t" => "Words<8>".into(),
        other => match types.get(other) {
            Some(inner) if inner != other && inner != "c_void" => abi(inner, types),
            _ => format!("/* {other} */ c_int"),
        },
    }
}

/// Return type, unless it is a hipError_t.
fn result(decl: &c::Decl) -> &'static str {
    match decl.rust.as_str() {
        "hipError_t" | "c_int" => "",
        "c_void" => " -> ()",
        _ => " -> *mut c_void",
    }
}

fn signatures(functions: &BTreeMap<String, c::Decl>, types: &BTreeMap<String, String>, version: &str) -> String {
    let mut out = format!(
        "// {}\n\n\
         //! Every function that HIP's header declares, once, as the calling convention sees it: `hip_signatures!(callback)`\n\
         //! calls `callback!` with the whole list. What returns no `hipError_t` says what it returns.\n\n\
         macro_rules! hip_signatures {{\n    ($callback:ident) => {{\n        $callback! {{\n",
        crate::generate::banner(&format!("hip_runtime_api.h of HIP {version}")),
    );
    for (name, decl) in functions {
        let params: Vec<String> =
            decl.params.iter().flatten().map(|p| format!("{}: {}", p.name, abi(&p.rust, types))).collect();
        let _ = writeln!(out, "            fn {name}({}){};", params.join(", "), result(decl));
    }
    out.push_str("        }\n    };\n}\npub(crate) use hip_signatures;\n");
    out
}
