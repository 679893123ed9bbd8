//! The older form of importance matrices: little-endian 32-bit numbers.
//!
//! ```text
//! number of entries
//! per entry: length of the name, name, calls, number of values, values (f32): calls × mean squares
//! optional:  chunks, length of the dataset's name, name
//! ```

/// The contents of a file.
pub(super) struct Dat {
    pub(super) entries: Vec<TensorEntry>,
    pub(super) num_chunks: u32,
    pub(super) dataset: Option<String>,
}

/// `calls × mean squares` of one tensor.
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) calls: usize,
    pub(super) values: Vec<f32>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Dat, String> {
    let mut rest = Reader(bytes);
    let mut entries = Vec::new();
    for _ in 0..rest.number()? {
        let name = rest.text()?;
        let calls = rest.number()?;
        let len = rest.number()?;
        let bytes = len.checked_mul(4).and_then(|bytes| rest.take(bytes)).ok_or(ENDS)?;
        entries.push(TensorEntry { name, calls, values: floats(bytes) });
    }
    if entries.is_empty() {
        return Err("it is neither a GGUF file nor has it entries".into());
    }
    let num_chunks = rest.number().unwrap_or(0) as u32;
    Ok(Dat { entries, num_chunks, dataset: rest.text().ok() })
}

/// Little-endian floats.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

const ENDS: &str = "it is no GGUF file, and as a file of the older form it ends within an entry";

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A length or a count, at most 2³¹ - 1.
    fn number(&mut self) -> Result<usize, String> {
        let bytes = self.take(4).and_then(|bytes| bytes.try_into().ok()).ok_or(ENDS)?;
        usize::try_from(i32::from_le_bytes(bytes)).map_err(|_| ENDS.to_owned())
    }

    fn text(&mut self) -> Result<String, String> {
        let len = self.number()?;
        let bytes = self.take(len).ok_or(ENDS)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| ENDS.to_owned())
    }
}
