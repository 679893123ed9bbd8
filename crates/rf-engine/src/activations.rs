//! Sums of squared activations: the importance of the columns of each matrix of a model.

use std::collections::BTreeMap;

use rf_graph::{
    Backend, Batch, Executor, Observation, Observed, Output, Program, Progress, Span, WeightId,
    observe,
};
use rf_kv::{PageGroup, PagePool, PageSize, PageTable};

use crate::error::Error;
use crate::model::Model;
use crate::options::EngineOptions;

/// A loaded model that sums up the squares of the left operands of its matmuls.
///
/// The backend must keep values between the stages of a batch: see [`observe`]. Attention and
/// feed-forward parts are observed, the output matrix is not.
pub struct Activations {
    executor: Box<dyn Executor>,
    observations: Vec<Named>,
    pool: PagePool,
    batch_tokens: usize,
    context_tokens: usize,
    sums: BTreeMap<String, ActivationSums>,
}

/// The sums of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivationSums {
    /// `[matrices][columns]`: sums of the squares over rows.
    pub squares: Vec<f64>,
    /// Rows of each matrix: tokens, or those that selected the expert.
    pub rows: Vec<u64>,
}

/// An observation with the names of the tensors of its weights.
struct Named {
    observation: Observation,
    tensors: Vec<(String, usize)>,
}

impl Activations {
    /// Loads a model to observe it. A chunk has room for the context of the options.
    ///
    /// # Errors
    ///
    /// If an option is invalid, tensors are missing, memory is short, or the backend does not
    /// support the model.
    pub fn load(
        model: &Model,
        backend: &dyn Backend,
        options: &EngineOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let observed = observe(model.program(options)?, |name| name.starts_with("blk."));
        let Observed { program, observations } = observed;
        backend.check_memory(&program)?;
        let observations = observations.into_iter().map(|o| Named::new(o, &program)).collect();
        let kv = &program.kv;
        let page_size = PageSize::try_from(kv.page_tokens)?;
        let pool = PagePool::with_window(kv.num_pages, page_size, kv.window);
        let batch_tokens = program.max_batch_tokens;
        let context_tokens = model.context_tokens(options);
        let executor = backend.compile(program, progress)?;
        let sums = BTreeMap::new();
        Ok(Self { executor, observations, pool, batch_tokens, context_tokens, sums })
    }

    /// Computes a text from its first token on and adds its activations.
    ///
    /// # Errors
    ///
    /// If the text is longer than the context, a token is not in the vocabulary, the backend
    /// fails, or an activation is not finite.
    pub fn add(&mut self, ids: &[u32]) -> Result<(), Error> {
        let (prompt_tokens, context_tokens) = (ids.len(), self.context_tokens);
        if prompt_tokens > context_tokens {
            return Err(Error::PromptTooLong { prompt_tokens, context_tokens });
        }
        let mut table = PageTable::new();
        let added = self.add_chunks(ids, &mut table);
        self.pool.release(table);
        added
    }

    /// Computes a text in chunks, with the pages of a table.
    fn add_chunks(&mut self, ids: &[u32], table: &mut PageTable) -> Result<(), Error> {
        for ids in ids.chunks(self.batch_tokens) {
            let rows: Vec<usize> = (0..ids.len()).collect();
            let past_tokens = table.len_tokens();
            self.pool.grow(table, past_tokens + ids.len())?;
            let span = Span {
                tokens: 0..ids.len(),
                past_tokens,
                pages: table.pages(PageGroup::Full),
                window_pages: table.pages(PageGroup::Window),
                state: table.state(),
                ..Span::default()
            };
            let batch = Batch { ids, spans: &[span], output_rows: &rows, input: None };
            let mut route = Vec::new();
            for (stage, named) in self.observations.iter().enumerate() {
                let mut values = vec![0.0; ids.len() * named.observation.width()];
                self.executor.forward(&batch, Output::rows(&mut values).of_stage(stage))?;
                if matches!(named.observation, Observation::Route { .. }) {
                    route = values;
                } else {
                    named.add_to(&mut self.sums, &values, &route)?;
                }
            }
            self.pool.drop_front(table);
        }
        Ok(())
    }

    /// The sums so far, by the name of the tensor.
    pub fn sums(&self) -> &BTreeMap<String, ActivationSums> {
        &self.sums
    }
}

impl Named {
    fn new(observation: Observation, program: &Program) -> Self {
        let name = |id: &WeightId| program.weights[id.index()].name().to_owned();
        let mut tensors: Vec<(String, usize)> = match &observation {
            Observation::Operand { weights, .. } => weights.iter().map(|w| (name(w), 1)).collect(),
            Observation::ExpertOperand { weights, .. } => {
                let of_tensor = |experts: &Vec<WeightId>| {
                    let first = name(&experts[0]);
                    let tensor = first.split('[').next().unwrap_or_default().to_owned();
                    (tensor, experts.len())
                };
                weights.iter().map(of_tensor).collect()
            }
            Observation::Route { .. } => Vec::new(),
        };
        // Several weights may be parts of one tensor.
        tensors.sort_unstable();
        tensors.dedup();
        Self { observation, tensors }
    }

    /// Adds the output of the stage, `[tokens, width]`, and of the route before it.
    fn add_to(
        &self,
        sums: &mut BTreeMap<String, ActivationSums>,
        values: &[f32],
        route: &[f32],
    ) -> Result<(), Error> {
        let width = self.observation.width();
        let (columns, slots) = match self.observation {
            Observation::ExpertOperand { columns, slots, .. } => (columns, slots),
            _ => (width, 1),
        };
        let tokens = values.len() / width;
        let experts_per_token = route.len() / tokens / 2;
        // All tensors of the observation have the same sums.
        let Some((_, matrices)) = self.tensors.first() else { return Ok(()) };
        let mut added =
            ActivationSums { squares: vec![0.0; matrices * columns], rows: vec![0; *matrices] };
        for (token, row) in values.chunks_exact(width).enumerate() {
            if let Observation::Operand { .. } = self.observation {
                added.add_row(0, row);
                continue;
            }
            let experts = &route[2 * experts_per_token * token..][..experts_per_token];
            for (slot, expert) in experts.iter().enumerate() {
                added.add_row(*expert as usize, &row[slot % slots * columns..][..columns]);
            }
        }
        for (tensor, _) in &self.tensors {
            if added.squares.iter().any(|square| !square.is_finite()) {
                return Err(Error::NotFinite { tensor: tensor.clone() });
            }
            match sums.get_mut(tensor) {
                Some(sums) => sums.merge(&added),
                None => {
                    sums.insert(tensor.clone(), added.clone());
                }
            }
        }
        Ok(())
    }
}

impl ActivationSums {
    fn add_row(&mut self, matrix: usize, row: &[f32]) {
        let squares = &mut self.squares[matrix * row.len()..][..row.len()];
        for (sum, x) in squares.iter_mut().zip(row) {
            *sum += f64::from(*x) * f64::from(*x);
        }
        self.rows[matrix] += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.squares.iter_mut().zip(&other.squares).for_each(|(sum, x)| *sum += x);
        self.rows.iter_mut().zip(&other.rows).for_each(|(sum, x)| *sum += x);
    }
}
