//! Compiles kernels at run time.

use std::ffi::CString;
use std::sync::Arc;

use crate::Error;
use crate::result::compiler::{CompilerApi, ProgramText};

/// HIP's run-time compiler, libhiprtc. Cloning is cheap. It compiles to AMD code objects; on NVIDIA
/// the driver compiles PTX.
#[derive(Debug, Clone)]
pub struct Compiler {
    api: Arc<CompilerApi>,
}

/// A source and its headers.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file name in the compiler's messages.
    pub name: &'a str,
    /// The source text, in HIP C++.
    pub text: &'a str,
    /// Headers: the name in the include directive, and the text.
    pub headers: &'a [(&'a str, &'a str)],
}

impl Compiler {
    /// Loads libhiprtc: from the folder of the libamdhip64 that was loaded last, then from where
    /// libamdhip64 is searched.
    ///
    /// # Errors
    ///
    /// [`Error::LibraryNotFound`]
    pub fn load() -> Result<Self, Error> {
        Ok(Self { api: Arc::new(CompilerApi::load()?) })
    }

    /// The compiler's version: (major, minor).
    ///
    /// # Errors
    ///
    /// An error of the compiler call.
    pub fn version(&self) -> Result<(i32, i32), Error> {
        self.api.version()
    }

    /// Compiles to a code object for [`Module::load`](crate::Module::load). The options are
    /// clang's, such as `--offload-arch=gfx1100`. A process compiles one source at a time; other
    /// threads wait.
    ///
    /// # Errors
    ///
    /// [`Error::Compilation`] with the compiler's messages, [`Error::ZeroByte`], or an error of the
    /// other compiler calls.
    pub fn compile(&self, source: Source<'_>, options: &[&str]) -> Result<Vec<u8>, Error> {
        let headers = source.headers.iter().map(|(name, text)| Ok((for_c(name)?, for_c(text)?)));
        self.api.compile(&ProgramText {
            name: for_c(source.name)?,
            text: for_c(source.text)?,
            headers: headers.collect::<Result<_, Error>>()?,
            options: options.iter().map(|option| for_c(option)).collect::<Result<_, _>>()?,
        })
    }
}

fn for_c(text: &str) -> Result<CString, Error> {
    // A complete source would make the message unreadable.
    let excerpt = || text.chars().take(40).collect();
    CString::new(text).map_err(|_| Error::ZeroByte { name: excerpt() })
}
