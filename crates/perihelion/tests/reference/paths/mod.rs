//! The paths that the reference pages name. This compiles only if all of them exist.

/// Types.
macro_rules! types {
    ($($path:path,)*) => {
        const TYPES: &[&str] = &[$(stringify!($path),)*];

        const _: fn() = || {
            $(let _ = any::<$path>();)*
        };
    };
}

/// Traits.
macro_rules! traits {
    ($($path:path,)*) => {
        const TRAITS: &[&str] = &[$(stringify!($path),)*];

        const _: fn() = || {
            $(let _ = any::<&dyn $path>();)*
        };
    };
}

/// Members of enumerations.
macro_rules! members {
    ($($path:path,)*) => {
        const MEMBERS: &[&str] = &[$(stringify!($path),)*];

        const _: fn() = || {
            $(let _ = matches!(any(), $path { .. });)*
        };
    };
}

/// Functions of modules.
macro_rules! free_functions {
    ($($path:path => ($($argument:expr),*),)*) => {
        const FREE_FUNCTIONS: &[&str] = &[$(stringify!($path),)*];

        const _: fn() = || {
            $(let _ = $path($($argument),*);)*
        };
    };
}

/// Functions of types.
macro_rules! functions {
    ($($Type:path { $($name:ident($($argument:expr),*),)* })*) => {
        const FUNCTIONS: &[&str] = &[$($(concat!(stringify!($Type), "::", stringify!($name)),)*)*];

        const _: fn() = || {
            $($(let _ = <$Type>::$name($($argument),*);)*)*
        };
    };
}

/// Methods, including those of a type's deref target.
macro_rules! methods {
    ($($Type:path { $($name:ident($($argument:expr),*),)* })*) => {
        const METHODS: &[&str] = &[$($(concat!(stringify!($Type), "::", stringify!($name)),)*)*];

        const _: fn() = || {
            $($(let _ = any::<$Type>().$name($($argument),*);)*)*
        };
    };
}

/// Fields.
macro_rules! fields {
    ($($Type:path { $($name:ident,)* })*) => {
        const FIELDS: &[&str] = &[$($(concat!(stringify!($Type), "::", stringify!($name)),)*)*];

        const _: fn() = || {
            $($(let _ = &any::<$Type>().$name;)*)*
        };
    };
}

/// All of these, with the modules that lead to them.
macro_rules! known {
    ($($module:literal),*) => {
        pub(crate) fn known() -> Vec<&'static str> {
            let modules: &[&str] = &[$($module),*];
            [modules, TYPES, TRAITS, MEMBERS, FREE_FUNCTIONS, FUNCTIONS, METHODS, FIELDS].concat()
        }
    };
}

pub(crate) mod engine;
pub(crate) mod pipelines;

/// Stands for a value of any type in what is compiled and never called.
fn any<T>() -> T {
    unreachable!("only compiled")
}
