//! Types as far as they are evident, and the effect of the standard library's containers on them. References and pointers that own (`&T`,
//! `Box<T>`, `Rc<T>`, guards) are treated as their content: methods are searched through them anyway.

/// Type of an expression, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ty {
    Unknown,
    /// Type that is of no crate of the workspace, and contains none of the workspace.
    Foreign,
    /// Generic parameter, by its name.
    Param(String),
    /// Type of the workspace, by its number, with its arguments.
    Own(usize, Vec<Ty>),
    /// Any type that implements these traits of the workspace.
    Dyn(Vec<usize>),
    /// Container of the standard library.
    Std(&'static str, Vec<Ty>),
    Tuple(Vec<Ty>),
    Fn(Vec<Ty>, Box<Ty>),
}

/// Types through which methods are searched.
const TRANSPARENT: [&str; 14] = [
    "Box",
    "Rc",
    "Arc",
    "Ref",
    "RefMut",
    "MutexGuard",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "Pin",
    "ManuallyDrop",
    "Cow",
    "LazyLock",
    "LazyCell",
    "NonNull",
];

/// Names of containers, each with the name of the container that it is treated as.
const CONTAINERS: [(&str, &str); 23] = [
    ("Option", "Option"),
    ("Result", "Result"),
    ("Vec", "Vec"),
    ("VecDeque", "Vec"),
    ("BinaryHeap", "Vec"),
    ("HashSet", "Vec"),
    ("BTreeSet", "Vec"),
    ("HashMap", "Map"),
    ("BTreeMap", "Map"),
    ("RefCell", "Cell"),
    ("Cell", "Cell"),
    ("UnsafeCell", "Cell"),
    ("Mutex", "Lock"),
    ("RwLock", "Lock"),
    ("OnceLock", "Once"),
    ("OnceCell", "Once"),
    ("LocalKey", "LocalKey"),
    ("Weak", "Weak"),
    ("MaybeUninit", "MaybeUninit"),
    ("Peekable", "Iter"),
    ("IntoIter", "Iter"),
    ("Reverse", "Reverse"),
    ("Receiver", "Receiver"),
];

/// Type for a name of another crate.
pub(super) fn foreign(name: &str, mut arguments: Vec<Ty>) -> Ty {
    if TRANSPARENT.contains(&name) {
        // `Cow<'a, T>` and guards have one type argument.
        return if arguments.is_empty() { Ty::Unknown } else { arguments.swap_remove(0) };
    }
    match CONTAINERS.iter().find(|(own, _)| *own == name) {
        Some((_, stands)) => Ty::Std(stands, arguments),
        None => Ty::Foreign,
    }
}

impl Ty {
    pub(super) fn iter(of: Ty) -> Ty {
        Ty::Std("Iter", vec![of])
    }

    pub(super) fn option(of: Ty) -> Ty {
        Ty::Std("Option", vec![of])
    }

    /// Argument of a container, by its place.
    pub(super) fn argument(&self, at: usize) -> Ty {
        match self {
            Ty::Std(_, arguments) | Ty::Own(_, arguments) => arguments.get(at).cloned().unwrap_or(Ty::Unknown),
            Ty::Tuple(parts) => parts.get(at).cloned().unwrap_or(Ty::Unknown),
            Ty::Foreign => Ty::Foreign,
            _ => Ty::Unknown,
        }
    }

    /// Type of the items that `for` takes out of a container.
    pub(super) fn element(&self) -> Ty {
        match self {
            Ty::Std("Map", _) => Ty::Tuple(vec![self.argument(0), self.argument(1)]),
            Ty::Std("Vec" | "Iter" | "Option" | "Receiver", _) => self.argument(0),
            Ty::Foreign => Ty::Foreign,
            _ => Ty::Unknown,
        }
    }

    /// Type of the element at an index.
    pub(super) fn indexed(&self) -> Ty {
        if let Ty::Std("Map", _) = self { self.argument(1) } else { self.element() }
    }

    /// Type that a function returns.
    pub(super) fn returned(&self) -> Ty {
        if let Ty::Fn(_, returned) = self { (**returned).clone() } else { Ty::Unknown }
    }

    /// Replaces parameters in a type.
    pub(super) fn with(&self, parameters: &[(String, Ty)]) -> Ty {
        let all = |types: &[Ty]| types.iter().map(|ty| ty.with(parameters)).collect::<Vec<_>>();
        match self {
            Ty::Param(name) => {
                parameters.iter().find(|(own, _)| own == name).map_or_else(|| self.clone(), |(_, ty)| ty.clone())
            }
            Ty::Own(id, types) => Ty::Own(*id, all(types)),
            Ty::Std(name, types) => Ty::Std(name, all(types)),
            Ty::Tuple(types) => Ty::Tuple(all(types)),
            Ty::Fn(takes, returns) => Ty::Fn(all(takes), Box::new(returns.with(parameters))),
            Ty::Unknown | Ty::Foreign | Ty::Dyn(_) => self.clone(),
        }
    }
}

/// Arguments of the closure that a method of a container takes.
pub(super) fn closure_takes(receiver: &Ty, method: &str) -> Vec<Ty> {
    if *receiver == Ty::Foreign {
        return vec![Ty::Foreign; 3];
    }
    let Ty::Std(container, _) = receiver else { return Vec::new() };
    let item = receiver.element();
    match (*container, method) {
        ("Result", "map_err" | "or_else" | "unwrap_or_else" | "inspect_err" | "is_err_and") => {
            vec![receiver.argument(1)]
        }
        ("Result", _) => vec![receiver.argument(0)],
        ("Map", "retain" | "retain_mut") => vec![receiver.argument(0), receiver.argument(1)],
        ("Entry", _) => vec![receiver.argument(1)],
        ("LocalKey", _) => vec![receiver.argument(0)],
        ("Iter", "fold" | "try_fold") => vec![Ty::Unknown, item],
        ("Vec", "sort_by" | "binary_search_by" | "dedup_by") | ("Iter", "max_by" | "min_by" | "reduce") => {
            vec![item.clone(), item]
        }
        ("Option" | "Vec" | "Iter", _) => vec![item],
        _ => Vec::new(),
    }
}

/// Type that a method of a container returns; `given` are the types of its arguments.
pub(super) fn returned(receiver: &Ty, method: &str, given: &[Ty]) -> Ty {
    let first = || given.first().cloned().unwrap_or(Ty::Unknown);
    let last = || given.last().map_or(Ty::Unknown, Ty::returned);
    let Ty::Std(container, arguments) = receiver else {
        return if method == "clone" || method == "to_owned" { receiver.clone() } else { Ty::Unknown };
    };
    let item = receiver.element();
    match (*container, method) {
        (
            _,
            "clone" | "by_ref" | "as_slice" | "as_mut_slice" | "to_vec" | "to_owned" | "as_ref" | "as_mut" | "as_deref"
            | "as_deref_mut",
        ) => receiver.clone(),
        (
            "Option" | "Result",
            "unwrap" | "expect" | "unwrap_or" | "unwrap_or_else" | "unwrap_or_default" | "insert"
            | "get_or_insert_with" | "get_or_insert",
        ) => receiver.argument(0),
        ("Option", "take" | "filter" | "or" | "or_else" | "xor" | "replace" | "cloned" | "copied" | "inspect") => {
            receiver.clone()
        }
        ("Option", "map") => Ty::option(last()),
        ("Option" | "Result", "map_or" | "map_or_else") => last(),
        ("Option" | "Result", "and_then") => last(),
        ("Option", "and" | "flatten") if method == "and" => first(),
        ("Option", "flatten") => receiver.argument(0),
        ("Option", "zip") => Ty::option(Ty::Tuple(vec![item, first().argument(0)])),
        ("Option", "ok_or" | "ok_or_else") => Ty::Std("Result", vec![item, Ty::Unknown]),
        ("Option", "transpose") => match item {
            Ty::Std("Result", inner) => {
                let error = inner.get(1).cloned().unwrap_or(Ty::Unknown);
                Ty::Std("Result", vec![Ty::option(inner.into_iter().next().unwrap_or(Ty::Unknown)), error])
            }
            _ => Ty::Unknown,
        },
        (
            "Option" | "Vec" | "Result",
            "iter" | "iter_mut" | "into_iter" | "drain" | "difference" | "intersection" | "union",
        ) => Ty::iter(receiver.argument(0)),
        (
            "Option" | "Result" | "Vec" | "Iter" | "Map",
            "is_some_and" | "is_none_or" | "is_ok_and" | "len" | "is_empty" | "contains" | "contains_key" | "is_some"
            | "is_none" | "any" | "all" | "count" | "position" | "is_ok" | "is_err",
        ) => Ty::Foreign,
        ("Result", "ok") => Ty::option(receiver.argument(0)),
        ("Result", "err") => Ty::option(receiver.argument(1)),
        ("Result", "unwrap_err" | "expect_err") => receiver.argument(1),
        ("Result", "map") => Ty::Std("Result", vec![last(), receiver.argument(1)]),
        ("Result", "map_err") => Ty::Std("Result", vec![receiver.argument(0), last()]),
        ("Result", _) if matches!(method, "inspect" | "inspect_err" | "or_else") => receiver.clone(),
        (
            "Vec",
            "get" | "get_mut" | "first" | "first_mut" | "last" | "last_mut" | "pop" | "pop_front" | "pop_back"
            | "front" | "front_mut" | "back" | "back_mut" | "pop_first" | "pop_last" | "peek" | "peek_mut",
        ) => Ty::option(item),
        ("Vec", "remove" | "swap_remove") => item,
        ("Vec", "chunks" | "windows" | "chunks_exact") => Ty::iter(receiver.clone()),
        ("Vec", "split_off") => receiver.clone(),
        ("Vec", "split_first" | "split_last") => Ty::option(Ty::Tuple(vec![item, receiver.clone()])),
        ("Map", "get" | "get_mut" | "remove" | "insert") => Ty::option(receiver.argument(1)),
        ("Map", "values" | "values_mut" | "into_values") => Ty::iter(receiver.argument(1)),
        ("Map", "keys" | "into_keys") => Ty::iter(receiver.argument(0)),
        ("Map", "iter" | "iter_mut" | "into_iter" | "drain" | "range" | "range_mut" | "extract_if") => Ty::iter(item),
        ("Map", "first_key_value" | "last_key_value" | "pop_first" | "pop_last" | "remove_entry" | "get_key_value") => {
            Ty::option(item)
        }
        ("Map", "entry") => Ty::Std("Entry", arguments.clone()),
        ("Entry", "or_insert" | "or_insert_with" | "or_default") => receiver.argument(1),
        ("Entry", "and_modify") => receiver.clone(),
        (
            "Iter",
            "next" | "next_back" | "last" | "nth" | "min" | "max" | "min_by_key" | "max_by_key" | "min_by" | "max_by"
            | "find" | "reduce" | "peek" | "next_if",
        ) => Ty::option(item),
        (
            "Iter",
            "filter" | "rev" | "skip" | "take" | "peekable" | "cloned" | "copied" | "take_while" | "skip_while"
            | "inspect" | "step_by" | "cycle" | "fuse" | "chain" | "iter" | "into_iter",
        ) => receiver.clone(),
        ("Iter", "map") => Ty::iter(last()),
        ("Iter", "filter_map" | "flat_map" | "map_while") => Ty::iter(last().element()),
        ("Iter", "find_map") => last(),
        ("Iter", "flatten") => Ty::iter(item.element()),
        ("Iter", "enumerate") => Ty::iter(Ty::Tuple(vec![Ty::Foreign, item])),
        ("Iter", "zip") => Ty::iter(Ty::Tuple(vec![item, first().element()])),
        ("Iter", "fold") => first(),
        ("Cell", _) => receiver.argument(0),
        ("Lock", "lock" | "read" | "write" | "get_mut" | "into_inner" | "try_lock") => {
            Ty::Std("Result", vec![receiver.argument(0), Ty::Foreign])
        }
        ("Once", "get" | "get_mut" | "take" | "into_inner") => Ty::option(receiver.argument(0)),
        ("Once", "get_or_init") => receiver.argument(0),
        ("LocalKey", "with" | "with_borrow" | "with_borrow_mut" | "try_with") => last(),
        ("LocalKey", "get" | "take") => receiver.argument(0).argument(0),
        ("Weak", "upgrade") => Ty::option(receiver.argument(0)),
        ("MaybeUninit", _) => receiver.argument(0),
        ("Receiver", "recv" | "try_recv" | "recv_timeout") => {
            Ty::Std("Result", vec![receiver.argument(0), Ty::Foreign])
        }
        ("Receiver", "iter" | "try_iter") => Ty::iter(receiver.argument(0)),
        _ => Ty::Unknown,
    }
}
