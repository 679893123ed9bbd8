//! Level 2: the foreign functions as Rust functions that return [`Result`], grouped by noun.
//!
//! This level hides the differences between the two platforms. The caller is responsible for
//! lifetimes and threads, so functions that take a handle or an address are `unsafe`. They share
//! one contract:
//!
//! - handles were created by the same [`Api`] and are not destroyed;
//! - each range of addresses is within one live allocation until the work is done;
//! - the context of the objects is current on the calling thread.

#![expect(unsafe_code, reason = "calls foreign functions")]

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;

use crate::sys::{ForeignFunction, Functions, Status, constants, library};
use crate::{Error, Platform};

/// Calls a function of the table by name and converts its status to a [`Result`].
macro_rules! call {
    ($api:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let entry = &$api.functions.$name;
        $api.pointer(entry).and_then(|function| {
            // SAFETY: the caller upholds this level's contract; out-pointers are of live variables.
            let status = unsafe { function($($arg),*) };
            $api.check(entry.symbol, status)
        })
    }};
}

pub(crate) mod compiler;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod stream;

/// The functions of one loaded library.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) platform: Platform,
    pub(crate) functions: Functions,
    pub(crate) library_path: PathBuf,
    /// True if the runtime has early launches: see [`module::launch`].
    pub(crate) early_launches: bool,
}

impl Api {
    /// Loads and initialises the platform's library. A missing device is not an error.
    pub(crate) fn load(platform: Platform, search: &library::Search) -> Result<Self, Error> {
        let (library, library_path) = library::open(platform, search, |library| {
            platform == Platform::Nvidia || lists_device(&Functions::resolve(platform, library))
        })?;
        let functions = Functions::resolve(platform, &library);
        // Unloading a GPU driver while its threads run crashes the process, so it stays loaded.
        std::mem::forget::<Library>(library);
        let mut api = Self { platform, functions, library_path, early_launches: false };
        api.check_core()?;
        let outcome = call!(api, init(0));
        api.early_launches = api.functions.cuda_launch_with_attributes.pointer.is_some()
            && api.versions().is_ok_and(|(_, cuda)| cuda >= constants::CUDA_WITH_EARLY_LAUNCHES);
        match outcome.as_ref().map_err(Error::status) {
            Err(Some(constants::NO_DEVICE | constants::INVALID_DEVICE)) => Ok(api),
            _ => outcome.map(|()| api),
        }
    }

    /// Returns true if both were loaded from one library, which the process has once.
    pub(crate) fn is_same_library(&self, other: &Self) -> bool {
        let is_same_file =
            || self.platform == other.platform && self.library_path == other.library_path;
        ptr::eq(self, other) || is_same_file()
    }

    /// Checks for the functions that every program needs, so that their absence is reported at
    /// load.
    fn check_core(&self) -> Result<(), Error> {
        let functions = &self.functions;
        self.pointer(&functions.init)?;
        self.pointer(&functions.device_count)?;
        self.pointer(&functions.device)?;
        self.pointer(&functions.device_attribute)?;
        self.pointer(&functions.allocate)?;
        self.pointer(&functions.free)?;
        self.pointer(&functions.copy_to_device)?;
        self.pointer(&functions.copy_to_host)?;
        self.pointer(&functions.stream_create)?;
        self.pointer(&functions.stream_destroy)?;
        self.pointer(&functions.stream_synchronize)?;
        self.pointer(&functions.module_unload)?;
        self.pointer(&functions.module_function)?;
        self.pointer(&functions.launch)?;
        match self.platform {
            Platform::Amd => {
                self.pointer(&functions.hip_set_device)?;
                self.pointer(&functions.hip_module_load)?;
            }
            Platform::Nvidia => {
                self.pointer(&functions.cuda_primary_context_retain)?;
                self.pointer(&functions.cuda_primary_context_release)?;
                self.pointer(&functions.cuda_context_set_current)?;
                self.pointer(&functions.cuda_module_load)?;
            }
        }
        Ok(())
    }

    pub(crate) fn pointer<F: Copy>(&self, entry: &ForeignFunction<F>) -> Result<F, Error> {
        entry.pointer.ok_or_else(|| Error::MissingSymbol {
            symbol: entry.symbol,
            library: self.library_path.clone(),
        })
    }

    pub(crate) fn check(&self, function: &'static str, status: Status) -> Result<(), Error> {
        if status == constants::SUCCESS {
            return Ok(());
        }
        let (name, text) = self.describe(status);
        Err(Error::Status { function, status, name, text })
    }

    /// The runtime's name and description of a status.
    pub(crate) fn describe(&self, status: Status) -> (String, String) {
        let functions = &self.functions;
        let (name, text) = match self.platform {
            Platform::Amd => (
                hip_text(&functions.hip_error_name, status),
                hip_text(&functions.hip_error_text, status),
            ),
            Platform::Nvidia => (
                cuda_text(&functions.cuda_error_name, status),
                cuda_text(&functions.cuda_error_text, status),
            ),
        };
        let unknown = || "no description".to_owned();
        (name.unwrap_or_else(|| "unknown status".to_owned()), text.unwrap_or_else(unknown))
    }

    /// The packed version numbers: (runtime, driver).
    pub(crate) fn versions(&self) -> Result<(Option<i32>, i32), Error> {
        let mut driver = 0;
        call!(self, driver_version(&raw mut driver))?;
        if self.functions.runtime_version.pointer.is_none() {
            return Ok((None, driver));
        }
        let mut runtime = 0;
        call!(self, runtime_version(&raw mut runtime))?;
        Ok((Some(runtime), driver))
    }
}

/// Returns true if a library of HIP lists a device. It initialises itself for that.
fn lists_device(functions: &Functions) -> bool {
    let mut count = 0;
    functions.device_count.pointer.is_some_and(|device_count| {
        // SAFETY: the out-pointer is of a live variable.
        let status = unsafe { device_count(&raw mut count) };
        status == constants::SUCCESS && count > 0
    })
}

fn hip_text(
    entry: &ForeignFunction<unsafe extern "C" fn(Status) -> *const c_char>,
    status: Status,
) -> Option<String> {
    let function = entry.pointer?;
    // SAFETY: accepts any number.
    let text = unsafe { function(status) };
    // SAFETY: points to a string constant of the library.
    unsafe { static_text(text) }
}

fn cuda_text(
    entry: &ForeignFunction<unsafe extern "C" fn(Status, *mut *const c_char) -> Status>,
    status: Status,
) -> Option<String> {
    let function = entry.pointer?;
    let mut text = ptr::null();
    // SAFETY: accepts any number; writes only the address of a string constant to `text`.
    let outcome = unsafe { function(status, &raw mut text) };
    if outcome != constants::SUCCESS {
        return None;
    }
    // SAFETY: points to a string constant of the library.
    unsafe { static_text(text) }
}

/// # Safety
///
/// `text` is null or a zero-terminated string.
unsafe fn static_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null; the caller guarantees the termination.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// The text up to the first zero byte.
fn text_of(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}
