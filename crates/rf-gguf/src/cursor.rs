//! A position in untrusted bytes. Every read is checked, and every error has an offset.

use crate::error::{Error, Problem, Subject};

#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// A broken rule and its offset, before the key or tensor is known.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) offset: u64,
    pub(crate) problem: Problem,
}

impl Fault {
    pub(crate) fn about(self, subject: Subject) -> Error {
        Error::Malformed { offset: self.offset, subject, problem: self.problem }
    }
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    pub(crate) const fn offset(&self) -> u64 {
        self.position as u64
    }

    pub(crate) const fn remaining_bytes(&self) -> u64 {
        self.bytes.len().saturating_sub(self.position) as u64
    }

    pub(crate) const fn fault(&self, problem: Problem) -> Fault {
        Fault { offset: self.offset(), problem }
    }

    pub(crate) fn take(&mut self, length_bytes: u64) -> Result<&'a [u8], Fault> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        match usize::try_from(length_bytes).ok().and_then(|length| rest.get(..length)) {
            Some(taken) => {
                self.position += taken.len();
                Ok(taken)
            }
            None => Err(self.fault(Problem::Truncated {
                needed_bytes: length_bytes,
                available_bytes: rest.len() as u64,
            })),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        match rest.first_chunk::<N>() {
            Some(taken) => {
                self.position += N;
                Ok(*taken)
            }
            None => Err(self.fault(Problem::Truncated {
                needed_bytes: N as u64,
                available_bytes: rest.len() as u64,
            })),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Fault> {
        let at = self.offset();
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Fault { offset: at, problem: Problem::InvalidBool { value } }),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of items of at least `item_bytes` each. Fails if they exceed the rest of the file.
    pub(crate) fn count(&mut self, item_bytes: u64) -> Result<u64, Fault> {
        let at = self.offset();
        let count = self.u64()?;
        let available_bytes = self.remaining_bytes();
        if count > available_bytes / item_bytes {
            return Err(Fault {
                offset: at,
                problem: Problem::CountTooLarge { count, available_bytes },
            });
        }
        Ok(count)
    }

    /// A length and text of that many bytes.
    pub(crate) fn text(&mut self) -> Result<&'a str, Fault> {
        let length_bytes = self.u64()?;
        let at = self.offset();
        std::str::from_utf8(self.take(length_bytes)?).map_err(|error| Fault {
            offset: at + error.valid_up_to() as u64,
            problem: Problem::InvalidUtf8,
        })
    }

    /// Checks a key or tensor name: not empty, and not longer than the format allows.
    pub(crate) fn name(&mut self) -> Result<&'a str, Fault> {
        let at = self.offset();
        let name = self.text()?;
        check_name(name).map_err(|problem| Fault { offset: at, problem })?;
        Ok(name)
    }
}

/// The longest key or tensor name, from the GGUF specification.
const NAME_LIMIT_BYTES: u64 = 65_535;

pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let length_bytes = name.len() as u64;
    if length_bytes == 0 {
        return Err(Problem::EmptyName);
    }
    if length_bytes > NAME_LIMIT_BYTES {
        return Err(Problem::NameTooLong { length_bytes, limit_bytes: NAME_LIMIT_BYTES });
    }
    Ok(())
}
