//! Networks that run: stages on a backend, rearrangement of rows on the host between them.

use rf_graph::{
    Backend, Batch, Executor, Input, Output, PageId, Position, Program, Progress, Span,
};

use crate::error::Error;
use crate::rgb::Rgb;

/// Tokens per page of the cache, which holds the keys and values of one layer and picture. The
/// smallest pages suit windows of few rows.
pub(crate) const PAGE_TOKENS: usize = 16;

/// The network of a projector.
pub(crate) trait Network: Send + Sync {
    /// The embeddings of a picture that has its final size.
    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error>;

    /// Elements of a row of embeddings.
    fn width(&self) -> usize;

    /// The most spans of a batch, for so many patches.
    fn max_spans(&self, patches: usize) -> usize {
        _ = patches;
        1
    }
}

/// A stage of a network's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) index: usize,
    /// Width of the rows that it returns.
    pub(crate) width: usize,
}

/// Rows that see each other in attention.
#[derive(Clone, Debug)]
pub(crate) struct AttentionGroup {
    rows: usize,
    /// The position of each row; empty without RoPE.
    positions: Vec<Position>,
}

impl AttentionGroup {
    /// One group of all rows.
    pub(crate) fn all(rows: usize) -> Vec<Self> {
        vec![Self { rows, positions: Vec::new() }]
    }

    /// Groups of equal size.
    pub(crate) fn of_each(rows: usize, size: usize) -> Vec<Self> {
        (0..rows / size).map(|_| Self { rows: size, positions: Vec::new() }).collect()
    }

    /// Rows at the cells `[x, y]` of a grid. Attention depends on distances only, so positions
    /// begin at the first cell.
    pub(crate) fn at(cells: &[[usize; 2]]) -> Self {
        let first = |axis: usize| cells.iter().map(|cell| cell[axis]).min().unwrap_or(0);
        let origin = [first(0), first(1)];
        let place = |cell: &[usize; 2], axis: usize| (cell[axis] - origin[axis]) as u32;
        let positions = cells.iter().map(|cell| [0, place(cell, 1), place(cell, 0), 0]);
        Self { rows: cells.len(), positions: positions.collect() }
    }
}

/// Loads a program on a backend.
pub(crate) fn load(
    program: Program,
    backend: &dyn Backend,
    progress: &mut dyn FnMut(Progress),
) -> Result<Box<dyn Executor>, Error> {
    let program = program.fused_for(backend);
    backend.check_memory(&program)?;
    Ok(backend.compile(program, progress)?)
}

/// Runs stages.
pub(crate) struct StageRunner<'a> {
    pub(crate) executor: &'a mut dyn Executor,
}

impl StageRunner<'_> {
    /// Runs a stage on rows that do not see each other.
    pub(crate) fn rows(
        &mut self,
        stage: Stage,
        inputs: &[&[f32]],
        rows: usize,
    ) -> Result<Vec<f32>, Error> {
        self.groups(stage, inputs, &AttentionGroup::all(rows))
    }

    /// Runs a stage. Each input has as many rows as all groups together.
    pub(crate) fn groups(
        &mut self,
        stage: Stage,
        inputs: &[&[f32]],
        groups: &[AttentionGroup],
    ) -> Result<Vec<f32>, Error> {
        let rows = groups.iter().map(|group| group.rows).sum();
        let pages = |group: &AttentionGroup| group.rows.div_ceil(PAGE_TOKENS);
        let num_pages = groups.iter().map(pages).sum::<usize>();
        let all_pages: Vec<PageId> = (0..num_pages as u32).map(PageId::new).collect();
        let (mut next_row, mut next_page) = (0, 0);
        let spans = groups.iter().map(|group| {
            let (tokens, first_page) = (next_row..next_row + group.rows, next_page);
            (next_row, next_page) = (tokens.end, first_page + pages(group));
            let positions = (!group.positions.is_empty()).then_some(&*group.positions);
            let pages = &all_pages[first_page..next_page];
            Span { tokens, positions, pages, ..Span::default() }
        });
        let spans: Vec<Span<'_>> = spans.collect();
        let input = inputs.concat();
        let ids = vec![0; rows];
        let batch =
            Batch { ids: &ids, spans: &spans, output_rows: &[], input: Some(Input::Rows(&input)) };
        let mut out = vec![0.0; rows * stage.width];
        self.executor.forward(&batch, Output::rows(&mut out).of_stage(stage.index))?;
        Ok(out)
    }
}
