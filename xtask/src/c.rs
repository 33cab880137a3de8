//! Just enough C to read the vendors' headers: tokens, declarators and integer constant expressions.

use std::collections::BTreeMap;

/// One C token: an identifier or number, or a single punctuation character (`<<` is one token).
pub(crate) type Token = String;

/// Splits preprocessed C into tokens. String literals become one token with their quotes.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let c = bytes[i];
        let start = i;
        if c.is_ascii_whitespace() {
            i += 1;
            continue;
        } else if c == b'_' || c.is_ascii_alphanumeric() {
            while i < bytes.len() && (bytes[i] == b'_' || bytes[i].is_ascii_alphanumeric()) {
                i += 1;
            }
        } else if c == b'"' {
            i += 1;
            while i < bytes.len() && bytes[i] != b'"' {
                i += if bytes[i] == b'\\' { 2 } else { 1 };
            }
            i += 1;
        } else if bytes[i..].starts_with(b"<<") {
            i += 2;
        } else {
            i += 1;
        }
        out.push(text[start..i.min(bytes.len())].to_string());
    }
    out
}

/// A declared thing: its name (if it has one) and its Rust type. For a function, `params` is set and `rust` is what it
/// returns.
#[derive(Debug)]
pub(crate) struct Decl {
    pub(crate) name: Option<String>,
    pub(crate) rust: String,
    pub(crate) params: Option<Vec<Param>>,
}

/// One parameter: name and Rust type.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) rust: String,
}

/// Reads one declaration without its `extern`, `typedef` and closing semicolon: `cl_int clX(cl_mem a, …)`,
/// `void (*name)(int)`, `const cl_event * list`, `void * list[]`.
pub(crate) fn declaration(tokens: &[Token]) -> Result<Decl, String> {
    let mut at = 0;
    let base = base_type(tokens, &mut at)?;
    let mut rust = pointers(tokens, &mut at, base);
    match tokens.get(at).map(String::as_str) {
        None => Ok(Decl { name: None, rust: plain(rust), params: None }),
        // A pointer to function: ( * name ) ( params )
        Some("(") => {
            at += 1;
            if tokens.get(at).map(String::as_str) != Some("*") {
                return Err(format!("not a function pointer: {}", tokens.join(" ")));
            }
            at += 1;
            let mut name = None;
            if tokens.get(at).is_some_and(|t| t != ")") {
                name = Some(tokens[at].clone());
                at += 1;
            }
            if tokens.get(at).map(String::as_str) != Some(")") {
                return Err(format!("unclosed declarator: {}", tokens.join(" ")));
            }
            let params = parameters(&tokens[at + 1..])?;
            Ok(Decl { name, rust: plain(rust), params: Some(params) })
        }
        Some(_) => {
            let name = Some(tokens[at].clone());
            at += 1;
            match tokens.get(at).map(String::as_str) {
                Some("(") => {
                    let params = parameters(&tokens[at..])?;
                    Ok(Decl { name, rust: plain(rust), params: Some(params) })
                }
                Some("[") => {
                    rust.pointer();
                    Ok(Decl { name, rust: plain(rust), params: None })
                }
                None => Ok(Decl { name, rust: plain(rust), params: None }),
                Some(other) => Err(format!("unexpected {other:?} in: {}", tokens.join(" "))),
            }
        }
    }
}

/// The Rust type of a pointer to function.
pub(crate) fn callback(result: &str, params: &[Param]) -> String {
    let args: Vec<&str> = params.iter().map(|p| p.rust.as_str()).collect();
    format!("Option<unsafe extern \"C\" fn({}){}>", args.join(", "), arrow(result))
}

/// ` -> T`, or nothing for a function that returns nothing.
pub(crate) fn arrow(result: &str) -> String {
    if result == "c_void" { String::new() } else { format!(" -> {result}") }
}

/// A type under construction: what the next `*` points to, and whether that is const.
struct Type {
    rust: String,
    constant: bool,
}

impl Type {
    fn pointer(&mut self) {
        let kind = if self.constant { "const" } else { "mut" };
        self.rust = format!("*{kind} {}", self.rust);
        self.constant = false;
    }
}

fn plain(t: Type) -> String {
    t.rust
}

fn base_type(tokens: &[Token], at: &mut usize) -> Result<Type, String> {
    let mut constant = false;
    let mut words: Vec<&str> = Vec::new();
    while let Some(token) = tokens.get(*at) {
        match token.as_str() {
            "const" => constant = true,
            "struct" | "union" => {}
            "unsigned" | "signed" | "int" | "char" | "short" | "long" => words.push(token),
            name if words.is_empty() && name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) => {
                words.push(token);
            }
            _ => break,
        }
        *at += 1;
    }
    let words = words.join(" ");
    let rust = match words.as_str() {
        "" => return Err(format!("no type in: {}", tokens.join(" "))),
        "void" => "c_void",
        "char" => "c_char",
        "unsigned char" => "c_uchar",
        "int" => "c_int",
        "unsigned int" | "unsigned" => "c_uint",
        "short" => "i16",
        "unsigned short" => "u16",
        "long long" | "long long int" => "i64",
        "unsigned long long" | "unsigned long long int" => "u64",
        "size_t" => "usize",
        "intptr_t" => "isize",
        name if !name.contains(' ') => name,
        other => return Err(format!("unknown C type {other:?}")),
    };
    Ok(Type { rust: rust.to_string(), constant })
}

fn pointers(tokens: &[Token], at: &mut usize, mut base: Type) -> Type {
    while let Some(token) = tokens.get(*at) {
        match token.as_str() {
            "*" => base.pointer(),
            "const" => base.constant = true,
            _ => break,
        }
        *at += 1;
    }
    base
}

/// Parameters of `( … )`; `tokens` begins with the opening parenthesis and ends with its closing one.
fn parameters(tokens: &[Token]) -> Result<Vec<Param>, String> {
    let [open, inner @ .., close] = tokens else { return Err("no parameter list".into()) };
    if open != "(" || close != ")" {
        return Err(format!("not a parameter list: {}", tokens.join(" ")));
    }
    if inner.is_empty() || inner == ["void"] {
        return Ok(Vec::new());
    }
    let mut params = Vec::new();
    for (i, part) in split(inner).into_iter().enumerate() {
        let decl = declaration(part)?;
        let rust = match &decl.params {
            Some(inner) => callback(&decl.rust, inner),
            None => decl.rust,
        };
        let name = match decl.name.as_deref() {
            None => format!("arg{i}"),
            Some(name @ ("type" | "fn" | "mod")) => format!("{name}_"),
            Some(name) => name.to_string(),
        };
        params.push(Param { name, rust });
    }
    Ok(params)
}

/// Splits at commas outside parentheses.
fn split(tokens: &[Token]) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0i32, 0);
    for (i, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[start..]);
    parts
}

/// Value of an integer constant expression made of numbers, known names, `- ~ << | & + *` and parentheses; casts to `cl_…`
/// types are ignored. None for anything else (floating point, strings, function-like macros).
pub(crate) fn evaluate(text: &str, known: &BTreeMap<String, i128>) -> Option<i128> {
    let tokens: Vec<Token> = tokens(text);
    let mut at = 0;
    let value = binary(&tokens, &mut at, 0, known)?;
    (at == tokens.len()).then_some(value)
}

fn binary(tokens: &[Token], at: &mut usize, lowest: u8, known: &BTreeMap<String, i128>) -> Option<i128> {
    let mut left = unary(tokens, at, known)?;
    while let Some(op) = tokens.get(*at) {
        let level = match op.as_str() {
            "|" => 1,
            "&" => 2,
            "<<" => 3,
            "+" | "-" => 4,
            "*" => 5,
            _ => break,
        };
        if level < lowest {
            break;
        }
        *at += 1;
        let right = binary(tokens, at, level + 1, known)?;
        left = match op.as_str() {
            "|" => left | right,
            "&" => left & right,
            "<<" => left << right,
            "+" => left + right,
            "-" => left - right,
            _ => left * right,
        };
    }
    Some(left)
}

fn unary(tokens: &[Token], at: &mut usize, known: &BTreeMap<String, i128>) -> Option<i128> {
    let token = tokens.get(*at)?.as_str();
    *at += 1;
    match token {
        "-" => Some(-unary(tokens, at, known)?),
        "~" => Some(!unary(tokens, at, known)?),
        "(" if tokens.get(*at)?.starts_with("cl_") && tokens.get(*at + 1)? == ")" => {
            *at += 2;
            unary(tokens, at, known)
        }
        "(" => {
            let value = binary(tokens, at, 0, known)?;
            (tokens.get(*at)? == ")").then(|| *at += 1)?;
            Some(value)
        }
        name if known.contains_key(name) => known.get(name).copied(),
        number => {
            let digits = number.trim_end_matches(['u', 'U', 'l', 'L']);
            match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
                Some(hex) => i128::from_str_radix(hex, 16).ok(),
                None => digits.parse().ok(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> String {
        let decl = declaration(&tokens(text)).unwrap();
        match &decl.params {
            Some(params) => callback(&decl.rust, params),
            None => decl.rust,
        }
    }

    #[test]
    fn pointers_keep_their_constness() {
        assert_eq!(rust("const cl_event * list"), "*const cl_event");
        assert_eq!(rust("const char ** strings"), "*mut *const c_char");
        assert_eq!(rust("const void * const * values"), "*const *const c_void");
        assert_eq!(rust("void * svm_pointers[]"), "*mut *mut c_void");
        assert_eq!(rust("unsigned char *"), "*mut c_uchar");
    }

    #[test]
    fn callbacks_nest() {
        assert_eq!(
            rust("void ( * pfn)(cl_event event, cl_int status, void * user_data)"),
            "Option<unsafe extern \"C\" fn(cl_event, cl_int, *mut c_void)>"
        );
    }

    #[test]
    fn constants() {
        let known = BTreeMap::from([("CL_A".to_string(), 2)]);
        assert_eq!(evaluate("(1 << 31)", &known), Some(1 << 31));
        assert_eq!(evaluate("-1098", &known), Some(-1098));
        assert_eq!(evaluate("(CL_A | 0x10u)", &known), Some(18));
        assert_eq!(evaluate("((cl_ulong)1 << 2)", &known), Some(4));
        assert_eq!(evaluate("1.5f", &known), None);
        assert_eq!(evaluate("\"text\"", &known), None);
    }
}
