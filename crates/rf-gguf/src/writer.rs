//! Writing a model: metadata and shapes first, then the data of one tensor after another.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rf_quant::DType;

use crate::cursor::check_name;
use crate::error::{Error, Problem, Subject};
use crate::parse::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, check_alignment,
    check_tensor,
};
use crate::tensor::{MXFP6_LAYOUT, MXFP6_LAYOUT_KEY, Shape, TensorType, type_id};
use crate::value::{Array, Value};

/// The version that is written.
const VERSION: u32 = 3;

/// What goes wrong while a tensor's data is made; any error converts with `?`.
type DataResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Makes a GGUF file of version 3.
///
/// Keys and tensors are declared first, in the order of the file; then the data is asked for tensor
/// by tensor and streamed out, so that no more than one of them need be in memory. Whatever is
/// accepted here, [`Gguf`](crate::Gguf) reads back. To copy a split model into one file, leave out
/// its `split.` keys.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    metadata: Vec<(String, Value)>,
    tensors: Vec<TensorPlan>,
    // Keys and tensor names so far: linear search would be quadratic in a large model.
    keys: HashSet<String>,
    names: HashSet<String>,
    alignment: u64,
}

/// A tensor that is to be written.
#[derive(Clone, Debug)]
pub struct TensorPlan {
    name: String,
    shape: Shape,
    dtype: DType,
    type_id: u32,
    size_bytes: u64,
}

impl TensorPlan {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One to four lengths; the first axis is the contiguous one.
    pub fn shape(&self) -> &[u64] {
        self.shape.as_slice()
    }

    /// The format of the data.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many bytes the data must have.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// A file without keys and tensors.
    pub fn new() -> Self {
        Self {
            metadata: Vec::new(),
            tensors: Vec::new(),
            keys: HashSet::new(),
            names: HashSet::new(),
            alignment: DEFAULT_ALIGNMENT,
        }
    }

    /// Adds a key after those that are there. `general.alignment` takes effect.
    ///
    /// # Errors
    ///
    /// When the key is there already or cannot stand in a file, or the value nests arrays too deeply.
    pub fn add(
        &mut self,
        key: impl Into<String>,
        value: impl Into<Value>,
    ) -> Result<&mut Self, Error> {
        let (key, value) = (key.into(), value.into());
        let checked = if self.keys.contains(&key) {
            Err(Problem::DuplicateKey)
        } else {
            self.check_entry(&key, &value)
        };
        checked
            .map_err(|problem| Error::Unwritable { subject: Subject::Key(key.clone()), problem })?;
        self.keys.insert(key.clone());
        self.metadata.push((key, value));
        Ok(self)
    }

    /// Replaces the value of a key in its place, or adds the key.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add), but for the key being there.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self, Error> {
        let value = value.into();
        if !self.keys.contains(key) {
            return self.add(key, value);
        }
        self.check_entry(key, &value).map_err(|problem| Error::Unwritable {
            subject: Subject::Key(key.to_owned()),
            problem,
        })?;
        for (_, place) in self.metadata.iter_mut().filter(|(name, _)| name == key) {
            place.clone_from(&value);
        }
        Ok(self)
    }

    /// Adds a tensor after those that are there; `shape` starts with the contiguous axis.
    ///
    /// The first MXFP6 tensor also adds the key [`MXFP6_LAYOUT_KEY`].
    ///
    /// # Errors
    ///
    /// When the name is there already or cannot stand in a file, the shape has no or too many axes or
    /// an empty one, its rows are not whole blocks, or its size overflows.
    pub fn add_tensor(
        &mut self,
        name: impl Into<String>,
        shape: &[u64],
        dtype: DType,
    ) -> Result<&mut Self, Error> {
        let name = name.into();
        let ty = TensorType::Known(dtype);
        let checked = check_name(&name).and_then(|()| check_tensor(shape, ty));
        let checked = match checked {
            Ok(_) if self.names.contains(&name) => Err(Problem::DuplicateTensor),
            other => other,
        };
        let fail = |problem| Error::Unwritable { subject: Subject::Tensor(name.clone()), problem };
        let size_bytes = checked.map_err(fail)?;
        let (Some(size_bytes), Some(type_id)) = (size_bytes, type_id(dtype)) else {
            return Err(Error::UnsupportedType { name, ty });
        };
        if ty.is_mxfp6() {
            self.set(MXFP6_LAYOUT_KEY, MXFP6_LAYOUT)?;
        }
        self.names.insert(name.clone());
        self.tensors.push(TensorPlan {
            name,
            shape: Shape::new(shape),
            dtype,
            type_id,
            size_bytes,
        });
        Ok(self)
    }

    /// The tensors so far, in order.
    pub fn tensors(&self) -> &[TensorPlan] {
        &self.tensors
    }

    /// Writes everything to `out`, calling `data` for each tensor in order to write its bytes.
    ///
    /// # Errors
    ///
    /// When `out` or `data` fails, or `data` writes another number of bytes than
    /// [`TensorPlan::size_bytes`].
    pub fn write_to<W: Write>(
        &self,
        mut out: W,
        mut data: impl FnMut(&TensorPlan, &mut dyn Write) -> DataResult,
    ) -> Result<(), Error> {
        let mut header = Vec::new();
        self.header(&mut header);
        out.write_all(&header).map_err(|source| Error::Header { source })?;
        for tensor in &self.tensors {
            let fail = |source| Error::TensorData { name: tensor.name.clone(), source };
            let mut counted = Counted { out: &mut out, written_bytes: 0 };
            data(tensor, &mut counted).map_err(fail)?;
            let Counted { written_bytes, .. } = counted;
            if written_bytes != tensor.size_bytes {
                return Err(Error::Unwritable {
                    subject: Subject::Tensor(tensor.name.clone()),
                    problem: Problem::WrongDataSize {
                        written_bytes,
                        expected_bytes: tensor.size_bytes,
                    },
                });
            }
            pad(&mut out, written_bytes, self.alignment).map_err(|source| fail(source.into()))?;
        }
        out.flush().map_err(|source| Error::Header { source })
    }

    /// Writes the file at `path`, whole or not at all: to a temporary file beside it, which takes its
    /// place at the end and is removed on failure.
    ///
    /// `data` is as for [`write_to`](Self::write_to); it may read from the file that is replaced.
    ///
    /// # Errors
    ///
    /// As for [`write_to`](Self::write_to), and when the file cannot be made or replaced.
    pub fn write_file(
        &self,
        path: impl AsRef<Path>,
        data: impl FnMut(&TensorPlan, &mut dyn Write) -> DataResult,
    ) -> Result<(), Error> {
        let (temporary, file) = Temporary::beside(path.as_ref())?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        self.write_to(&mut out, data)?;
        temporary.finish(out.get_ref())
    }

    fn check_entry(&mut self, key: &str, value: &Value) -> Result<(), Problem> {
        check_name(key)?;
        if let Value::Array(array) = value {
            check_depth(array, 1)?;
        }
        if key == ALIGNMENT_KEY {
            // llama.cpp reads no other type.
            let Value::U32(alignment) = *value else {
                return Err(Problem::BadAlignment {
                    alignment: value.as_integer().unwrap_or_default(),
                    limit: MAX_ALIGNMENT,
                });
            };
            self.alignment = check_alignment(alignment.into())?;
        }
        if key == MXFP6_LAYOUT_KEY && *value != Value::U32(MXFP6_LAYOUT) {
            let ty = TensorType::Known(DType::Mxfp6E2M3);
            let found = value.as_integer().and_then(|value| value.try_into().ok());
            return Err(Problem::Mxfp6Layout { ty, found });
        }
        Ok(())
    }

    fn header(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_text(out, key);
            out.extend(value.kind().id().to_le_bytes());
            put_value(out, value);
        }
        let mut data_offset = 0;
        for tensor in &self.tensors {
            put_text(out, &tensor.name);
            out.extend((tensor.shape().len() as u32).to_le_bytes());
            out.extend(tensor.shape().iter().flat_map(|length| length.to_le_bytes()));
            out.extend(tensor.type_id.to_le_bytes());
            out.extend(u64::to_le_bytes(data_offset));
            data_offset += tensor.size_bytes.next_multiple_of(self.alignment);
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
    }
}

fn check_depth(array: &Array, depth: usize) -> Result<(), Problem> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(Problem::ArrayTooDeep { limit: MAX_ARRAY_DEPTH });
    }
    match array {
        Array::Array(items) => items.iter().try_for_each(|item| check_depth(item, depth + 1)),
        _ => Ok(()),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(value) => out.push(*value),
        Value::I8(value) => out.extend(value.to_le_bytes()),
        Value::U16(value) => out.extend(value.to_le_bytes()),
        Value::I16(value) => out.extend(value.to_le_bytes()),
        Value::U32(value) => out.extend(value.to_le_bytes()),
        Value::I32(value) => out.extend(value.to_le_bytes()),
        Value::F32(value) => out.extend(value.to_le_bytes()),
        Value::Bool(value) => out.push((*value).into()),
        Value::String(text) => put_text(out, text),
        Value::Array(array) => put_array(out, array),
        Value::U64(value) => out.extend(value.to_le_bytes()),
        Value::I64(value) => out.extend(value.to_le_bytes()),
        Value::F64(value) => out.extend(value.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.element_kind().id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(items) => out.extend(items),
        Array::I8(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::U16(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I16(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::U32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::F32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::Bool(items) => out.extend(items.iter().map(|&item| u8::from(item))),
        Array::String(strings) => strings.iter().for_each(|text| put_text(out, text)),
        Array::Array(items) => items.iter().for_each(|item| put_array(out, item)),
        Array::U64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::F64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
    }
}

fn pad(out: &mut impl Write, written_bytes: u64, alignment: u64) -> io::Result<()> {
    let missing = written_bytes.next_multiple_of(alignment) - written_bytes;
    io::copy(&mut io::Read::take(io::repeat(0), missing), out).map(drop)
}

/// Counts what passes through, so that a tensor of the wrong size is noticed.
struct Counted<'a, W> {
    out: &'a mut W,
    written_bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A file that becomes `target` when it is finished and disappears when it is not.
struct Temporary {
    path: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Temporary {
    fn beside(target: &Path) -> Result<(Self, File), Error> {
        let fail = |source| Error::Io { action: "write", path: target.to_owned(), source };
        match fs::metadata(target) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(Error::Directory { path: target.to_owned() });
            }
            // Renaming over a device or a pipe would replace it by a file.
            Ok(metadata) if !metadata.is_file() => {
                return Err(Error::NotRegular { path: target.to_owned() });
            }
            Ok(_) | Err(_) => {}
        }
        // Where the target is a symbolic link, what it points to is replaced.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let Some(name) = target.file_name() else {
            return Err(Error::Directory { path: target });
        };
        let mut attempt = 0_u32;
        loop {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{attempt}.tmp", std::process::id()));
            let path = target.with_file_name(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((Self { path, target, finished: false }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {
                    attempt += 1;
                }
                Err(source) => return Err(fail(source)),
            }
        }
    }

    fn finish(mut self, file: &File) -> Result<(), Error> {
        // Data before name: after a power cut the target is the old file or the whole new one.
        file.sync_all()
            .and_then(|()| fs::rename(&self.path, &self.target))
            .map_err(|source| Error::Io { action: "write", path: self.target.clone(), source })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing better can be done where even this fails; the error that led here is reported.
            drop(fs::remove_file(&self.path));
        }
    }
}
