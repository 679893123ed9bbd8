//! A line about the prefix cache of an engine.

use rocmforge::engine::Engine;

use crate::terminal;

/// The tokens of prompts that were found so far, and where recurrent states are; `None` if nothing
/// was looked up.
pub(crate) fn line(engine: &Engine) -> Option<String> {
    let stats = engine.prefix_cache_stats();
    let (found, all) = (stats.found_tokens, stats.lookup_tokens);
    let host = match stats.host_states {
        0 => String::new(),
        count => {
            let bytes = terminal::bytes(stats.host_state_bytes);
            format!(", {count} in host memory ({bytes}), {} copied back", stats.host_state_loads)
        }
    };
    let states = match engine.memory().states_bytes {
        0 => String::new(),
        _ => format!("; recurrent states: {} kept on the device{host}", stats.device_states),
    };
    (all > 0).then(|| format!("prefix cache: {found} of {all} tokens found{states}"))
}
