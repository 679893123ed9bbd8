//! libhiprtc: compiles HIP source to code objects in this process.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use super::{static_text, text_of};
use crate::sys::{CompilerFunctions, ForeignFunction, ProgramHandle, Status, constants, library};
use crate::{Error, Platform};

/// HIP 5's compiler crashes when two threads use it concurrently.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The functions of a loaded libhiprtc.
#[derive(Debug)]
pub(crate) struct CompilerApi {
    functions: CompilerFunctions,
    library_path: PathBuf,
}

/// The texts of a program as C strings.
#[derive(Debug)]
pub(crate) struct ProgramText {
    pub(crate) name: CString,
    pub(crate) text: CString,
    /// (name, text)
    pub(crate) headers: Vec<(CString, CString)>,
    pub(crate) options: Vec<CString>,
}

impl CompilerApi {
    pub(crate) fn load() -> Result<Self, Error> {
        let resolve = |library: &Library| CompilerFunctions::resolve(Platform::Amd, library);
        let (library, library_path) =
            library::open_compiler(|library| resolve(library).compile.pointer.is_some())?;
        let functions = resolve(&library);
        // Stays loaded, as in `Api::load`: the compiler has thread-locals and exit handlers.
        std::mem::forget::<Library>(library);
        Ok(Self { functions, library_path })
    }

    pub(crate) fn version(&self) -> Result<(i32, i32), Error> {
        let (mut major, mut minor) = (0, 0);
        call!(self, version(&raw mut major, &raw mut minor))?;
        Ok((major, minor))
    }

    /// Compiles a program; an error includes the compiler's messages.
    pub(crate) fn compile(&self, program: &ProgramText) -> Result<Vec<u8>, Error> {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = self.create(program)?;
        let outcome = self.compile_program(handle, program);
        let mut handle = handle;
        if let Err(error) = call!(self, destroy(&raw mut handle)) {
            tracing::warn!("dropping a program: {error}");
        }
        outcome
    }

    fn create(&self, program: &ProgramText) -> Result<ProgramHandle, Error> {
        let pointers = |part: fn(&(CString, CString)) -> &CStr| -> Vec<*const c_char> {
            program.headers.iter().map(|header| part(header).as_ptr()).collect()
        };
        let (names, texts) = (pointers(|header| &header.0), pointers(|header| &header.1));
        let mut handle = ProgramHandle::NULL;
        call!(
            self,
            create(
                &raw mut handle,
                program.text.as_ptr(),
                program.name.as_ptr(),
                names.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        )?;
        Ok(handle)
    }

    fn compile_program(
        &self,
        handle: ProgramHandle,
        program: &ProgramText,
    ) -> Result<Vec<u8>, Error> {
        let options: Vec<_> = program.options.iter().map(|option| option.as_ptr()).collect();
        let outcome = call!(self, compile(handle, options.len() as c_int, options.as_ptr()));
        if let Err(error) = outcome {
            let Error::Status { text, .. } = error else { return Err(error) };
            let source_name = program.name.to_string_lossy().into_owned();
            return Err(Error::Compilation { source_name, text, log: self.log(handle) });
        }
        let mut bytes = 0;
        call!(self, code_size(handle, &raw mut bytes))?;
        let mut code = vec![0u8; bytes];
        call!(self, code(handle, code.as_mut_ptr().cast()))?;
        Ok(code)
    }

    /// The compiler's messages; empty if they cannot be read, so that the original error is
    /// reported.
    fn log(&self, handle: ProgramHandle) -> String {
        let mut bytes = 0;
        if call!(self, log_size(handle, &raw mut bytes)).is_err() || bytes == 0 {
            return String::new();
        }
        let mut log = vec![0u8; bytes];
        match call!(self, log(handle, log.as_mut_ptr().cast())) {
            Ok(()) => text_of(&log),
            Err(_) => String::new(),
        }
    }

    fn pointer<F: Copy>(&self, entry: &ForeignFunction<F>) -> Result<F, Error> {
        entry.pointer.ok_or_else(|| Error::MissingSymbol {
            symbol: entry.symbol,
            library: self.library_path.clone(),
        })
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), Error> {
        if status == constants::SUCCESS {
            return Ok(());
        }
        let text = self.functions.error_text.pointer.map_or(ptr::null(), |function| {
            // SAFETY: accepts any number.
            unsafe { function(status) }
        });
        // SAFETY: null, or a string constant of the library.
        let text = unsafe { static_text(text) }.unwrap_or_else(|| "no description".to_owned());
        Err(Error::Status { function, status, name: "hiprtcResult".to_owned(), text })
    }
}
