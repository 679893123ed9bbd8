//! Do rf-hip's declarations agree with the public bindings? Checking this crate answers it:
//!
//! ```text
//! cd crates/rf-hip/abi-check && DOCS_RS=1 cargo check
//! ```
//!
//! `DOCS_RS=1` keeps hip-runtime-sys from looking for HIP; where `hipconfig` is on the PATH, take it
//! off, or cubecl-hip-sys picks bindings by its answer. Each function of the table is compared by
//! number and sizes of its arguments and its result, for that is what calling conventions see of
//! integers and pointers. Each constant is compared by value.

#![expect(dead_code, reason = "the declarations are looked at, not used")]
#![expect(non_camel_case_types, reason = "an argument's name serves as its type's")]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

#[macro_use]
#[path = "../../src/sys/functions.rs"]
mod functions;
#[path = "../../src/sys/constants.rs"]
mod constants;
#[path = "../../src/sys/handles.rs"]
mod handles;

mod numbers;

use constants::Status;
use handles::{
    ContextHandle, EventHandle, FunctionHandle, GraphExecHandle, GraphHandle, GraphUpdateInfo,
    ModuleHandle, NodeHandle, PoolHandle, ProgramHandle, StreamHandle,
};

macro_rules! check_all {
    ($table:ident; $(
        $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty
            [$($amd:ident)?] [$($nvidia:ident)?];
    )*) => {
        $(check!(hip_runtime_sys [$($amd)?] ($($arg: $type),*) -> $result);)*
        $(check!(cubecl_hip_sys [$($amd)?] ($($arg: $type),*) -> $result);)*
        $(check!(cuda [$($nvidia)?] ($($arg: $type),*) -> $result);)*
    };
}

macro_rules! check_new_only {
    ($table:ident; $(
        $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty [$($amd:ident)?] [];
    )*) => {
        $(check!(cubecl_hip_sys [$($amd)?] ($($arg: $type),*) -> $result);)*
    };
}

macro_rules! check {
    // Not on this platform.
    ($bindings:ident [] $($rest:tt)*) => {};
    // Each HIP generation declares one of the two; `numbers` checks where they put the name.
    (hip_runtime_sys [hipGetDevicePropertiesR0600] $($rest:tt)*) => {};
    (cubecl_hip_sys [hipGetDeviceProperties] $($rest:tt)*) => {};
    ($bindings:ident [$symbol:ident] ($($arg:ident: $type:ty),*) -> $result:ty) => {
        const _: () = {
            const COUNT: usize = [$(stringify!($arg),)* "result"].len();

            const fn sizes<$($arg,)* Result>(
                _: unsafe extern "C" fn($($arg),*) -> Result,
            ) -> [usize; COUNT] {
                [$(size_of::<$arg>(),)* size_of::<Result>()]
            }

            let theirs = sizes($bindings::$symbol);
            let ours = [$(size_of::<$type>(),)* size_of::<$result>()];
            let mut i = 0;
            while i < COUNT {
                assert!(ours[i] == theirs[i], concat!(stringify!($symbol), " is declared wrong"));
                i += 1;
            }
        };
    };
}

use cudarc::driver::sys as cuda;

functions!(check_all);
compiler_functions!(check_new_only);
