//! `--prompt-cache FILE`: a computed prompt on disk.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result};
use rocmforge::engine::{Engine, Error, SavedError, Session};

use super::display::PromptBar;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;

/// A prompt that is computed but its last token.
pub(super) struct Prefilled {
    pub(super) session: Session,
    /// The number of computed tokens.
    pub(super) tokens: usize,
    pub(super) time: Duration,
    /// The reason why the file was not written. The answer is worth more than the file.
    pub(super) unsaved: Option<anyhow::Error>,
}

/// Extends the sequence of a file to a prompt, and saves it again.
pub(super) fn prefill(engine: &mut Engine, path: &Path, ids: &[u32]) -> Result<Prefilled> {
    let start = Instant::now();
    // Others, such as /dev/zero, may have no end.
    if fs::metadata(path).is_ok_and(|data| !data.is_file()) {
        return Err(bad_input!("'{}' is no file: give the path of a file", path.display()));
    }
    let mut session = match fs::read(path) {
        Ok(saved) => engine.restore(&saved).map_err(|error| refused(path, error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => engine.session(),
        Err(error) => return Err(bad_input!("cannot read '{}': {error}", path.display())),
    };
    // With other scales than before, all of it is computed again.
    session.set_adapters(engine.model().adapter_scales().clone());
    let tokens = compute(engine, &mut session, ids)?;
    let time = start.elapsed();
    let mut unsaved = None;
    if tokens > 0 {
        let saved = rf_profile::replace_file(path, |out| {
            engine.save(&session, out).map_err(io::Error::other)
        });
        let saved = saved.with_context(|| format!("cannot save '{}'", path.display()));
        unsaved = saved.err();
    }
    Ok(Prefilled { session, tokens, time, unsaved })
}

/// Computes the tokens but the last one that the sequence does not have. Returns their number.
fn compute(engine: &mut Engine, session: &mut Session, ids: &[u32]) -> Result<usize> {
    let (watch, batch_tokens) = (Watch::new(), engine.batch_tokens());
    let cached = session.tokens().iter().zip(ids).take_while(|(a, b)| a == b).count();
    let bar = PromptBar::new(ids.len() - cached, batch_tokens);
    let (mut computed, mut end) = (0, cached);
    loop {
        end = ids.len().min(end + batch_tokens);
        computed += engine.prefill(session, &ids[..end])?;
        if end == ids.len() {
            bar.clear();
            return Ok(computed);
        }
        bar.show(end - cached, 0);
        if watch.requested() {
            bar.clear();
            return Err(Interrupted.into());
        }
    }
}

/// The error of a file that cannot be restored.
fn refused(path: &Path, error: Error) -> anyhow::Error {
    match error {
        Error::Saved(error @ SavedError::OtherModel) => {
            bad_input!("'{}': {error} (-c, --cache-type and --spec set the kind)", path.display())
        }
        Error::Saved(error) => bad_input!("'{}': {error}", path.display()),
        error => error.into(),
    }
}
