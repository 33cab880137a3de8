//! Generates the OpenCL signature list and types of the preload library from the Khronos headers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::c::{self, Token};

/// Version of the Debian package opencl-c-headers that the committed files were generated from.
pub(crate) const HEADERS: &str = "3.0~2023.02.06";

/// Headers that are read, in order. Direct3D and DX9 sharing exist on Windows only.
const INCLUDED: [&str; 5] =
    ["CL/cl.h", "CL/cl_ext.h", "CL/cl_gl.h", "CL/cl_egl.h", "CL/cl_va_api_media_sharing_intel.h"];

/// Output of the generator: the texts of both files.
pub(crate) struct Generated {
    pub(crate) signatures: String,
    pub(crate) types: String,
    /// Number of functions listed.
    pub(crate) functions: usize,
}

/// Reads the installed headers.
pub(crate) fn generate(root: &Path) -> Result<Generated, String> {
    let text = preprocess(root)?;
    let (code, macros) = separate(&text);
    let statements = statements(&c::tokens(&code));

    let mut functions: BTreeMap<String, c::Decl> = BTreeMap::new();
    let mut typedefs = String::new();
    let mut pointers_to_functions = Vec::new();
    for statement in &statements {
        match statement.first().map(String::as_str) {
            Some("extern") if statement.get(1).is_some_and(|t| t == ENTRY) => {
                let decl = c::declaration(&statement[2..])?;
                let name = decl.name.clone().ok_or("a function without a name")?;
                // A later header may repeat a declaration of an earlier one: the first wins.
                functions.entry(name).or_insert(decl);
            }
            Some("typedef") => typedef(&statement[1..], &mut typedefs, &mut pointers_to_functions)?,
            _ => {}
        }
    }
    // Some extensions are declared only as a type of pointer to function, `clXxx_fn`.
    for decl in pointers_to_functions {
        let name = decl.name.clone().unwrap_or_default();
        if let Some(function) = name.strip_suffix("_fn").filter(|f| f.starts_with("cl")) {
            functions.entry(function.to_string()).or_insert(decl);
        }
    }
    let missing: Vec<String> = loader_exports().into_iter().filter(|name| !functions.contains_key(name)).collect();
    if !missing.is_empty() {
        return Err(format!("libOpenCL.so.1 exports functions that no header declares: {}", missing.join(", ")));
    }
    Ok(Generated {
        signatures: rustfmt(&signatures(&functions))?,
        types: rustfmt(&types(&typedefs, &constants(&macros)))?,
        functions: functions.len(),
    })
}

const ENTRY: &str = "XSCHED_ENTRY";
/// Source of the committed files.
const MADE_FROM: &str = "the OpenCL headers 3.0 (2023.02.06)";

/// Runs the C preprocessor, which keeps the macros (`-dD`) and where each line came from.
fn preprocess(root: &Path) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("xtask-opencl-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("va")).map_err(|e| format!("{}: {e}", folder.display()))?;
    // The VA-API header is not needed for its two types.
    let va = "typedef struct VAImageFormat VAImageFormat;\ntypedef unsigned int VASurfaceID;\n";
    let includes: String = INCLUDED.iter().map(|h| format!("#include <{h}>\n")).collect();
    let extra = root.join("xtask/src/opencl/extra.h");
    let all = format!("{includes}#include \"{}\"\n", extra.display());
    let written = std::fs::write(folder.join("va/va.h"), va).and_then(|()| std::fs::write(folder.join("all.c"), all));
    let output = written.and_then(|()| {
        Command::new("cc")
            .args(["-E", "-dD", "-DCL_TARGET_OPENCL_VERSION=300", "-DCL_USE_DEPRECATED_OPENCL_1_0_APIS"])
            .args([&format!("-DCL_API_ENTRY={ENTRY}"), "-DCL_API_CALL=", "-DCL_CALLBACK=", "-D__attribute__(x)="])
            .arg("-I")
            .arg(&folder)
            .arg(folder.join("all.c"))
            .output()
    });
    // Best effort: a leftover in the temporary folder harms nothing.
    let _ = std::fs::remove_dir_all(&folder);
    let output = output.map_err(|e| format!("cc -E: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "cc -E failed (is opencl-headers installed?):\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("cc -E: {e}"))
}

/// Functions that the installed ICD loader exports; empty where there is none.
fn loader_exports() -> Vec<String> {
    let loader = format!("/usr/lib/{}-linux-gnu/libOpenCL.so.1", std::env::consts::ARCH);
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only", &loader]).output() else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|symbol| symbol.split('@').next().unwrap_or(symbol).to_string())
        .filter(|name| name.starts_with("cl"))
        .collect()
}

/// Separates declarations from `#define` lines, keeping what comes from the headers named above and the extra one.
fn separate(text: &str) -> (String, Vec<(String, String)>) {
    let (mut code, mut macros) = (String::new(), Vec::new());
    let (mut wanted, mut platform) = (false, false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let file = rest.split('"').nth(1).unwrap_or_default();
            wanted = INCLUDED.iter().any(|h| file.ends_with(h))
                || file.ends_with("opencl/extra.h")
                || file.ends_with("va/va.h");
            platform = file.ends_with("CL/cl_platform.h");
        } else if let Some(rest) = line.strip_prefix("#define ") {
            let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
            // The hundreds of motion-estimation parameters are arguments of kernels, and no function of the API takes them.
            let noise = name.starts_with("CL_AVC_ME_");
            if wanted && !noise && name.starts_with("CL_") && !name.contains('(') && !value.is_empty() {
                macros.push((name.to_string(), value.trim().to_string()));
            }
        } else if !line.starts_with('#') && wanted && !platform {
            code.push_str(line);
            code.push('\n');
        }
    }
    (code, macros)
}

/// Splits tokens into statements at semicolons outside braces.
pub(crate) fn statements(tokens: &[Token]) -> Vec<Vec<Token>> {
    let (mut out, mut now, mut depth) = (Vec::new(), Vec::new(), 0);
    for token in tokens {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            ";" if depth == 0 => {
                out.push(std::mem::take(&mut now));
                continue;
            }
            _ => {}
        }
        now.push(token.clone());
    }
    out
}

/// Turns one typedef into a Rust alias or struct; pointers to function are kept aside.
fn typedef(tokens: &[Token], out: &mut String, functions: &mut Vec<c::Decl>) -> Result<(), String> {
    let last = tokens.last().cloned().unwrap_or_default();
    if let Some(open) = tokens.iter().position(|t| t == "{") {
        let close = tokens.iter().rposition(|t| t == "}").ok_or("unclosed struct")?;
        match fields(&tokens[open + 1..close]) {
            Some(fields) if tokens[0] == "struct" => {
                let _ = writeln!(out, "#[repr(C)]\n#[derive(Clone, Copy)]\npub(crate) struct {last} {{");
                for (name, rust) in fields {
                    let _ = writeln!(out, "    pub(crate) {name}: {rust},");
                }
                let _ = writeln!(out, "}}");
            }
            // Unions, and structs whose members are not needed: passed by address only.
            _ => {
                let _ = writeln!(out, "pub(crate) type {last} = c_void;");
            }
        }
        return Ok(());
    }
    if tokens.iter().any(|t| t == "(") {
        functions.push(c::declaration(tokens)?);
        return Ok(());
    }
    // An opaque handle `struct _x * name`, an incomplete struct `struct X X`, or an alias.
    if tokens[0] == "struct" {
        let rust = if tokens.iter().any(|t| t == "*") { "*mut c_void" } else { "c_void" };
        let _ = writeln!(out, "pub(crate) type {last} = {rust};");
        return Ok(());
    }
    let decl = c::declaration(tokens)?;
    let _ = writeln!(out, "pub(crate) type {last} = {};", decl.rust);
    Ok(())
}

/// Fields of a struct if all are plain, pointers or arrays of a known size.
fn fields(tokens: &[Token]) -> Option<Vec<(String, String)>> {
    let mut out = Vec::new();
    for member in tokens.split(|t| t == ";").filter(|m| !m.is_empty()) {
        if member.iter().any(|t| t == "{" || t == "}" || t == "," || t == "(") {
            return None;
        }
        let (member, array) = match member.iter().position(|t| t == "[") {
            Some(open) => (&member[..open], Some(member.get(open + 1)?)),
            None => (member, None),
        };
        let decl = c::declaration(member).ok()?;
        let name = match decl.name? {
            name if name == "type" => "type_".to_string(),
            name => name,
        };
        let rust = match array {
            None => decl.rust,
            Some(length) => {
                format!("[{}; {}]", decl.rust, length.parse::<usize>().ok()?)
            }
        };
        out.push((name, rust));
    }
    Some(out)
}

/// Constants with their values, in header order.
fn constants(macros: &[(String, String)]) -> Vec<(String, &'static str, i128)> {
    let mut known = BTreeMap::new();
    let mut out = Vec::new();
    for (name, text) in macros {
        let Some(value) = c::evaluate(text, &known) else { continue };
        if known.insert(name.clone(), value).is_none() {
            out.push((name.clone(), constant_type(name, text, value), value));
        }
    }
    out
}

/// Type of a constant: the headers' macros have none. Statuses are `cl_int`, bits `cl_bitfield` (64 bits, as in property lists), and all
/// others, such as names of infos, `cl_uint`.
fn constant_type(name: &str, text: &str, value: i128) -> &'static str {
    const STATUS: [&str; 5] = ["CL_SUCCESS", "CL_COMPLETE", "CL_RUNNING", "CL_SUBMITTED", "CL_QUEUED"];
    if value < 0 || STATUS.contains(&name) {
        if value < i128::from(i32::MIN) { "cl_long" } else { "cl_int" }
    } else if text.contains("<<") || value > i128::from(u32::MAX) {
        "cl_bitfield"
    } else {
        "cl_uint"
    }
}

fn signatures(functions: &BTreeMap<String, c::Decl>) -> String {
    let mut out = format!("// {}\n", crate::generate::banner(MADE_FROM));
    out.push_str(
        "\n//! Every OpenCL function, once: `opencl_signatures!(callback)` calls `callback!` with the whole list.\n\n\
         macro_rules! opencl_signatures {\n    ($callback:ident) => {\n        $callback! {\n",
    );
    for (name, decl) in functions {
        let params: Vec<String> = decl.params.iter().flatten().map(|p| format!("{}: {}", p.name, p.rust)).collect();
        let _ = writeln!(out, "            fn {name}({}){};", params.join(", "), c::arrow(&decl.rust));
    }
    out.push_str("        }\n    };\n}\npub(crate) use opencl_signatures;\n");
    out
}

fn types(typedefs: &str, constants: &[(String, &'static str, i128)]) -> String {
    let mut out = format!("// {}\n", crate::generate::banner(MADE_FROM));
    out.push_str(
        "\n//! Types and constants of the OpenCL API. Handles are plain pointers: the library only passes them on.\n\n\
         #![allow(dead_code, unused_imports, non_camel_case_types, non_snake_case)]\n\n\
         pub(crate) use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};\n\n",
    );
    for (name, rust) in SCALARS {
        let _ = writeln!(out, "pub(crate) type {name} = {rust};");
    }
    out.push('\n');
    out.push_str(typedefs);
    out.push('\n');
    for (name, rust, value) in constants {
        let shown = if *value > 9 { format!("{value:#x}") } else { value.to_string() };
        let _ = writeln!(out, "pub(crate) const {name}: {rust} = {shown};");
    }
    out
}

/// Types of cl_platform.h, by the platform's own rules rather than by parsing its many branches.
const SCALARS: [(&str, &str); 14] = [
    ("cl_char", "i8"),
    ("cl_uchar", "u8"),
    ("cl_short", "i16"),
    ("cl_ushort", "u16"),
    ("cl_int", "i32"),
    ("cl_uint", "u32"),
    ("cl_long", "i64"),
    ("cl_ulong", "u64"),
    ("cl_half", "u16"),
    ("cl_float", "f32"),
    ("cl_double", "f64"),
    ("cl_GLuint", "u32"),
    ("cl_GLint", "i32"),
    ("cl_GLenum", "u32"),
];

/// Formats generated text with the tree's settings, so that `cargo fmt --check` accepts it.
pub(crate) fn rustfmt(text: &str) -> Result<String, String> {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config", "max_width=120,use_small_heuristics=Max"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("rustfmt: {e}"))?;
    let mut stdin = child.stdin.take().ok_or("rustfmt: no stdin")?;
    let text = text.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|e| format!("rustfmt: {e}"))?;
    writer.join().map_err(|_| "rustfmt: writer failed")?.map_err(|e| format!("rustfmt: {e}"))?;
    if !output.status.success() {
        return Err("rustfmt refused the generated text".into());
    }
    String::from_utf8(output.stdout).map_err(|e| format!("rustfmt: {e}"))
}
