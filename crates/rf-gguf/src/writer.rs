//! Writes a model: metadata and shapes first, then the data of one tensor after another.

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rf_quant::DType;

use crate::cursor::check_name;
use crate::error::{Error, Problem, Subject};
use crate::output::OutputFile;
use crate::parse::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, check_alignment,
    check_tensor,
};
use crate::tensor::TensorShape;
use crate::tensor_type::{MXFP6_LAYOUT, MXFP6_LAYOUT_KEY, TensorType, type_id};
use crate::value::{Array, Value};

/// The version of the written format.
const VERSION: u32 = 3;

/// The result of producing the data of a tensor. Any error converts with `?`.
type DataResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Writes a GGUF file of version 3.
///
/// The caller declares keys and tensors first, in the order of the file. The writer then requests
/// the data tensor by tensor and streams it out, so that at most one tensor is in memory.
/// [`Gguf`](crate::Gguf) reads every file that the writer accepts. To copy a split model into one
/// file, leave out its `split.` keys.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    metadata: Vec<(String, Value)>,
    tensors: Vec<TensorPlan>,
    // Keys and tensor names so far. A linear search would be quadratic in a large model.
    keys: HashSet<String>,
    names: HashSet<String>,
    alignment: u64,
}

/// A declared tensor.
#[derive(Clone, Debug)]
pub struct TensorPlan {
    name: String,
    shape: TensorShape,
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

    /// The required size of the data.
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

    /// Appends a key. `general.alignment` takes effect.
    ///
    /// # Errors
    ///
    /// When the key exists already or is invalid, or the value nests arrays too deeply.
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
    /// As for [`add`](Self::add), except that the key may exist.
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

    /// Appends a tensor. `shape` starts with the contiguous axis.
    ///
    /// The first MXFP6 tensor also adds the key [`MXFP6_LAYOUT_KEY`].
    ///
    /// # Errors
    ///
    /// When the name exists already or is invalid, the shape has no axes, too many or an empty one,
    /// the rows are not whole blocks, or the size overflows.
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
            shape: TensorShape::new(shape),
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

    /// Writes the file at `path` atomically: to a temporary file in the same folder, which replaces
    /// `path` at the end. On Linux it has no name, so that nothing is left when the process is
    /// killed; elsewhere it is removed on failure.
    ///
    /// `data` is as for [`write_to`](Self::write_to); it may read from the file that is replaced.
    ///
    /// # Errors
    ///
    /// As for [`write_to`](Self::write_to), and when the file cannot be created or replaced.
    pub fn write_file(
        &self,
        path: impl AsRef<Path>,
        data: impl FnMut(&TensorPlan, &mut dyn Write) -> DataResult,
    ) -> Result<(), Error> {
        let target = replaced_file(path.as_ref())?;
        let fail = |source| Error::Io { action: "write", path: path.as_ref().to_owned(), source };
        let mut output = OutputFile::create(&target).map_err(fail)?;
        self.write_to(BufWriter::with_capacity(1 << 20, output.file()), data)?;
        output.persist(&target).map_err(fail)
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

/// The file that writing to `path` replaces: the target of a symbolic link, or `path` itself.
fn replaced_file(path: &Path) -> Result<PathBuf, Error> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(Error::Directory { path: path.to_owned() }),
        // A rename would replace the device or pipe by a file.
        Ok(metadata) if !metadata.is_file() => Err(Error::NotRegular { path: path.to_owned() }),
        Ok(_) => Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        Err(_) if path.file_name().is_none() => Err(Error::Directory { path: path.to_owned() }),
        Err(_) => Ok(path.to_owned()),
    }
}
