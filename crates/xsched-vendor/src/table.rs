//! Tables of functions.

/// Declares a table of functions of a library.
///
/// ```
/// use std::ffi::{CStr, c_int, c_void};
///
/// xsched_vendor::functions! {
///     /// Functions of the C library.
///     struct Numbers -> c_int;
///     needed { absolute: c"abs" (c_int); }
///     optional { negated: c"no_such_function" (c_int); }
/// }
///
/// let find = |name: &CStr| -> *mut c_void { unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } };
/// let numbers = unsafe { Numbers::load(find) }.unwrap();
/// assert_eq!(unsafe { (numbers.absolute)(-3) }, 3);
/// assert!(numbers.negated.is_none());
/// ```
///
/// A row has a field, a symbol, and the types of its arguments; or, in brackets, the type of the whole function, where it returns
/// something else than the others. Either block may be left out. `load` finds all of them; without one that is needed there is no
/// table, and its name is the error.
#[macro_export]
macro_rules! functions {
    (
        $(#[$about:meta])* $seen:vis struct $name:ident -> $result:ty;
        $(needed { $($(#[$doc:meta])* $field:ident: $symbol:literal $signature:tt;)* })?
        $(optional { $($(#[$note:meta])* $other:ident: $called:literal $arguments:tt;)* })?
    ) => {
        $(#[$about])*
        $seen struct $name {
            $($($(#[$doc])* $seen $field: $crate::function!($signature -> $result),)*)?
            $($($(#[$note])* $seen $other: Option<$crate::function!($arguments -> $result)>,)*)?
        }

        impl $name {
            /// Finds the functions, or names the first one that is needed and missing.
            ///
            /// # Safety
            /// `find` returns null or the address of the function of that name, which has the signature that is declared here.
            $seen unsafe fn load(
                find: impl Fn(&std::ffi::CStr) -> *mut std::ffi::c_void,
            ) -> Result<$name, &'static std::ffi::CStr> {
                Ok($name {
                    $($($field: {
                        let found = find($symbol);
                        if found.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: not null; a function of this type, as the caller vouches.
                        unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, $crate::function!($signature -> $result)>(found)
                        }
                    },)*)?
                    $($($other: {
                        let found = find($called);
                        // SAFETY: null becomes None; else a function of this type, as the caller vouches.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                Option<$crate::function!($arguments -> $result)>,
                            >(found)
                        }
                    },)*)?
                })
            }
        }
    };
}

/// The type of a row's function.
#[doc(hidden)]
#[macro_export]
macro_rules! function {
    (($($argument:ty),* $(,)?) -> $result:ty) => { unsafe extern "C" fn($($argument),*) -> $result };
    ([$whole:ty] -> $result:ty) => { $whole };
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_int, c_void};

    functions! {
        /// Functions that are here and functions that are not.
        struct Mixed -> c_int;
        needed {
            one: c"one" (c_int);
            /// Of another type than the others.
            two: c"two" [extern "C" fn() -> u64];
        }
        optional {
            three: c"three" (c_int, c_int);
            four: c"four" [extern "C" fn()];
        }
    }

    extern "C" fn one(value: c_int) -> c_int {
        value + 1
    }
    extern "C" fn two() -> u64 {
        1 << 40
    }
    extern "C" fn three(left: c_int, right: c_int) -> c_int {
        left - right
    }

    #[test]
    fn what_is_optional_may_be_missing_and_what_is_needed_is_named() {
        let find = |has_two: bool| {
            move |name: &CStr| match name.to_str() {
                Ok("one") => one as *mut c_void,
                Ok("two") if has_two => two as *mut c_void,
                Ok("three") => three as *mut c_void,
                _ => std::ptr::null_mut(),
            }
        };
        // SAFETY: the functions above have these types.
        let (table, none) = unsafe { (Mixed::load(find(true)).unwrap(), Mixed::load(find(false))) };
        // SAFETY: functions of this module that take any numbers.
        let answers = unsafe { ((table.one)(4), (table.two)(), table.three.map(|three| three(7, 2))) };
        assert_eq!(answers, (5, 1 << 40, Some(5)));
        assert!(table.four.is_none());
        assert_eq!(none.err(), Some(c"two"));
    }
}
