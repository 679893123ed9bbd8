//! Sequences in files: the tokens, and the pages and recurrent states that hold them.
//!
//! Layout, little-endian: magic, version, identity, in version 2 the number of scales of adapters
//! and the scales, number of tokens, tokens; for each page group
//! the number of pages, and for each page its length in bytes and its bytes; at the end the hash
//! (XXH3, 128 bits) of all bytes before it. The identity stands for the model, the settings of the
//! cache and the backend, whose pages have a form of its own.

use std::io::Write;
use std::sync::Arc;

use rf_graph::BackendError;
use rf_kv::PageGroup;
use twox_hash::XxHash3_128;

use super::{Engine, Outputs, SequenceInput};
use crate::adapters::AdapterScales;
use crate::error::{Error, SavedError};
use crate::media::is_row;
use crate::session::{Session, lock};

const MAGIC: &[u8; 8] = b"RFPROMPT";
/// The versions of sequences without and with adapters.
const VERSIONS: [u32; 2] = [1, 2];

impl Engine {
    /// Computes all tokens of a prompt but the last, whose logits a generation needs. The prefix
    /// that the session has in its cache is reused. Returns the number of computed tokens.
    ///
    /// # Errors
    ///
    /// If the prompt is empty or too long, or the backend fails.
    pub fn prefill(&mut self, session: &mut Session, prompt: &[u32]) -> Result<usize, Error> {
        let Some((_, before)) = prompt.split_last() else { return Err(Error::EmptyPrompt) };
        let common = session.tokens().iter().zip(before).take_while(|(a, b)| a == b).count();
        let cached_tokens = session.truncate_or_reset(common);
        let ids = &before[cached_tokens..];
        if !ids.is_empty() {
            self.forward(&mut [SequenceInput { session, ids, outputs: Outputs::None }])?;
        }
        Ok(ids.len())
    }

    /// Writes a sequence with its pages and recurrent states, for [`restore`](Self::restore).
    ///
    /// # Errors
    ///
    /// If the sequence has media, the backend cannot read pages, or the output cannot be written.
    pub fn save(&self, session: &Session, out: &mut dyn Write) -> Result<(), Error> {
        if session.tokens().iter().any(|id| is_row(*id)) {
            return Err(SavedError::HasMedia.into());
        }
        let mut out = Hashed { out, hash: XxHash3_128::new() };
        out.put(MAGIC)?;
        let scales = session.adapters().key();
        let version = VERSIONS[usize::from(!scales.is_empty())];
        out.put(&version.to_le_bytes())?;
        out.put(&self.identity.to_le_bytes())?;
        if !scales.is_empty() {
            out.put(&(scales.len() as u64).to_le_bytes())?;
            for scale in scales {
                out.put(&scale.to_le_bytes())?;
            }
        }
        out.put(&(session.len() as u64).to_le_bytes())?;
        for id in session.tokens() {
            out.put(&id.to_le_bytes())?;
        }
        let mut bytes = Vec::new();
        for group in PageGroup::ALL {
            let pages = session.table.held_pages(group);
            out.put(&(pages.len() as u64).to_le_bytes())?;
            for page in pages {
                bytes.clear();
                self.executor.read_page(group, *page, &mut bytes)?;
                out.put(&(bytes.len() as u64).to_le_bytes())?;
                out.put(&bytes)?;
            }
        }
        let hash = out.hash.finish_128();
        Ok(out.out.write_all(&hash.to_le_bytes()).map_err(SavedError::from)?)
    }

    /// A sequence that [`save`](Self::save) wrote, on an engine of the same model and settings. The
    /// context may have another length.
    ///
    /// # Errors
    ///
    /// [`Error::Saved`] if the bytes are not such a sequence; otherwise if the sequence does not
    /// fit into the context or the cache, or the backend cannot write pages.
    pub fn restore(&mut self, saved: &[u8]) -> Result<Session, Error> {
        let mut rest = Reader(saved);
        if rest.take(MAGIC.len()).ok() != Some(&MAGIC[..]) {
            return Err(SavedError::OtherFile.into());
        }
        let found = u32::from_le_bytes(rest.array()?);
        if !VERSIONS.contains(&found) {
            return Err(SavedError::Version { found, supported: VERSIONS[1] }.into());
        }
        let (written, hash) = saved.split_last_chunk().ok_or(SavedError::Damaged)?;
        if XxHash3_128::oneshot(written) != u128::from_le_bytes(*hash) {
            return Err(SavedError::Damaged.into());
        }
        if u128::from_le_bytes(rest.array()?) != self.identity {
            return Err(SavedError::OtherModel.into());
        }
        let num_scales = if found == VERSIONS[1] { rest.len()? } else { 0 };
        let scales = rest.take(num_scales.saturating_mul(4))?.as_chunks::<4>().0;
        let scales: Vec<f32> = scales.iter().map(|scale| f32::from_le_bytes(*scale)).collect();
        let scales = AdapterScales::new(&scales);
        scales.check(self.model.adapters().len())?;
        let prompt_tokens = rest.len()?;
        let context_tokens = self.context_tokens();
        if prompt_tokens > context_tokens {
            return Err(Error::PromptTooLong { prompt_tokens, context_tokens });
        }
        let ids = rest.take(prompt_tokens.saturating_mul(4))?.as_chunks::<4>().0;
        let ids: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        let mut session = self.session();
        session.set_adapters(scales);
        let pool = Arc::clone(&session.pool);
        let mut pool = lock(&pool);
        // In steps, as the sequence has grown: a window may have fewer pages than the sequence.
        for len_tokens in (0..prompt_tokens).step_by(self.page_tokens()) {
            let len_tokens = (len_tokens + self.page_tokens()).min(prompt_tokens);
            pool.grow(&mut session.table, len_tokens)?;
            pool.drop_front(&mut session.table);
        }
        self.tiers.follow(&mut pool, self.executor.as_ref());
        session.tokens = ids;
        for group in PageGroup::ALL {
            let pages = session.table.held_pages(group);
            if rest.len()? != pages.len() {
                return Err(SavedError::Damaged.into());
            }
            for page in pages {
                let bytes = rest.len()?;
                let bytes = rest.take(bytes)?;
                self.executor.write_page(group, *page, bytes).map_err(|error| match error {
                    // Another division into layers on the CPU and on the GPU.
                    BackendError::InvalidBatch(_) => SavedError::OtherModel.into(),
                    error => Error::from(error),
                })?;
            }
        }
        Ok(session)
    }
}

/// An output whose bytes are hashed.
struct Hashed<'a> {
    out: &'a mut dyn Write,
    hash: XxHash3_128,
}

impl Hashed<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SavedError> {
        self.hash.write(bytes);
        Ok(self.out.write_all(bytes)?)
    }
}

/// The bytes that have not been read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], SavedError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(SavedError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SavedError> {
        self.take(N)?.try_into().map_err(|_| SavedError::Damaged)
    }

    fn len(&mut self) -> Result<usize, SavedError> {
        usize::try_from(u64::from_le_bytes(self.array()?)).map_err(|_| SavedError::Damaged)
    }
}
