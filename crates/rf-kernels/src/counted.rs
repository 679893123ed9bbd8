//! Matmuls on the shapes of published instruction counts, for `cargo xtask kernels --counts`.

use rf_quant::DType;

use crate::params::{
    Activations, Address, Launch, MAX_PROJECTIONS, MatmulDevice, MatmulParams, MatvecGluParams,
    MatvecParams, Projection, Weight,
};

/// The upper half of an address that the program which counts replaces; the lower half is an
/// offset.
const MARK: u64 = 0xb0ff_e000;

/// A kind of matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedMatmul {
    /// A matmul of one token.
    Decode,
    /// The gated unit of one token.
    GateAndUp,
    /// Eight tokens.
    EightColumns,
    /// 128 tokens.
    Prefill,
}

/// A launch, and the memory that its parameters refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedLaunch {
    /// Symbol of the kernel.
    pub kernel: &'static str,
    /// Workgroups in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a workgroup in x, y and z.
    pub block: [u32; 3],
    /// The struct that the kernel takes. Addresses are `0xb0ffe000` in the upper half, and an
    /// offset below [`arena_bytes`](Self::arena_bytes) in the lower one.
    pub params: Vec<u8>,
    /// Bytes of memory.
    pub arena_bytes: u64,
    /// Weights that the launch multiplies.
    pub num_weights: u32,
}

impl CountedMatmul {
    /// The launch for weights of a format on an architecture such as `gfx1100`.
    pub fn launch(self, dtype: DType, arch: &str) -> CountedLaunch {
        // With one compute unit the largest tile is selected, as for the matrices of a model on a
        // device.
        let device = MatmulDevice::new(1, arch);
        match self {
            Self::Decode => matvec(dtype, 1, device),
            Self::GateAndUp => gate_and_up(dtype, device),
            Self::EightColumns => matvec(dtype, 8, device),
            Self::Prefill => prefill(dtype, device),
        }
    }
}

fn matvec(dtype: DType, tokens: u32, device: MatmulDevice) -> CountedLaunch {
    let (rows, columns) = (256, 4096);
    let mut arena = Arena::default();
    let params = MatvecParams {
        projections: only(arena.projection(rows, columns, tokens)),
        x_q8: arena.activations(tokens, columns),
        num_projections: 1,
        columns,
        tokens,
        ..MatvecParams::default()
    }
    .with_waves(&[dtype], device);
    arena.launch(&params.launch(&[dtype], device), &params, rows * columns)
}

fn gate_and_up(dtype: DType, device: MatmulDevice) -> CountedLaunch {
    let (rows, columns) = (256, 4096);
    let mut arena = Arena::default();
    let params = MatvecGluParams {
        gate: arena.weight(rows, columns),
        up: arena.weight(rows, columns),
        x_q8: arena.activations(1, columns),
        out_q8: arena.activations(1, rows),
        rows,
        columns,
        tokens: 1,
        ..MatvecGluParams::default()
    }
    .with_waves(dtype, device);
    arena.launch(&params.launch(dtype, device), &params, 2 * rows * columns)
}

fn prefill(dtype: DType, device: MatmulDevice) -> CountedLaunch {
    let (rows, columns, tokens) = (128, 2048, 128);
    let mut arena = Arena::default();
    let params = MatmulParams {
        projections: only(arena.projection(rows, columns, tokens)),
        x_q8: arena.activations(tokens, columns),
        num_projections: 1,
        columns,
        tokens,
        ..MatmulParams::default()
    };
    arena.launch(&params.launch(dtype, device), &params, rows * columns)
}

fn only(projection: Projection) -> [Projection; MAX_PROJECTIONS] {
    let mut projections = [Projection::default(); MAX_PROJECTIONS];
    projections[0] = projection;
    projections
}

/// Assigns offsets in the memory of a launch.
#[derive(Default)]
struct Arena {
    bytes: u64,
}

impl Arena {
    fn place(&mut self, num_bytes: u32) -> Address {
        let offset = self.bytes;
        self.bytes += u64::from(num_bytes).next_multiple_of(4096);
        MARK << 32 | offset
    }

    /// A matrix. Each plane is large enough for every format, including the rows after the last
    /// one.
    fn weight(&mut self, rows: u32, columns: u32) -> Weight {
        const SPARE_ROWS: u32 = 8;
        let mut plane = || self.place((rows + SPARE_ROWS) * columns);
        Weight { low: plane(), high: plane(), scale: plane(), super_scale: plane() }
    }

    fn projection(&mut self, rows: u32, columns: u32, tokens: u32) -> Projection {
        let weight = self.weight(rows, columns);
        Projection { weight, out: self.place(4 * rows * tokens), rows, ..Projection::default() }
    }

    fn activations(&mut self, rows: u32, columns: u32) -> Activations {
        Activations { q: self.place(rows * columns), meta: self.place(rows * columns / 4) }
    }

    fn launch(
        self,
        launch: &Launch,
        params: &impl bytemuck::Pod,
        num_weights: u32,
    ) -> CountedLaunch {
        CountedLaunch {
            kernel: launch.kernel,
            grid: launch.grid,
            block: launch.block,
            params: bytemuck::bytes_of(params).to_vec(),
            arena_bytes: self.bytes,
            num_weights,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_offsets_within_the_arena() {
        for matmul in [
            CountedMatmul::Decode,
            CountedMatmul::GateAndUp,
            CountedMatmul::EightColumns,
            CountedMatmul::Prefill,
        ] {
            let launch = matmul.launch(DType::Q4K, "gfx1100");
            let words =
                launch.params.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let offsets: Vec<_> =
                words.filter(|word| word >> 32 == MARK).map(|word| word & 0xffff_ffff).collect();
            assert!(offsets.len() >= 7, "{}", launch.kernel);
            assert!(offsets.iter().all(|&offset| offset < launch.arena_bytes));
        }
    }
}
