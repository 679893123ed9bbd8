//! The KV cache of a model: which layers need every page, and how many pages there are.
//!
//! # Page groups
//!
//! Layers with a sliding window ([`PageGroup::Window`]) and all others ([`PageGroup::Full`]) have
//! separate page ids, page tables and numbers of pages. The groups are derived from the
//! attention ops of the graph.
//!
//! After a step, a session publishes its full pages to the prefix cache, and returns the window
//! pages that its next token does not see. Their entries in the table remain as placeholders.
//! Positions keep their numbers, and kernels need no change: each layer reads the list of its
//! group.
//!
//! - Window pages suffice for [`EngineOptions::sequences`] windows, each with a page at both ends,
//!   and one batch. If whole sequences take fewer pages, and in models that are not causal, all
//!   layers are in one group.
//! - A prefix of the cache is a chain of full pages. It matches only if the window pages that its
//!   next token sees are cached, too.
//! - A table cannot be cut to a position whose window it has passed (`CutCause::Window`). The
//!   engine then computes the sequence again.
//!
//! # Recurrent states
//!
//! Layers without attention (short convolution, gated delta rule, Mamba 2) keep no positions but a
//! few f32 matrices per sequence, whose shapes are `KvLayout::states`. The states of all layers of
//! a sequence are one page of a third group, [`PageGroup::State`]. Allocation, forks, preemption
//! and admission therefore work as they do for pages. A sequence is its pages plus this page
//! (`Span::state`), and an op names the state that it reads and replaces (`Operand::State`).
//!
//! - A state belongs to the last token. A sequence that is cut is computed again
//!   (`CutCause::State`), except after a draft. A sequence whose batch fails loses its tokens.
//! - A new page of states is not read: the backend begins with 0.
//! - The prefix cache has states at few positions: the module `checkpoints`.
//! - The parts of a split program have the states of their layers, with the same page numbers.

use rf_graph::{Attention, Graph, KvLayout, Op};
use rf_kv::{PageCounts, PageGroup, PageSize};
use rf_model::ModelConfig;

use crate::error::Error;
use crate::options::EngineOptions;

/// The cache with every layer in [`PageGroup::Full`], and recurrent states for all sequences.
///
/// # Errors
///
/// If an option is invalid or the context is longer than the model supports.
pub(crate) fn full_layout(
    config: &ModelConfig,
    context_tokens: usize,
    options: &EngineOptions,
) -> Result<KvLayout, Error> {
    let page_size = PageSize::try_from(options.page_tokens)?;
    let kv_tokens = options.kv_tokens.unwrap_or(context_tokens);
    for (name, value) in [
        ("context size", context_tokens),
        ("batch size", options.batch_tokens),
        ("size of the KV cache", kv_tokens),
        ("number of sequences", options.sequences),
    ] {
        if value == 0 {
            return Err(Error::InvalidOption { name, value, reason: "it must be at least 1" });
        }
    }
    if let Some(most) = config.max_context_length
        && context_tokens > most
    {
        return Err(Error::ContextTooLong { context_tokens, most });
    }
    let num_pages = page_size.pages_for(kv_tokens);
    if u32::try_from(num_pages).is_err() {
        return Err(Error::InvalidOption {
            name: "size of the KV cache",
            value: kv_tokens,
            reason: "no cache could be that large",
        });
    }
    let layers = if options.has_mtp() { config.kv_layers_with_mtp() } else { config.kv_layers() };
    let mut layout = KvLayout::new(layers, page_size.tokens(), num_pages, options.kv_type);
    layout.states = config.states();
    if !layout.states.is_empty() {
        let more = options.checkpoints.saturating_add(usize::from(options.speculates));
        layout.num_pages.states = options.sequences.saturating_add(more);
    }
    Ok(layout)
}

/// Moves the layers with a sliding window to [`PageGroup::Window`], with pages for the windows of
/// `sequences` and a batch, if they are fewer than those of whole sequences.
///
/// # Errors
///
/// If the page size is invalid.
pub(crate) fn with_windows(
    mut layout: KvLayout,
    graph: &Graph,
    sequences: usize,
    batch_tokens: usize,
) -> Result<KvLayout, Error> {
    let page_size = PageSize::try_from(layout.page_tokens)?;
    let windows: Vec<Option<usize>> =
        (0..layout.layers.len()).map(|layer| window_of(graph, layer)).collect();
    let Some(window) = windows.iter().copied().flatten().max() else { return Ok(layout) };
    let window_pages = page_size.window_pages_for(window, sequences, batch_tokens);
    if window_pages < layout.num_pages.full {
        for (layer, window) in layout.layers.iter_mut().zip(windows) {
            layer.group = window.map_or(PageGroup::Full, |_| PageGroup::Window);
        }
        layout.num_pages = PageCounts { window: window_pages, ..layout.num_pages };
        layout.window = Some(window);
    }
    Ok(layout)
}

/// The largest window or chunk through which queries see a layer of the cache; `None` if a query
/// sees every position, or later ones.
fn window_of(graph: &Graph, layer: usize) -> Option<usize> {
    let readers = graph.ops().iter().filter_map(|op| match op {
        Op::Attention { attention, .. } if attention.layer == layer => Some(attention),
        _ => None,
    });
    readers.map(Attention::reach).collect::<Option<Vec<usize>>>()?.into_iter().max()
}
