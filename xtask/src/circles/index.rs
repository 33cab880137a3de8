//! Index of all definitions in the crates, and resolution of paths in a module.

use std::collections::{BTreeSet, HashMap};

use syn::punctuated::Punctuated;
use syn::{
    FnArg, GenericArgument, GenericParam, Generics, Item, PathArguments, ReturnType, Type, TypeParamBound, UseTree,
};

use super::tree::{Source, is_test};
use super::types::{Ty, foreign};

/// Meaning of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Named {
    Module(String),
    Type(usize),
    Variant(usize, String),
    Function(usize),
    Value(usize),
    /// Definition in another crate, by its last name.
    Foreign(String),
}

/// Struct, enum, union, trait or alias.
pub(super) struct Defined<'a> {
    module: String,
    parameters: Vec<String>,
    generics: &'a Generics,
    fields: HashMap<String, &'a Type>,
    variants: HashMap<String, HashMap<String, &'a Type>>,
    alias: Option<&'a Type>,
    pub(super) is_trait: bool,
    /// Traits that the type implements, or supertraits of the trait.
    traits: Vec<usize>,
    /// Target of the type's `Deref`.
    target: Option<Ty>,
}

/// Function or method.
pub(super) struct Function<'a> {
    pub(super) name: String,
    /// Number of the function's file.
    pub(super) file: usize,
    pub(super) has_body: bool,
    /// Type or trait that it is a method of.
    pub(super) of: Option<usize>,
    /// Trait of the workspace that declares the method, or that the method implements.
    pub(super) of_trait: Option<usize>,
    /// True if it takes `self`.
    pub(super) is_method: bool,
    signature: &'a syn::Signature,
    scope: Scope,
}

/// Context of a type in the source: module, parameters and `Self`.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) module: String,
    pub(super) parameters: HashMap<String, Ty>,
    pub(super) own: Option<Ty>,
    /// Names that `use` inside a function brings in.
    pub(super) imports: HashMap<String, Vec<String>>,
}

#[derive(Default)]
struct Module {
    items: HashMap<String, Vec<Named>>,
    imports: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// All definitions.
#[derive(Default)]
pub(super) struct Index<'a> {
    modules: HashMap<String, Module>,
    pub(super) types: Vec<Defined<'a>>,
    pub(super) functions: Vec<Function<'a>>,
    /// Statics and constants: type and module.
    values: Vec<(&'a Type, String)>,
    /// Methods by type and name.
    methods: HashMap<(usize, String), Vec<usize>>,
    /// Methods by name: those with `self` only.
    pub(super) by_name: HashMap<String, Vec<usize>>,
    /// Methods that traits of the workspace give to types of others, by name.
    extensions: HashMap<String, Vec<usize>>,
    /// Functions and methods by the names that they have in each crate.
    pub(super) names: HashMap<usize, BTreeSet<String>>,
}

/// An `impl` block, kept until all types are known.
struct Block<'a> {
    file: usize,
    module: String,
    item: &'a syn::ItemImpl,
}

impl<'a> Index<'a> {
    pub(super) fn new(sources: &'a [Source]) -> Index<'a> {
        let mut index = Index::default();
        let (mut blocks, mut traits, mut free) = (Vec::new(), Vec::new(), Vec::new());
        for (file, source) in sources.iter().enumerate() {
            // A macro may declare the module.
            if let Some((above, name)) = source.module.rsplit_once("::") {
                index.enter(above, name.to_string(), Named::Module(source.module.clone()));
            }
            index.collect(file, &source.module, &source.syntax.items, &mut blocks, &mut traits, &mut free);
        }
        for (number, file, module, item) in traits {
            index.declare(number, file, &module, item);
        }
        // Targets of `Deref` and traits come first: methods are searched through them.
        for block in &blocks {
            index.relate(block);
        }
        for block in &blocks {
            index.implement(block);
        }
        for (file, module, signature) in free {
            let scope = index.generic(Scope { module: module.clone(), ..Scope::default() }, &signature.generics);
            let number = index.function(file, signature, scope, true, None, None);
            index.enter(&module, signature.ident.to_string(), Named::Function(number));
        }
        for function in &index.functions {
            index.names.entry(sources[function.file].package).or_default().insert(function.name.clone());
        }
        index
    }

    fn enter(&mut self, module: &str, name: String, named: Named) {
        self.modules.entry(module.into()).or_default().items.entry(name).or_default().push(named);
    }

    fn collect(
        &mut self,
        file: usize,
        module: &str,
        items: &'a [Item],
        blocks: &mut Vec<Block<'a>>,
        traits: &mut Vec<(usize, usize, String, &'a syn::ItemTrait)>,
        free: &mut Vec<(usize, String, &'a syn::Signature)>,
    ) {
        self.modules.entry(module.into()).or_default();
        for item in items {
            match item {
                Item::Mod(inner) if !is_test(&inner.attrs) => {
                    let path = format!("{module}::{}", inner.ident);
                    self.enter(module, inner.ident.to_string(), Named::Module(path.clone()));
                    if let Some((_, items)) = &inner.content {
                        self.collect(file, &path, items, blocks, traits, free);
                    }
                }
                Item::Struct(item) if !is_test(&item.attrs) => {
                    let number = self.define(module, &item.ident, &item.generics);
                    self.types[number].fields = fields(&item.fields);
                }
                Item::Union(item) => {
                    let number = self.define(module, &item.ident, &item.generics);
                    let named = item.fields.named.iter();
                    let named = named.filter_map(|field| Some((field.ident.as_ref()?.to_string(), &field.ty)));
                    self.types[number].fields = named.collect();
                }
                Item::Enum(item) if !is_test(&item.attrs) => {
                    let number = self.define(module, &item.ident, &item.generics);
                    let variants = item.variants.iter().map(|one| (one.ident.to_string(), fields(&one.fields)));
                    self.types[number].variants = variants.collect();
                }
                Item::Type(item) => {
                    let number = self.define(module, &item.ident, &item.generics);
                    self.types[number].alias = Some(&item.ty);
                }
                Item::Trait(item) if !is_test(&item.attrs) => {
                    let number = self.define(module, &item.ident, &item.generics);
                    self.types[number].is_trait = true;
                    traits.push((number, file, module.into(), item));
                }
                Item::Fn(item) if !is_test(&item.attrs) => free.push((file, module.into(), &item.sig)),
                Item::Impl(item) if !is_test(&item.attrs) => blocks.push(Block { file, module: module.into(), item }),
                Item::Static(item) => self.value(module, &item.ident, &item.ty),
                Item::Const(item) => self.value(module, &item.ident, &item.ty),
                Item::Use(item) if !is_test(&item.attrs) => {
                    let entry = self.modules.entry(module.into()).or_default();
                    imported(&item.tree, &mut Vec::new(), &mut entry.imports, &mut entry.globs);
                }
                _ => {}
            }
        }
    }

    fn define(&mut self, module: &str, name: &syn::Ident, generics: &'a Generics) -> usize {
        let parameters = generics.type_params().map(|parameter| parameter.ident.to_string()).collect();
        self.types.push(Defined {
            module: module.into(),
            parameters,
            generics,
            fields: HashMap::new(),
            variants: HashMap::new(),
            alias: None,
            is_trait: false,
            traits: Vec::new(),
            target: None,
        });
        let number = self.types.len() - 1;
        self.enter(module, name.to_string(), Named::Type(number));
        number
    }

    fn value(&mut self, module: &str, name: &syn::Ident, ty: &'a Type) {
        self.values.push((ty, module.into()));
        let number = self.values.len() - 1;
        self.enter(module, name.to_string(), Named::Value(number));
    }

    fn function(
        &mut self,
        file: usize,
        signature: &'a syn::Signature,
        scope: Scope,
        has_body: bool,
        of: Option<usize>,
        of_trait: Option<usize>,
    ) -> usize {
        let is_method = matches!(signature.inputs.first(), Some(FnArg::Receiver(_)));
        let name = signature.ident.to_string();
        self.functions.push(Function { name, file, has_body, of, of_trait, is_method, signature, scope });
        self.functions.len() - 1
    }

    /// Enters the methods that a trait declares.
    fn declare(&mut self, number: usize, file: usize, module: &str, item: &'a syn::ItemTrait) {
        let scope = Scope { module: module.into(), own: Some(Ty::Dyn(vec![number])), ..Scope::default() };
        let above = self.bounds(&scope, &item.supertraits);
        if let Ty::Dyn(above) = above {
            self.types[number].traits.extend(above);
        }
        let scope = self.generic(scope, &item.generics);
        for item in &item.items {
            let syn::TraitItem::Fn(method) = item else { continue };
            let scope = self.generic(scope.clone(), &method.sig.generics);
            let function =
                self.function(file, &method.sig, scope, method.default.is_some(), Some(number), Some(number));
            self.enter_method(number, function);
        }
    }

    fn enter_method(&mut self, of: usize, function: usize) {
        let (name, is_method) = (self.functions[function].name.clone(), self.functions[function].is_method);
        self.methods.entry((of, name.clone())).or_default().push(function);
        if is_method {
            self.by_name.entry(name).or_default().push(function);
        }
    }

    /// Scope of a block of methods, and the trait that it implements.
    pub(super) fn block(&self, module: &str, item: &syn::ItemImpl) -> (Scope, Option<usize>) {
        let scope = self.generic(Scope { module: module.into(), ..Scope::default() }, &item.generics);
        let own = self.read(&scope, &item.self_ty);
        let implemented = item.trait_.as_ref().and_then(|(path, _)| match self.resolve(&scope, &names(path)) {
            Some(Named::Type(number)) if self.types[number].is_trait => Some(number),
            _ => None,
        });
        (Scope { own: Some(own), ..scope }, implemented)
    }

    fn relate(&mut self, block: &Block<'a>) {
        let (scope, implemented) = self.block(&block.module, block.item);
        let Some(Ty::Own(number, _)) = scope.own else { return };
        self.types[number].traits.extend(implemented);
        let is_deref = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "Deref");
        if block.item.trait_.as_ref().is_some_and(|(path, _)| is_deref(path)) {
            let target = block.item.items.iter().find_map(|item| match item {
                syn::ImplItem::Type(item) if item.ident == "Target" => Some(&item.ty),
                _ => None,
            });
            self.types[number].target = target.map(|ty| self.read(&scope, ty));
        }
    }

    fn implement(&mut self, block: &Block<'a>) {
        let (scope, implemented) = self.block(&block.module, block.item);
        let of = if let Some(Ty::Own(number, _)) = scope.own { Some(number) } else { None };
        for item in &block.item.items {
            let syn::ImplItem::Fn(method) = item else { continue };
            if is_test(&method.attrs) {
                continue;
            }
            let scope = self.generic(scope.clone(), &method.sig.generics);
            let function = self.function(block.file, &method.sig, scope, true, of, implemented);
            match of {
                Some(of) => self.enter_method(of, function),
                None if implemented.is_some() => {
                    let name = self.functions[function].name.clone();
                    self.extensions.entry(name.clone()).or_default().push(function);
                    self.by_name.entry(name).or_default().push(function);
                }
                None => {}
            }
        }
    }

    /// Adds these parameters to a scope.
    pub(super) fn generic(&self, mut scope: Scope, generics: &Generics) -> Scope {
        for parameter in &generics.params {
            if let GenericParam::Type(parameter) = parameter {
                scope.parameters.insert(parameter.ident.to_string(), Ty::Param(parameter.ident.to_string()));
            }
        }
        let mut bounded = Vec::new();
        for parameter in generics.type_params() {
            bounded.push((parameter.ident.to_string(), self.bounds(&scope, &parameter.bounds)));
        }
        for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
            if let syn::WherePredicate::Type(predicate) = predicate
                && let Type::Path(path) = &predicate.bounded_ty
                && let Some(name) = path.path.get_ident()
            {
                bounded.push((name.to_string(), self.bounds(&scope, &predicate.bounds)));
            }
        }
        for (name, bound) in bounded {
            if !matches!(bound, Ty::Foreign) {
                scope.parameters.insert(name, bound);
            }
        }
        scope
    }

    /// Type of a value of which only the traits are known.
    fn bounds<P>(&self, scope: &Scope, bounds: &Punctuated<TypeParamBound, P>) -> Ty {
        let mut traits = Vec::new();
        for bound in bounds {
            let TypeParamBound::Trait(bound) = bound else { continue };
            let Some(last) = bound.path.segments.last() else { continue };
            match (&last.arguments, last.ident.to_string().as_str()) {
                (PathArguments::Parenthesized(function), _) => {
                    let takes = function.inputs.iter().map(|input| self.read(scope, &input.ty)).collect();
                    return Ty::Fn(takes, Box::new(self.output(scope, &function.output)));
                }
                (PathArguments::AngleBracketed(arguments), name) if name.ends_with("Iterator") => {
                    let item = arguments.args.iter().find_map(|argument| match argument {
                        GenericArgument::AssocType(item) => Some(self.read(scope, &item.ty)),
                        _ => None,
                    });
                    return Ty::iter(item.unwrap_or(Ty::Unknown));
                }
                (_, "Deref" | "DerefMut" | "AsRef" | "AsMut" | "Borrow" | "Into") => return Ty::Unknown,
                _ => {}
            }
            if let Some(Named::Type(number)) = self.resolve(scope, &names(&bound.path)) {
                traits.push(number);
            }
        }
        if traits.is_empty() { Ty::Foreign } else { Ty::Dyn(traits) }
    }

    fn output(&self, scope: &Scope, output: &ReturnType) -> Ty {
        if let ReturnType::Type(_, ty) = output { self.read(scope, ty) } else { Ty::Foreign }
    }

    /// Type for a type in the source.
    pub(super) fn read(&self, scope: &Scope, ty: &Type) -> Ty {
        match ty {
            Type::Reference(inner) => self.read(scope, &inner.elem),
            Type::Ptr(inner) => self.read(scope, &inner.elem),
            Type::Paren(inner) => self.read(scope, &inner.elem),
            Type::Group(inner) => self.read(scope, &inner.elem),
            Type::Slice(inner) => Ty::Std("Vec", vec![self.read(scope, &inner.elem)]),
            Type::Array(inner) => Ty::Std("Vec", vec![self.read(scope, &inner.elem)]),
            Type::Tuple(parts) => Ty::Tuple(parts.elems.iter().map(|part| self.read(scope, part)).collect()),
            Type::ImplTrait(bounds) => self.bounds(scope, &bounds.bounds),
            Type::TraitObject(bounds) => self.bounds(scope, &bounds.bounds),
            Type::FnPtr(function) => {
                let takes = function.inputs.iter().map(|input| self.read(scope, &input.ty)).collect();
                Ty::Fn(takes, Box::new(self.output(scope, &function.output)))
            }
            Type::Path(path) if path.qself.is_none() => self.read_path(scope, &path.path),
            Type::Path(_) | Type::Infer(_) => Ty::Unknown,
            _ => Ty::Foreign,
        }
    }

    /// The type that a path names.
    pub(super) fn read_path(&self, scope: &Scope, path: &syn::Path) -> Ty {
        let Some(last) = path.segments.last() else { return Ty::Unknown };
        let first = &path.segments[0].ident;
        if first == "Self" {
            let alone = path.segments.len() == 1;
            return if alone { scope.own.clone().unwrap_or(Ty::Unknown) } else { Ty::Unknown };
        }
        if let Some(parameter) = scope.parameters.get(&first.to_string()) {
            return if path.segments.len() == 1 { parameter.clone() } else { Ty::Unknown };
        }
        let mut arguments = Vec::new();
        if let PathArguments::AngleBracketed(given) = &last.arguments {
            for argument in &given.args {
                if let GenericArgument::Type(ty) = argument {
                    arguments.push(self.read(scope, ty));
                }
            }
        }
        match self.resolve(scope, &names(path)) {
            Some(Named::Type(number)) => self.instance(number, arguments),
            Some(Named::Foreign(name)) => foreign(&name, arguments),
            // The name is in the prelude, or a macro defines it.
            None => foreign(&last.ident.to_string(), arguments),
            Some(_) => Ty::Unknown,
        }
    }

    /// A type of the workspace with these arguments; an alias is replaced.
    fn instance(&self, number: usize, arguments: Vec<Ty>) -> Ty {
        let defined = &self.types[number];
        let Some(alias) = defined.alias else {
            return if defined.is_trait { Ty::Dyn(vec![number]) } else { Ty::Own(number, arguments) };
        };
        let scope = self.generic(Scope { module: defined.module.clone(), ..Scope::default() }, defined.generics);
        let pairs: Vec<_> = defined.parameters.iter().cloned().zip(arguments).collect();
        self.read(&scope, alias).with(&pairs)
    }

    /// Meaning of a path in a scope.
    pub(super) fn resolve(&self, scope: &Scope, path: &[String]) -> Option<Named> {
        let whole: Vec<String>;
        let mut path = path;
        if let Some(import) = path.first().and_then(|first| scope.imports.get(first)) {
            whole = import.iter().chain(&path[1..]).cloned().collect();
            path = &whole;
        }
        self.resolve_in(&scope.module, path, 0)
    }

    fn resolve_in(&self, module: &str, path: &[String], depth: usize) -> Option<Named> {
        let (first, mut rest) = path.split_first()?;
        if depth > 12 {
            return None;
        }
        let root = |module: &str| module.split("::").next().unwrap_or(module).to_string();
        let mut at = match first.as_str() {
            "crate" | "$crate" => Named::Module(root(module)),
            "self" => Named::Module(module.into()),
            "super" => {
                let mut above = parent(module)?;
                while rest.first().is_some_and(|next| next == "super") {
                    above = parent(&above)?;
                    rest = &rest[1..];
                }
                Named::Module(above)
            }
            name => self.member(module, name, !rest.is_empty(), depth).or_else(|| {
                let known = self.modules.contains_key(name);
                known.then(|| Named::Module(name.to_string()))
            })?,
        };
        while let Some((next, others)) = rest.split_first() {
            at = match at {
                Named::Module(module) => self.member(&module, next, !others.is_empty(), depth)?,
                Named::Type(number) => self.associated(number, next)?,
                Named::Foreign(_) => Named::Foreign(path.last()?.clone()),
                Named::Function(_) | Named::Value(_) | Named::Variant(..) => return None,
            };
            rest = others;
        }
        Some(at)
    }

    fn associated(&self, number: usize, name: &str) -> Option<Named> {
        if self.types[number].variants.contains_key(name) {
            return Some(Named::Variant(number, name.into()));
        }
        if let Some(alias) = self.types[number].alias {
            let scope = Scope { module: self.types[number].module.clone(), ..Scope::default() };
            let Ty::Own(target, _) = self.read(&scope, alias) else { return None };
            return self.associated(target, name);
        }
        self.method(number, name).first().map(|function| Named::Function(*function))
    }

    /// Meaning of a name in a module. With `is_path`, more names follow, so that it is no function.
    fn member(&self, module: &str, name: &str, is_path: bool, depth: usize) -> Option<Named> {
        let entry = self.modules.get(module)?;
        if let Some(found) = entry.items.get(name) {
            let fits = |named: &&Named| match named {
                Named::Module(_) | Named::Type(_) => true,
                _ => !is_path,
            };
            // A function and a type or module may share a name.
            let is_function = |named: &&Named| matches!(named, Named::Function(_));
            if let Some(named) = found.iter().filter(fits).find(|named| is_path != is_function(named)) {
                return Some(named.clone());
            }
            if let Some(named) = found.iter().find(fits) {
                return Some(named.clone());
            }
        }
        if let Some(import) = entry.imports.get(name) {
            let itself = import.len() == 1 && import[0] == name;
            let found = if itself { None } else { self.resolve_in(module, import, depth + 1) };
            return Some(found.unwrap_or_else(|| Named::Foreign(import.last().cloned().unwrap_or_default())));
        }
        entry.globs.iter().find_map(|glob| match self.resolve_in(module, glob, depth + 1)? {
            Named::Module(other) if other != module => self.member(&other, name, is_path, depth + 1),
            Named::Type(number) => {
                let has = self.types[number].variants.contains_key(name);
                has.then(|| Named::Variant(number, name.into()))
            }
            _ => None,
        })
    }

    /// Methods and functions of that name of a type, of its traits where it has none, or of what it dereferences to.
    pub(super) fn method(&self, number: usize, name: &str) -> Vec<usize> {
        if let Some(found) = self.methods.get(&(number, name.to_string())) {
            return found.clone();
        }
        let defined = &self.types[number];
        for above in &defined.traits {
            let found = self.method(*above, name);
            if !found.is_empty() {
                return found;
            }
        }
        match &defined.target {
            Some(Ty::Own(target, _)) if *target != number => self.method(*target, name),
            Some(Ty::Dyn(traits)) => traits.iter().flat_map(|above| self.method(*above, name)).collect(),
            _ => Vec::new(),
        }
    }

    /// The type that a type dereferences to.
    pub(super) fn target(&self, number: usize) -> Option<&Ty> {
        self.types[number].target.as_ref()
    }

    /// Methods of that name that the workspace adds to types of other crates.
    pub(super) fn extension(&self, name: &str) -> &[usize] {
        self.extensions.get(name).map_or(&[], Vec::as_slice)
    }

    /// Reports whether a function is one that a trait declares, with a default body or without.
    pub(super) fn is_declared(&self, function: usize) -> bool {
        let called = &self.functions[function];
        called.of.is_some() && called.of == called.of_trait
    }

    /// Functions that a call may reach: for a trait's function, all implementations.
    pub(super) fn behind(&self, function: usize) -> Vec<usize> {
        if !self.is_declared(function) {
            return vec![function];
        }
        let called = &self.functions[function];
        let all = self.functions.iter().enumerate();
        let same = all.filter(|(_, one)| one.of_trait == called.of_trait && one.name == called.name && one.has_body);
        same.map(|(number, _)| number).collect()
    }

    /// Type that a function returns to a caller with this receiver.
    pub(super) fn returned(&self, function: usize, receiver: &Ty) -> Ty {
        let function = &self.functions[function];
        let output = self.output(&function.scope, &function.signature.output);
        output.with(&pairs(function, receiver))
    }

    /// Types of a function's arguments, without its receiver.
    pub(super) fn takes(&self, function: usize, receiver: &Ty) -> Vec<Ty> {
        let function = &self.functions[function];
        let typed = function.signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(self.read(&function.scope, &input.ty).with(&pairs(function, receiver))),
            FnArg::Receiver(_) => None,
        });
        typed.collect()
    }

    /// The type of a field.
    pub(super) fn field(&self, of: &Ty, name: &str) -> Ty {
        match of {
            Ty::Own(number, arguments) => {
                let defined = &self.types[*number];
                match defined.fields.get(name) {
                    Some(ty) => self.part(defined, arguments, ty),
                    None => self.target(*number).map_or(Ty::Unknown, |target| self.field(target, name)),
                }
            }
            Ty::Tuple(parts) => name.parse::<usize>().ok().and_then(|at| parts.get(at).cloned()).unwrap_or(Ty::Unknown),
            Ty::Std("Reverse", _) => of.argument(0),
            Ty::Foreign => Ty::Foreign,
            _ => Ty::Unknown,
        }
    }

    /// The type of a field of a variant.
    pub(super) fn variant_field(&self, number: usize, arguments: &[Ty], variant: &str, field: &str) -> Ty {
        let defined = &self.types[number];
        let ty = defined.variants.get(variant).and_then(|fields| fields.get(field));
        ty.map_or(Ty::Unknown, |ty| self.part(defined, arguments, ty))
    }

    fn part(&self, defined: &Defined<'_>, arguments: &[Ty], ty: &Type) -> Ty {
        let scope = self.generic(Scope { module: defined.module.clone(), ..Scope::default() }, defined.generics);
        let pairs: Vec<_> = defined.parameters.iter().cloned().zip(arguments.iter().cloned()).collect();
        self.read(&scope, ty).with(&pairs)
    }

    /// The type of a static or constant.
    pub(super) fn value_type(&self, value: usize) -> Ty {
        let (ty, module) = &self.values[value];
        self.read(&Scope { module: module.clone(), ..Scope::default() }, ty)
    }
}

/// Parameters of a method's block that the receiver's type has arguments for, with these arguments.
fn pairs(function: &Function<'_>, receiver: &Ty) -> Vec<(String, Ty)> {
    let (Some(Ty::Own(own, parameters)), Ty::Own(other, arguments)) = (&function.scope.own, receiver) else {
        return Vec::new();
    };
    if own != other {
        return Vec::new();
    }
    let named = parameters.iter().zip(arguments).filter_map(|(parameter, argument)| match parameter {
        Ty::Param(name) => Some((name.clone(), argument.clone())),
        _ => None,
    });
    named.collect()
}

fn parent(module: &str) -> Option<String> {
    module.rsplit_once("::").map(|(above, _)| above.to_string())
}

/// The names of a path.
pub(super) fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn fields(fields: &syn::Fields) -> HashMap<String, &Type> {
    let named = fields.iter().enumerate().map(|(at, field)| {
        let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
        (name, &field.ty)
    });
    named.collect()
}

/// Enters the names of a `use` into a module.
pub(super) fn imported(
    tree: &UseTree,
    path: &mut Vec<String>,
    found: &mut HashMap<String, Vec<String>>,
    globs: &mut Vec<Vec<String>>,
) {
    let mut enter = |path: &[String], name: String, last: String| {
        let whole = if last == "self" { path.to_vec() } else { [path, &[last]].concat() };
        let name = if name == "self" { whole.last().cloned().unwrap_or_default() } else { name };
        found.insert(name, whole);
    };
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            imported(&inner.tree, path, found, globs);
            path.pop();
        }
        UseTree::Name(name) => enter(path, name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => enter(path, name.rename.to_string(), name.ident.to_string()),
        UseTree::Glob(_) => globs.push(path.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| imported(tree, path, found, globs)),
    }
}
