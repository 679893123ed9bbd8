//! Compares rf-hip's declarations with published bindings. The comparison runs at compile time:
//!
//! ```text
//! cd crates/rf-hip/abi-check && DOCS_RS=1 cargo check
//! ```
//!
//! `DOCS_RS=1` prevents hip-runtime-sys from searching for HIP. Remove `hipconfig` from the PATH:
//! cubecl-hip-sys selects bindings by its output. Functions are compared by the number and the
//! sizes of their arguments and results, on which calling conventions for integers and pointers
//! depend. Constants are compared by value.

#![expect(dead_code, reason = "the declarations are compared, not used")]
#![expect(non_camel_case_types, reason = "arguments and type parameters share their names")]

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
    AttributedLaunch, ContextHandle, EventHandle, FunctionHandle, GraphExecHandle, GraphHandle,
    GraphUpdateInfo, ModuleHandle, NodeHandle, PoolHandle, ProgramHandle, StreamHandle,
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
    // The platform has no such function.
    ($bindings:ident [] $($rest:tt)*) => {};
    // Each HIP generation declares one of the two; `numbers` checks the offset of the name.
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
                assert!(ours[i] == theirs[i], concat!(stringify!($symbol), " has the wrong declaration"));
                i += 1;
            }
        };
    };
}

use cudarc::driver::sys as cuda;

functions!(check_all);
compiler_functions!(check_new_only);
