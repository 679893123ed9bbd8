//! Compiling kernels where they run.

use std::{ffi::CString, sync::Arc};

use crate::{
    Error,
    result::compiler::{CompilerApi, ProgramText},
};

/// HIP's compiler, libhiprtc, loaded; cloning is cheap. It makes code objects for AMD devices; NVIDIA
/// needs none, its driver compiles PTX.
#[derive(Debug, Clone)]
pub struct Compiler {
    api: Arc<CompilerApi>,
}

/// A source and what it includes.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// File name for the compiler's messages.
    pub name: &'a str,
    /// HIP C++.
    pub text: &'a str,
    /// Headers by the name they are included under, each with its text.
    pub headers: &'a [(&'a str, &'a str)],
}

impl Compiler {
    /// Loads libhiprtc, from `ROCM_PATH` first, then as libamdhip64 is.
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
    /// What the compiler's call returns.
    pub fn version(&self) -> Result<(i32, i32), Error> {
        self.api.version()
    }

    /// Compiles to a code object for [`Module::load`](crate::Module::load). Options are clang's, above
    /// all `--offload-arch=gfx1100`. One source of the process at a time; another thread waits.
    ///
    /// # Errors
    ///
    /// [`Error::Compilation`] with the compiler's messages, [`Error::ZeroByte`], or what the
    /// compiler's other calls return.
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
    // A whole source would drown the message.
    let excerpt = || text.chars().take(40).collect();
    CString::new(text).map_err(|_| Error::ZeroByte { name: excerpt() })
}
