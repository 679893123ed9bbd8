//! The exported functions: the only module that reads and writes memory of the program.
//!
//! Each function has the signature of HIP's header, calls one method of
//! [`Runtime`] and stores its result. The rules for callers are HIP's:
//! pointers are null or valid, texts end with a zero byte, and host memory of queued work is valid
//! until the work is done.

#![expect(unsafe_code, reason = "exports C functions and accesses memory of the program")]

mod device;
mod event;
mod graph;
mod handles;
pub(crate) mod host;
mod image;
mod memory;
mod module;
mod stream;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Status;
use crate::journal::print;
use crate::runtime::{Runtime, Use};

thread_local! {
    static CURRENT_DEVICE: Cell<i32> = const { Cell::new(0) };
    static LAST_STATUS: Cell<i32> = const { Cell::new(0) };
}

/// The state, or `None` if the environment is wrong.
static RUNTIME: OnceLock<Option<Mutex<Runtime>>> = OnceLock::new();

fn runtime() -> Option<&'static Mutex<Runtime>> {
    let create = || match Runtime::from_environment() {
        Ok(runtime) => {
            if runtime.counts_costs() {
                atexit(write_costs);
            }
            Some(Mutex::new(runtime))
        }
        Err(message) => {
            print(&message);
            None
        }
    };
    RUNTIME.get_or_init(create).as_ref()
}

unsafe extern "C" {
    /// Calls a function when the program ends or unloads the library.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn write_costs() {
    // A thread that still waits for a kernel holds the lock; the end must not wait for it.
    let runtime = RUNTIME.get().and_then(Option::as_ref);
    if let Some(runtime) = runtime.and_then(|runtime| runtime.try_lock().ok()) {
        runtime.write_costs();
    }
}

fn current_device() -> usize {
    CURRENT_DEVICE.get() as usize
}

/// Runs the body of an exported function and converts its outcome to `hipError_t`.
fn call(
    function: &'static str,
    usage: Use,
    body: impl FnOnce(&mut Runtime) -> Result<(), Status>,
) -> c_int {
    let outcome = match runtime() {
        None => Err(Status::NOT_INITIALIZED),
        Some(runtime) => catch_unwind(AssertUnwindSafe(|| {
            let mut runtime = runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.call(function, current_device(), usage, body)
        }))
        .unwrap_or_else(|_| {
            print(&format!("{function} failed by a bug of the emulator"));
            Err(Status::UNKNOWN)
        }),
    };
    let status = outcome.map_or_else(Status::number, |()| 0);
    if status != 0 && status != Status::NOT_READY.number() {
        LAST_STATUS.set(status);
    }
    status
}

/// Stores a result of a function.
///
/// # Safety
///
/// `place` is null or valid for a write.
unsafe fn store<T>(place: *mut T, value: T) -> Result<(), Status> {
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so valid; it need not be aligned.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Stores a result that the caller may not need.
///
/// # Safety
///
/// `place` is null or valid for a write.
unsafe fn store_optional<T>(place: *mut T, value: T) {
    // SAFETY: forwarded. A null place is fine.
    unsafe { store(place, value) }.ok();
}

/// Stores a text with its zero byte, cut to `len` bytes.
///
/// # Safety
///
/// `place` is null or valid for writes of `len` bytes.
unsafe fn store_text(place: *mut c_char, len: c_int, text: &str) -> Result<(), Status> {
    let len = usize::try_from(len).ok().filter(|&len| len > 0 && !place.is_null());
    let len = len.ok_or(Status::INVALID_VALUE)?;
    // SAFETY: not null, so valid for `len` bytes.
    let place = unsafe { slice::from_raw_parts_mut(place.cast::<u8>(), len) };
    let count = text.len().min(len - 1);
    place[..count].copy_from_slice(&text.as_bytes()[..count]);
    place[count] = 0;
    Ok(())
}

/// Reads a text.
///
/// # Safety
///
/// `text` is null or ends with a zero byte.
unsafe fn load_text(text: *const c_char) -> Result<String, Status> {
    if text.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so a text.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}
