//! A line about the prefix cache of an engine.

use rocmforge::engine::Engine;

use crate::terminal;

/// The tokens of prompts that were found so far, and where pages and recurrent states are; `None`
/// if nothing was looked up.
pub(crate) fn line(engine: &Engine) -> Option<String> {
    let stats = engine.prefix_cache_stats();
    let (found, all) = (stats.found_tokens, stats.lookup_tokens);
    let tiers: Vec<String> = [("in host memory", stats.host), ("on disk", stats.disk)]
        .into_iter()
        .filter(|(_, tier)| tier.pages > 0)
        .map(|(place, tier)| {
            let bytes = terminal::bytes(tier.bytes);
            format!("; {} pages {place} ({bytes}), {} copied back", tier.pages, tier.loads)
        })
        .collect();
    let tiers = tiers.concat();
    let states = match engine.memory().states_bytes {
        0 => String::new(),
        _ => format!("; recurrent states: {} kept on the device", stats.device_states),
    };
    (all > 0).then(|| format!("prefix cache: {found} of {all} tokens found{states}{tiers}"))
}
