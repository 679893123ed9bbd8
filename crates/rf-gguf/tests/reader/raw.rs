//! Builds GGUF files field by field, so that tests can make any field invalid.

/// Ids of value types in the format.
pub(crate) mod kind {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I32: u32 = 5;
    pub(crate) const U32: u32 = 4;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
}

/// Ids of tensor types.
pub(crate) const F32: u32 = 0;
pub(crate) const Q4_K: u32 = 12;

/// A file under construction; every method appends bytes.
#[derive(Clone, Default)]
pub(crate) struct Raw(Vec<u8>);

impl Raw {
    pub(crate) fn header(version: u32, tensors: u64, entries: u64) -> Self {
        Self::default().bytes(b"GGUF").u32(version).u64(tensors).u64(entries)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A length and that many bytes.
    pub(crate) fn text(self, text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        self.u64(text.len() as u64).bytes(text)
    }

    /// A key and the type of the value that must follow.
    pub(crate) fn key(self, key: &str, kind: u32) -> Self {
        self.text(key).u32(kind)
    }

    /// The head of an array, after its key.
    pub(crate) fn array(self, kind: u32, count: u64) -> Self {
        self.u32(kind).u64(count)
    }

    pub(crate) fn tensor(self, name: &str, shape: &[u64], ty: u32, data_offset: u64) -> Self {
        let head = self.text(name).u32(shape.len() as u32);
        shape.iter().fold(head, |raw, &length| raw.u64(length)).u32(ty).u64(data_offset)
    }

    /// Zeros up to the alignment, then `length` bytes of data that are not zero.
    pub(crate) fn data(mut self, length: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32), 0);
        self.0.extend((0..length).map(|index| (index % 251) as u8 + 1));
        self
    }

    pub(crate) fn build(self) -> Vec<u8> {
        self.0
    }
}

/// A small valid file with scalars, strings, arrays, nested arrays and two tensors; its last byte
/// is data.
pub(crate) fn valid() -> Vec<u8> {
    Raw::header(3, 2, 6)
        .key("general.architecture", kind::STRING)
        .text("llama")
        .key("llama.block_count", kind::U32)
        .u32(2)
        .key("tokenizer.ggml.add_bos_token", kind::BOOL)
        .u8(1)
        .key("tokenizer.ggml.tokens", kind::ARRAY)
        .array(kind::STRING, 3)
        .text("<s>")
        .text("")
        .text("é")
        .key("tokenizer.ggml.token_type", kind::ARRAY)
        .array(kind::I32, 3)
        .u32(3)
        .u32(1)
        .u32(1)
        .key("nested", kind::ARRAY)
        .array(kind::ARRAY, 2)
        .array(kind::U8, 2)
        .bytes(&[1, 2])
        .array(kind::BOOL, 1)
        .u8(0)
        .tensor("a.weight", &[4, 3], F32, 0)
        .tensor("b.weight", &[256], Q4_K, 64)
        .data(64 + 144)
        .build()
}
