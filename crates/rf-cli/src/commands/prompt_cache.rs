//! `--prompt-cache FILE`: a computed prompt on disk.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result};
use rocmforge::engine::{Engine, Error, SavedError, Session};

use super::display::PromptBar;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;

/// The sequence of a file, extended to a prompt but its last token, and then saved again. Also
/// returns how many tokens were computed, and how long it took.
pub(super) fn prefill(
    engine: &mut Engine,
    path: &Path,
    ids: &[u32],
) -> Result<(Session, Option<(usize, Duration)>)> {
    let start = Instant::now();
    let mut session = match fs::read(path) {
        Ok(saved) => engine.restore(&saved).map_err(|error| refused(path, error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => engine.session(),
        Err(error) => return Err(bad_input!("cannot read '{}': {error}", path.display())),
    };
    // With other scales than before, all of it is computed again.
    session.set_adapters(engine.model().adapter_scales().clone());
    let computed = compute(engine, &mut session, ids)?;
    let time = start.elapsed();
    if computed > 0 {
        let saved = rf_profile::replace_file(path, |out| {
            engine.save(&session, out).map_err(io::Error::other)
        });
        saved.with_context(|| format!("cannot save '{}'", path.display()))?;
    }
    Ok((session, Some((computed, time))))
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
