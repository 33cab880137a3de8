//! Calls in the bodies of functions, with the types of expressions as far as they are evident.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Block, Expr, Item, Pat, Stmt, Token};

use super::index::{Index, Named, Scope, imported, names};
use super::tree::{Source, is_test};
use super::types::{Ty, closure_takes, foreign, returned};

/// Methods that types of the standard library have as well: calls of these count only where the receiver's type is evident.
const STANDARD: &str = "add all and any append as_mut as_ref as_slice as_str borrow borrow_mut bytes capacity chain chars clear clone cloned \
    close cmp collect connect contains contains_key copied count default deref deref_mut drain drop end entry eq err expect extend fetch_add \
    file_name filter filter_map find find_map first flatten flush fmt fold from get get_mut get_or_init hash id index insert into into_inner into_iter \
    is_dir is_empty is_file is_none is_some is_some_and iter iter_mut join keys kill kind last len line lines load lock map map_err max metadata min name new next next_back \
    ok or or_default or_else or_insert or_insert_with parent parse path peek poll pop pop_back pop_front position push push_back push_front push_str read recv \
    remove replace reserve resize retain rev run send set skip sleep sort spawn split start starts_with status step stop store sub sum swap take then time to_owned to_string \
    to_vec trim truncate try_from try_into unlock unwrap unwrap_or update values values_mut wait with with_capacity wake write write_all zip";

/// A call from one file into another one of its crate.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) line: usize,
    /// Function that it stands in.
    pub(super) caller: String,
    pub(super) called: String,
}

/// Calls in a crate.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) between: BTreeMap<(usize, usize), Vec<Call>>,
    /// Number of calls of the crate's functions whose target was found, including calls within a file.
    pub(super) found: usize,
    /// File, line and name of possible calls whose target was not found.
    pub(super) unknown: Vec<(usize, usize, String)>,
}

/// Calls in all files of a crate.
pub(super) fn calls(sources: &[Source], index: &Index<'_>, package: usize) -> Calls {
    let mut calls = Calls::default();
    let standard: BTreeSet<&str> = STANDARD.split_whitespace().collect();
    for (file, source) in sources.iter().enumerate().filter(|(_, source)| source.package == package) {
        let scope = Scope { module: source.module.clone(), ..Scope::default() };
        let mut walk = Walk {
            sources,
            index,
            standard: &standard,
            file,
            package,
            scope,
            names: vec![HashMap::new()],
            caller: String::new(),
            calls: &mut calls,
        };
        walk.items(&source.syntax.items);
    }
    calls
}

struct Walk<'a> {
    sources: &'a [Source],
    index: &'a Index<'a>,
    standard: &'a BTreeSet<&'a str>,
    file: usize,
    package: usize,
    scope: Scope,
    /// Types of local names, block by block.
    names: Vec<HashMap<String, Ty>>,
    caller: String,
    calls: &'a mut Calls,
}

impl Walk<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            self.item(item);
        }
    }

    fn item(&mut self, item: &Item) {
        let before = self.scope.clone();
        match item {
            Item::Mod(inner) if !is_test(&inner.attrs) => {
                if let Some((_, items)) = &inner.content {
                    self.scope = Scope { module: format!("{}::{}", before.module, inner.ident), ..Scope::default() };
                    self.items(items);
                }
            }
            Item::Fn(function) if !is_test(&function.attrs) => self.function(&function.sig, &function.block),
            Item::Impl(block) if !is_test(&block.attrs) => {
                let (scope, _) = self.index.block(&before.module, block);
                self.scope = Scope { imports: before.imports.clone(), ..scope };
                for item in &block.items {
                    match item {
                        syn::ImplItem::Fn(method) if !is_test(&method.attrs) => {
                            self.function(&method.sig, &method.block);
                        }
                        syn::ImplItem::Const(constant) => drop(self.expression(&constant.expr)),
                        _ => {}
                    }
                }
            }
            Item::Trait(declared) => {
                let own = self.index.resolve(&before, &[declared.ident.to_string()]);
                if let Some(Named::Type(number)) = own {
                    self.scope.own = Some(Ty::Dyn(vec![number]));
                }
                for item in &declared.items {
                    if let syn::TraitItem::Fn(syn::TraitItemFn { sig, default: Some(block), .. }) = item {
                        self.function(sig, block);
                    }
                }
            }
            Item::Static(value) => drop(self.expression(&value.expr)),
            Item::Const(value) => drop(self.expression(&value.expr)),
            Item::Macro(used) if used.ident.is_some() => self.tokens(used.mac.tokens.clone()),
            Item::Macro(used) => self.macro_used(&used.mac),
            _ => {}
        }
        self.scope = before;
    }

    fn function(&mut self, signature: &syn::Signature, block: &Block) {
        let scope = self.index.generic(self.scope.clone(), &signature.generics);
        let before = std::mem::replace(&mut self.scope, scope);
        let outer = std::mem::replace(&mut self.caller, signature.ident.to_string());
        let names = std::mem::replace(&mut self.names, vec![HashMap::new()]);
        for input in &signature.inputs {
            match input {
                syn::FnArg::Receiver(_) => {
                    let own = self.scope.own.clone().unwrap_or(Ty::Unknown);
                    self.name("self", own);
                }
                syn::FnArg::Typed(input) => {
                    let ty = self.index.read(&self.scope, &input.ty);
                    self.bind(&input.pat, &ty);
                }
            }
        }
        self.block(block);
        (self.scope, self.caller, self.names) = (before, outer, names);
    }

    fn name(&mut self, name: &str, ty: Ty) {
        if let Some(names) = self.names.last_mut() {
            names.insert(name.to_string(), ty);
        }
    }

    fn local(&self, name: &str) -> Option<&Ty> {
        self.names.iter().rev().find_map(|names| names.get(name))
    }

    /// Binds the names of a pattern to the parts of a type.
    fn bind(&mut self, pattern: &Pat, ty: &Ty) {
        match pattern {
            Pat::Ident(name) => {
                // A name in upper case is a unit variant or a constant, so that it binds nothing.
                if !name.ident.to_string().starts_with(char::is_uppercase) {
                    self.name(&name.ident.to_string(), ty.clone());
                }
                if let Some((_, pattern)) = &name.subpat {
                    self.bind(pattern, ty);
                }
            }
            Pat::Reference(inner) => self.bind(&inner.pat, ty),
            Pat::Paren(inner) => self.bind(&inner.pat, ty),
            Pat::Guard(inner) => {
                self.bind(&inner.pat, ty);
                self.expression(&inner.guard);
            }
            Pat::Type(inner) => {
                let ty = self.index.read(&self.scope, &inner.ty);
                self.bind(&inner.pat, &ty);
            }
            Pat::Or(cases) => cases.cases.iter().for_each(|case| self.bind(case, ty)),
            Pat::Slice(parts) => parts.elems.iter().for_each(|part| self.bind(part, &ty.element())),
            Pat::Tuple(parts) => {
                for (at, part) in parts.elems.iter().enumerate() {
                    self.bind(part, &ty.argument(at));
                }
            }
            Pat::TupleStruct(parts) => {
                for (at, part) in parts.elems.iter().enumerate() {
                    let ty = self.part(&parts.path, ty, &at.to_string());
                    self.bind(part, &ty);
                }
            }
            Pat::Struct(parts) => {
                for field in &parts.fields {
                    let ty = self.part(&parts.path, ty, &member(&field.member));
                    self.bind(&field.pat, &ty);
                }
            }
            _ => {}
        }
    }

    /// Type of a field in a pattern of this path on a value of this type.
    fn part(&self, path: &syn::Path, ty: &Ty, field: &str) -> Ty {
        let last = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if let (Ty::Std(..), "Some" | "Ok") = (ty, last.as_str()) {
            return ty.argument(0);
        }
        if let (Ty::Std(..), "Err") = (ty, last.as_str()) {
            return ty.argument(1);
        }
        if last == "Self" || path.segments.first().is_some_and(|first| first.ident == "Self") {
            return match (&self.scope.own, path.segments.len()) {
                (Some(Ty::Own(number, arguments)), 2) => self.index.variant_field(*number, arguments, &last, field),
                (Some(own), 1) => self.index.field(own, field),
                _ => Ty::Unknown,
            };
        }
        let arguments = if let Ty::Own(_, arguments) = ty { arguments.as_slice() } else { &[] };
        match self.index.resolve(&self.scope, &names(path)) {
            Some(Named::Variant(number, variant)) => self.index.variant_field(number, arguments, &variant, field),
            Some(Named::Type(number)) => self.index.field(&Ty::Own(number, arguments.to_vec()), field),
            _ => Ty::Unknown,
        }
    }

    fn block(&mut self, block: &Block) -> Ty {
        self.names.push(HashMap::new());
        let imports = self.scope.imports.clone();
        for statement in &block.stmts {
            if let Stmt::Item(Item::Use(used)) = statement {
                imported(&used.tree, &mut Vec::new(), &mut self.scope.imports, &mut Vec::new());
            }
        }
        let mut last = Ty::Foreign;
        for statement in &block.stmts {
            last = Ty::Foreign;
            match statement {
                Stmt::Local(local) => self.declared(local),
                Stmt::Item(item) => {
                    match item {
                        Item::Fn(inner) => {
                            self.name(&inner.sig.ident.to_string(), Ty::Fn(Vec::new(), Box::new(Ty::Unknown)))
                        }
                        Item::Const(syn::ItemConst { ident, ty, .. })
                        | Item::Static(syn::ItemStatic { ident, ty, .. }) => {
                            let ty = self.index.read(&self.scope, ty);
                            self.name(&ident.to_string(), ty);
                        }
                        _ => {}
                    }
                    self.item(item);
                }
                Stmt::Expr(expression, end) => {
                    let ty = self.expression(expression);
                    if end.is_none() {
                        last = ty;
                    }
                }
                Stmt::Macro(used) => self.macro_used(&used.mac),
            }
        }
        self.scope.imports = imports;
        self.names.pop();
        last
    }

    fn declared(&mut self, local: &syn::Local) {
        let mut ty = Ty::Unknown;
        if let Some(init) = &local.init {
            ty = self.expression(&init.expr);
            if let Some((_, otherwise)) = &init.diverge {
                self.expression(otherwise);
            }
        }
        self.bind(&local.pat, &ty);
    }

    /// Walks through a condition and its block, in which the names of the condition's `let`s are bound.
    fn branch(&mut self, condition: &Expr, then: &Block) -> Ty {
        self.names.push(HashMap::new());
        self.expression(condition);
        let ty = self.block(then);
        self.names.pop();
        ty
    }

    /// Walks through an expression and returns its type.
    fn expression(&mut self, expression: &Expr) -> Ty {
        match expression {
            Expr::Path(path) => self.path(path),
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method_call(call),
            Expr::Field(field) => {
                let of = self.expression(&field.base);
                self.index.field(&of, &member(&field.member))
            }
            Expr::Closure(closure) => self.closure(closure, &[]),
            Expr::Block(inner) => self.block(&inner.block),
            Expr::Unsafe(inner) => self.block(&inner.block),
            Expr::Const(inner) => self.block(&inner.block),
            Expr::Async(inner) => self.block(&inner.block),
            Expr::TryBlock(inner) => self.block(&inner.block),
            Expr::Loop(inner) => {
                self.block(&inner.body);
                Ty::Unknown
            }
            Expr::If(inner) => {
                let ty = self.branch(&inner.cond, &inner.then_branch);
                let other = inner.else_branch.as_ref().map(|(_, other)| self.expression(other));
                if ty == Ty::Unknown || is_vague(&ty) { other.unwrap_or(ty) } else { ty }
            }
            Expr::While(inner) => self.branch(&inner.cond, &inner.body),
            Expr::ForLoop(inner) => {
                let over = self.expression(&inner.expr);
                let item = self.iterated(&over);
                self.names.push(HashMap::new());
                self.bind(&inner.pat, &item);
                self.block(&inner.body);
                self.names.pop();
                Ty::Foreign
            }
            Expr::Match(inner) => self.matched(inner),
            Expr::Let(inner) => {
                let ty = self.expression(&inner.expr);
                self.bind(&inner.pat, &ty);
                Ty::Foreign
            }
            Expr::Reference(inner) => self.expression(&inner.expr),
            Expr::RawAddr(inner) => self.expression(&inner.expr),
            Expr::Paren(inner) => self.expression(&inner.expr),
            Expr::Group(inner) => self.expression(&inner.expr),
            Expr::Await(inner) => self.expression(&inner.base),
            Expr::Try(inner) => self.expression(&inner.expr).argument(0),
            Expr::Unary(inner) => {
                let ty = self.expression(&inner.expr);
                match (&inner.op, &ty) {
                    (syn::UnOp::Deref(_), Ty::Own(number, _)) => self.index.target(*number).cloned().unwrap_or(ty),
                    _ => ty,
                }
            }
            Expr::Cast(inner) => {
                self.expression(&inner.expr);
                self.index.read(&self.scope, &inner.ty)
            }
            Expr::Index(inner) => {
                let of = self.expression(&inner.expr);
                let at = self.expression(&inner.index);
                if matches!(*inner.index, Expr::Range(_)) || at == Ty::Std("Range", Vec::new()) {
                    of
                } else {
                    of.indexed()
                }
            }
            Expr::Struct(inner) => {
                for field in &inner.fields {
                    self.expression(&field.expr);
                }
                inner.rest.iter().for_each(|rest| drop(self.expression(rest)));
                match self.index.resolve(&self.scope, &names(&inner.path)) {
                    Some(Named::Variant(number, _)) => Ty::Own(number, Vec::new()),
                    _ => self.index.read_path(&self.scope, &inner.path),
                }
            }
            Expr::Tuple(parts) => Ty::Tuple(parts.elems.iter().map(|part| self.expression(part)).collect()),
            Expr::Array(parts) => {
                let types: Vec<_> = parts.elems.iter().map(|part| self.expression(part)).collect();
                Ty::Std("Vec", vec![types.into_iter().next().unwrap_or(Ty::Unknown)])
            }
            Expr::Repeat(inner) => {
                self.expression(&inner.len);
                Ty::Std("Vec", vec![self.expression(&inner.expr)])
            }
            Expr::Assign(inner) => self.both(&inner.left, &inner.right),
            Expr::Binary(inner) => self.both(&inner.left, &inner.right),
            Expr::Range(inner) => {
                inner.start.iter().chain(&inner.end).for_each(|end| drop(self.expression(end)));
                Ty::iter(Ty::Foreign)
            }
            Expr::Return(syn::ExprReturn { expr, .. }) | Expr::Break(syn::ExprBreak { expr, .. }) => {
                expr.iter().for_each(|value| drop(self.expression(value)));
                Ty::Unknown
            }
            Expr::Macro(used) => {
                self.macro_used(&used.mac);
                let name = used.mac.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
                match name.as_str() {
                    "format" | "matches" | "concat" | "env" | "include_str" | "write" | "writeln" => Ty::Foreign,
                    "vec" => Ty::Std("Vec", vec![Ty::Unknown]),
                    _ => Ty::Unknown,
                }
            }
            Expr::Lit(_) => Ty::Foreign,
            _ => Ty::Unknown,
        }
    }

    fn both(&mut self, left: &Expr, right: &Expr) -> Ty {
        self.expression(left);
        self.expression(right);
        Ty::Foreign
    }

    /// Type of the items that `for` takes out of a value.
    fn iterated(&mut self, over: &Ty) -> Ty {
        let Ty::Own(number, _) = over else { return over.element() };
        for name in ["next", "into_iter"] {
            if let Some(function) = self.index.method(*number, name).first() {
                let ty = self.index.returned(*function, over);
                return ty.element();
            }
        }
        Ty::Unknown
    }

    fn matched(&mut self, inner: &syn::ExprMatch) -> Ty {
        let of = self.expression(&inner.expr);
        let mut ty = Ty::Unknown;
        for arm in &inner.arms {
            self.names.push(HashMap::new());
            self.bind(&arm.pat, &of);
            let arm = self.expression(&arm.body);
            self.names.pop();
            if ty == Ty::Unknown || is_vague(&ty) {
                ty = arm;
            }
        }
        ty
    }

    fn closure(&mut self, closure: &syn::ExprClosure, takes: &[Ty]) -> Ty {
        self.names.push(HashMap::new());
        for (at, input) in closure.inputs.iter().enumerate() {
            self.bind(input, takes.get(at).unwrap_or(&Ty::Unknown));
        }
        let ty = self.expression(&closure.body);
        self.names.pop();
        let ty = match &closure.output {
            syn::ReturnType::Type(_, written) => self.index.read(&self.scope, written),
            syn::ReturnType::Default => ty,
        };
        Ty::Fn(Vec::new(), Box::new(ty))
    }

    /// Walks through arguments; `takes` are the types that the callee takes.
    fn arguments(&mut self, arguments: &Punctuated<Expr, Token![,]>, takes: &[Ty]) -> Vec<Ty> {
        let mut types = Vec::new();
        for (at, argument) in arguments.iter().enumerate() {
            types.push(match (argument, takes.get(at)) {
                (Expr::Closure(closure), Some(Ty::Fn(takes, _))) => self.closure(closure, takes),
                _ => self.expression(argument),
            });
        }
        types
    }

    fn call(&mut self, call: &syn::ExprCall) -> Ty {
        let Expr::Path(path) = &*call.func else {
            let ty = self.expression(&call.func);
            self.arguments(&call.args, &[]);
            return ty.returned();
        };
        let Some((function, receiver)) = self.called(path) else {
            let local = path.path.get_ident().and_then(|name| self.local(&name.to_string()).cloned());
            if let Some(local) = local {
                let takes = if let Ty::Fn(takes, _) = &local { takes.clone() } else { Vec::new() };
                self.arguments(&call.args, &takes);
                return local.returned();
            }
            let given = self.arguments(&call.args, &[]);
            return self.built(&path.path, &given);
        };
        let mut takes = self.index.takes(function, &receiver);
        if self.index.functions[function].is_method {
            takes.insert(0, Ty::Unknown);
        }
        self.arguments(&call.args, &takes);
        self.index.returned(function, &receiver)
    }

    /// Value of a call of no function of the workspace: a tuple struct, a variant, or a function of another crate.
    fn built(&self, path: &syn::Path, given: &[Ty]) -> Ty {
        let all = names(path);
        let last = all.last().map_or("", String::as_str);
        let first = || given.first().cloned().unwrap_or(Ty::Unknown);
        match last {
            "Some" => return Ty::option(first()),
            "Ok" => return Ty::Std("Result", vec![first(), Ty::Unknown]),
            "Err" => return Ty::Std("Result", vec![Ty::Unknown, first()]),
            "Reverse" => return Ty::Std("Reverse", vec![first()]),
            "Self" => return self.scope.own.clone().unwrap_or(Ty::Unknown),
            _ => {}
        }
        let of = all.len().checked_sub(2).map_or("", |at| all[at].as_str());
        match self.index.resolve(&self.scope, &all) {
            Some(Named::Type(number) | Named::Variant(number, _)) => return Ty::Own(number, Vec::new()),
            Some(Named::Foreign(_)) => {}
            // The called function is defined by a macro.
            None if of.is_empty() => return Ty::Unknown,
            _ if of == "Self" && last.starts_with(char::is_uppercase) => {
                return self.scope.own.clone().unwrap_or(Ty::Unknown);
            }
            None if self.index.resolve(&self.scope, &all[..all.len() - 1]).is_none() => {}
            _ => return Ty::Unknown,
        }
        match of {
            "Box" | "Rc" | "Arc" | "Pin" | "ManuallyDrop" if last != "default" => first(),
            "RefCell" | "Cell" | "UnsafeCell" => Ty::Std("Cell", vec![first()]),
            "Mutex" | "RwLock" => Ty::Std("Lock", vec![first()]),
            "mem" if matches!(last, "take" | "replace") => first(),
            "iter" if matches!(last, "once" | "repeat" | "repeat_n") => Ty::iter(first()),
            _ if given.iter().all(is_foreign) && !returns_anything(last) && !last.starts_with("from_") => {
                // The value is a container with contents that are not known yet, or contains no type of the workspace.
                match foreign(of, vec![Ty::Unknown, Ty::Unknown]) {
                    Ty::Unknown | Ty::Foreign => Ty::Foreign,
                    container => container,
                }
            }
            _ => Ty::Unknown,
        }
    }

    /// Walks through a path: a local name, or a function, which then counts as called.
    fn path(&mut self, path: &syn::ExprPath) -> Ty {
        if let Some(name) = path.path.get_ident()
            && let Some(ty) = self.local(&name.to_string())
        {
            return ty.clone();
        }
        if let Some((function, receiver)) = self.called(path) {
            let takes = self.index.takes(function, &receiver);
            return Ty::Fn(takes, Box::new(self.index.returned(function, &receiver)));
        }
        match self.index.resolve(&self.scope, &names(&path.path)) {
            Some(Named::Value(value)) => self.index.value_type(value),
            Some(Named::Variant(number, _)) => Ty::Own(number, Vec::new()),
            Some(Named::Type(number)) => Ty::Fn(Vec::new(), Box::new(Ty::Own(number, Vec::new()))),
            Some(Named::Foreign(_)) => Ty::Unknown,
            _ => match names(&path.path).as_slice() {
                [own, last] if own == "Self" && last.chars().any(char::is_lowercase) => {
                    self.scope.own.clone().unwrap_or(Ty::Unknown)
                }
                _ => Ty::Unknown,
            },
        }
    }

    /// Enters the call of the function that a path names. Returns the function and the type in front of its name.
    fn called(&mut self, path: &syn::ExprPath) -> Option<(usize, Ty)> {
        let line = path.path.segments.last()?.ident.span().start().line;
        let all = names(&path.path);
        let (last, before) = all.split_last()?;
        if before.is_empty() && self.local(last).is_some() {
            return None;
        }
        let mut of = Ty::Unknown;
        let mut found = Vec::new();
        if let Some(own) = &path.qself {
            of = self.index.read(&self.scope, &own.ty);
            found = self.methods(&of, last);
            if found.is_empty()
                && let Some(Named::Function(function)) = self.index.resolve(&self.scope, &all)
            {
                found = vec![function];
            }
        } else if before.len() == 1 && (before[0] == "Self" || self.scope.parameters.contains_key(&before[0])) {
            let own = if before[0] == "Self" { self.scope.own.as_ref() } else { self.scope.parameters.get(&before[0]) };
            of = own.cloned().unwrap_or(Ty::Unknown);
            found = self.methods(&of, last);
        } else if let Some(Named::Function(function)) = self.index.resolve(&self.scope, &all) {
            found = vec![function];
            if let Some(Named::Type(number)) = self.index.resolve(&self.scope, before) {
                let mut ty = path.path.clone();
                ty.segments.pop();
                ty.segments.pop_punct();
                of = self.index.read_path(&self.scope, &ty);
                if of == Ty::Unknown {
                    of = Ty::Own(number, Vec::new());
                }
                if let Ty::Own(..) = of {
                    let exact = self.methods(&of, last);
                    if !exact.is_empty() {
                        found = exact;
                    }
                }
            }
        }
        let first = *found.first()?;
        self.enter(&found, line);
        Some((first, of))
    }

    /// Methods and functions of that name of a known type.
    fn methods(&self, of: &Ty, name: &str) -> Vec<usize> {
        let mut found = match of {
            Ty::Own(number, _) => self.index.method(*number, name),
            Ty::Dyn(traits) => traits.iter().flat_map(|number| self.index.method(*number, name)).collect(),
            Ty::Unknown => Vec::new(),
            Ty::Foreign | Ty::Param(_) | Ty::Std(..) | Ty::Tuple(_) | Ty::Fn(..) => self.index.extension(name).to_vec(),
        };
        // The method may be of an extension trait or a blanket implementation.
        if found.is_empty() && matches!(of, Ty::Own(..) | Ty::Dyn(_)) {
            found = self.index.extension(name).to_vec();
        }
        found
    }

    fn method_call(&mut self, call: &syn::ExprMethodCall) -> Ty {
        let receiver = self.expression(&call.receiver);
        let name = call.method.to_string();
        let line = call.method.span().start().line;
        let mut found = self.methods(&receiver, &name);
        if receiver == Ty::Unknown {
            found = self.by_name(&name, line);
        }
        if let Some(first) = found.first().copied() {
            self.enter(&found, line);
            let takes = self.index.takes(first, &receiver);
            self.arguments(&call.args, &takes);
            return self.index.returned(first, &receiver);
        }
        let closure = closure_takes(&receiver, &name);
        let mut given = Vec::new();
        for argument in &call.args {
            given.push(match argument {
                Expr::Closure(inner) => self.closure(inner, &closure),
                _ => self.expression(argument),
            });
        }
        if let Some(turbofish) = &call.turbofish
            && let Some(syn::GenericArgument::Type(ty)) = turbofish.args.first()
        {
            let ty = self.index.read(&self.scope, ty);
            return if name == "collect" || name == "sum" { ty } else { Ty::Std("Result", vec![ty, Ty::Foreign]) };
        }
        match (&receiver, name.as_str()) {
            (_, "clone" | "to_owned") => receiver,
            (Ty::Foreign, "then" | "then_some") => {
                let last = given.last().cloned().unwrap_or(Ty::Unknown);
                Ty::option(if let Ty::Fn(_, inner) = last { *inner } else { last })
            }
            (Ty::Foreign, _) if given.iter().all(is_foreign) && !returns_anything(&name) => Ty::Foreign,
            _ => returned(&receiver, &name, &given),
        }
    }

    /// Methods for a call on an unknown type. The call counts only if one file, or one trait, defines all methods of that name, and no type
    /// of the standard library has one.
    fn by_name(&mut self, name: &str, line: usize) -> Vec<usize> {
        let Some(all) = self.index.by_name.get(name) else { return Vec::new() };
        let package = |function: &usize| self.sources[self.index.functions[*function].file].package;
        if !all.iter().any(|function| package(function) == self.package) {
            return Vec::new();
        }
        let files: BTreeSet<_> = all.iter().map(|function| self.index.functions[*function].file).collect();
        let of_trait = self.index.functions[all[0]].of_trait;
        let same_trait = of_trait.is_some() && all.iter().all(|one| self.index.functions[*one].of_trait == of_trait);
        if self.standard.contains(name) || (files.len() > 1 && !same_trait) {
            self.calls.unknown.push((self.file, line, name.to_string()));
            return Vec::new();
        }
        all.clone()
    }

    /// Enters calls of these functions and, for a function of a trait that another file declares, of all implementations.
    fn enter(&mut self, found: &[usize], line: usize) {
        let behind = |function: &usize| {
            // The implementations know of a trait that is declared here; this file need not know of them.
            let is_inverted = self.index.is_declared(*function) && self.index.functions[*function].file == self.file;
            if is_inverted { vec![*function] } else { self.index.behind(*function) }
        };
        let all: BTreeSet<usize> = found.iter().flat_map(behind).collect();
        let mut is_own = false;
        for function in all {
            let called = &self.index.functions[function];
            if self.sources[called.file].package != self.package {
                continue;
            }
            is_own = true;
            if called.file != self.file {
                let call = Call { line, caller: self.caller.clone(), called: called.name.clone() };
                self.calls.between.entry((self.file, called.file)).or_default().push(call);
            }
        }
        self.calls.found += usize::from(is_own);
    }

    /// Reads the arguments of a macro as expressions, statements or items, whichever they are.
    fn macro_used(&mut self, used: &syn::Macro) {
        let tokens = used.tokens.clone();
        if tokens.is_empty() {
            return;
        }
        if let Ok(expressions) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(tokens.clone()) {
            expressions.iter().for_each(|one| drop(self.expression(one)));
        } else if let Ok(statements) = Block::parse_within.parse2(tokens.clone()) {
            self.block(&Block { brace_token: syn::token::Brace::default(), stmts: statements });
        } else if let Ok(file) = syn::parse2::<syn::File>(tokens.clone()) {
            self.items(&file.items);
        } else {
            self.tokens(tokens);
        }
    }

    /// Finds calls in tokens that are no Rust code: a macro's definition, or arguments in a syntax of the macro's own.
    fn tokens(&mut self, tokens: TokenStream) {
        let all: Vec<TokenTree> = tokens.into_iter().collect();
        let mut path: Vec<String> = Vec::new();
        let (mut is_method, mut goes_on) = (false, false);
        for (at, token) in all.iter().enumerate() {
            match token {
                TokenTree::Ident(name) => {
                    let is_call = matches!(all.get(at + 1), Some(TokenTree::Group(group)) if group.delimiter() == proc_macro2::Delimiter::Parenthesis);
                    let line = name.span().start().line;
                    if !goes_on {
                        path.clear();
                    }
                    path.push(name.to_string());
                    if is_call && is_method {
                        let found = self.by_name(&name.to_string(), line);
                        self.enter(&found, line);
                    } else if is_call && let Some(Named::Function(function)) = self.index.resolve(&self.scope, &path) {
                        self.enter(&[function], line);
                    }
                    (is_method, goes_on) = (false, false);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => goes_on = !path.is_empty(),
                TokenTree::Punct(punct) => {
                    path.clear();
                    (is_method, goes_on) = (punct.as_char() == '.', false);
                }
                TokenTree::Group(group) => {
                    path.clear();
                    (is_method, goes_on) = (false, false);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) => path.clear(),
            }
        }
    }
}

/// Names of functions of other crates that return whatever the caller wants.
fn returns_anything(name: &str) -> bool {
    const NAMES: [&str; 15] = [
        "parse",
        "into",
        "try_into",
        "collect",
        "sum",
        "product",
        "default",
        "from",
        "try_from",
        "deserialize",
        "downcast_ref",
        "downcast_mut",
        "downcast",
        "zeroed",
        "transmute",
    ];
    NAMES.contains(&name)
}

/// Reports whether nothing of the workspace can be in a value of this type.
fn is_foreign(ty: &Ty) -> bool {
    match ty {
        Ty::Foreign => true,
        Ty::Std(_, parts) | Ty::Tuple(parts) => parts.iter().all(is_foreign),
        Ty::Fn(_, returned) => is_foreign(returned),
        Ty::Unknown | Ty::Param(_) | Ty::Own(..) | Ty::Dyn(_) => false,
    }
}

/// Reports whether a part of the type is unknown.
fn is_vague(ty: &Ty) -> bool {
    matches!(ty, Ty::Std(_, arguments) if arguments.contains(&Ty::Unknown)) || *ty == Ty::Foreign
}

fn member(member: &syn::Member) -> String {
    match member {
        syn::Member::Named(name) => name.to_string(),
        syn::Member::Unnamed(index) => index.index.to_string(),
    }
}
