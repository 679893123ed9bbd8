//! `--prompt-cache FILE`: a computed prompt on disk.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result};
use rocmforge::engine::{Engine, Error, SavedError, Session};

use crate::failure::bad_input;

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
    let computed = engine.prefill(&mut session, ids)?;
    let time = start.elapsed();
    if computed > 0 {
        let saved = rf_profile::replace_file(path, |out| {
            engine.save(&session, out).map_err(io::Error::other)
        });
        saved.with_context(|| format!("cannot save '{}'", path.display()))?;
    }
    Ok((session, Some((computed, time))))
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
