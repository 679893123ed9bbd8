//! New files with the tensors of a model, byte for byte.

use std::ops::ControlFlow;
use std::path::Path;

use rf_gguf::{Gguf, GgufWriter, TensorInfo};

use crate::error::Error;

/// The bytes that are written between two calls of a progress callback.
const PIECE_BYTES: usize = 8 << 20;

/// Declares tensors of a model in a new file.
pub(crate) fn declare<'t>(
    writer: &mut GgufWriter,
    tensors: impl IntoIterator<Item = &'t TensorInfo>,
) -> Result<(), rf_gguf::Error> {
    for tensor in tensors {
        writer.add_tensor(tensor.name(), tensor.shape(), tensor.dtype()?)?;
    }
    Ok(())
}

/// Writes a file whose declared tensors are those of `gguf`. At most a piece of a tensor is in
/// memory, and its pages are released when it is copied.
pub(crate) fn write(
    gguf: &Gguf,
    writer: &GgufWriter,
    path: &Path,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut cancelled = false;
    let result = writer.write_file(path, |plan, out| {
        let data = gguf.data(gguf.required_tensor(plan.name())?);
        for piece in data.chunks(PIECE_BYTES) {
            out.write_all(piece)?;
            if progress(piece.len() as u64).is_break() {
                cancelled = true;
                return Err(Error::Cancelled.into());
            }
        }
        data.release();
        Ok(())
    });
    if cancelled { Err(Error::Cancelled) } else { Ok(result?) }
}

/// Checks that nothing is at the path of a new file. An output thus never replaces an input.
pub(crate) fn check_is_new(path: &Path) -> Result<(), Error> {
    match path.symlink_metadata() {
        Ok(_) => Err(Error::Exists { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}
