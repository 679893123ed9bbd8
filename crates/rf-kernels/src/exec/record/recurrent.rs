//! Ops with a recurrent state.

use rf_graph::{CausalConv, DeltaDecay, DeltaNet, SelectiveScan, StateSpace, WeightId};

use super::Recorder;
use crate::error::Error;
use crate::params::{
    CausalConvParams, MAX_CHANNELS, MAX_KEY_DIM, MAX_SCAN_DIM, MAX_TAPS, RecurrenceParams,
    RowMemory, ScanParams,
};

impl Recorder<'_> {
    /// Records [`Op::CausalConv`](rf_graph::Op::CausalConv).
    pub(super) fn causal_conv(&mut self, op: &CausalConv) -> Result<(), Error> {
        let taps = self.memory.weight_rows(op.filter);
        if taps > MAX_TAPS {
            return Err(Error::Unsupported { what: format!("a convolution of {taps} taps") });
        }
        let (batch, state) = self.memory.state(op.state);
        let params = CausalConvParams {
            batch,
            state,
            x: self.memory.address(op.x),
            filter: self.memory.vector(op.filter),
            bias: op.bias.map_or(0, |bias| self.memory.vector(bias)),
            out: self.memory.address(op.out),
            width: self.memory.width(op.x) as u32,
            taps: taps as u32,
            silu: u32::from(op.silu),
            reserved: 0,
        };
        self.launches.push(params.launch(self.memory.shape.longest_span), params);
        Ok(())
    }

    /// Records [`Op::DeltaNet`](rf_graph::Op::DeltaNet).
    pub(super) fn delta_net(&mut self, op: &DeltaNet) -> Result<(), Error> {
        let heads = op.heads;
        let bound = match op.form {
            DeltaDecay::Head | DeltaDecay::Channel => 0.0,
            DeltaDecay::BoundedChannel { bound } => bound,
        };
        let params = RecurrenceParams {
            x: self.memory.address(op.qkv),
            alpha: self.memory.address(op.alpha),
            beta: self.memory.address(op.beta),
            out: self.memory.address(op.out),
            columns: heads.qkv_width() as u32,
            keys: heads.key_width() as u32,
            values: 2 * heads.key_width() as u32,
            heads: heads.num_value_heads as u32,
            key_heads: heads.num_key_heads as u32,
            value_dim: heads.value_dim as u32,
            interleaved: u32::from(heads.interleaved),
            eps: op.eps,
            bound,
            ..self.recurrence(op.state, [op.decay, op.decay_bias], heads.key_dim)?
        };
        let launch = match op.form {
            DeltaDecay::Head => params.delta_net(),
            _ if heads.key_dim > MAX_CHANNELS => {
                let what = format!("a delta rule with decays of {} channels", heads.key_dim);
                return Err(Error::Unsupported { what });
            }
            DeltaDecay::Channel | DeltaDecay::BoundedChannel { .. } => params.channel_delta_net(),
        };
        self.launches.push(launch, params);
        Ok(())
    }

    /// Records [`Op::StateSpace`](rf_graph::Op::StateSpace).
    pub(super) fn state_space(&mut self, op: &StateSpace) -> Result<(), Error> {
        let heads = op.heads;
        let first_b = heads.inner_width();
        let params = RecurrenceParams {
            x: self.memory.address(op.xbc),
            alpha: self.memory.address(op.dt),
            skip: self.memory.vector(op.skip),
            out: self.memory.address(op.out),
            columns: heads.xbc_width() as u32,
            queries: (first_b + heads.num_groups * heads.state_dim) as u32,
            keys: first_b as u32,
            heads: heads.num_heads as u32,
            key_heads: heads.num_groups as u32,
            value_dim: heads.head_dim as u32,
            ..self.recurrence(op.state, [op.decay, op.dt_bias], heads.state_dim)?
        };
        self.launches.push(params.state_space(), params);
        Ok(())
    }

    /// Records [`Op::SelectiveScan`](rf_graph::Op::SelectiveScan).
    pub(super) fn selective_scan(&mut self, op: &SelectiveScan) -> Result<(), Error> {
        let state_dim = self.memory.width(op.b);
        if state_dim > MAX_SCAN_DIM {
            let what = format!("a selective scan with {state_dim} elements of state per channel");
            return Err(Error::Unsupported { what });
        }
        let (batch, state) = self.memory.state(op.state);
        let params = ScanParams {
            batch,
            state,
            x: self.memory.address(op.x),
            dt: self.memory.address(op.dt),
            b: self.memory.address(op.b),
            c: self.memory.address(op.c),
            decay: self.memory.vector(op.decay),
            skip: self.memory.vector(op.skip),
            out: self.memory.address(op.out),
            channels: self.memory.width(op.x) as u32,
            state_dim: state_dim as u32,
        };
        self.launches.push(params.launch(), params);
        Ok(())
    }

    /// The state and the decay of a recurrence; other fields are zero.
    fn recurrence(
        &self,
        state: usize,
        [decay, decay_bias]: [WeightId; 2],
        key_dim: usize,
    ) -> Result<RecurrenceParams, Error> {
        if key_dim > MAX_KEY_DIM {
            let what = format!("a recurrent state of {key_dim} rows per head");
            return Err(Error::Unsupported { what });
        }
        let (batch, state) = self.memory.state(state);
        Ok(RecurrenceParams {
            batch,
            state,
            decay: self.memory.vector(decay),
            decay_bias: self.memory.vector(decay_bias),
            key_dim: key_dim as u32,
            ..RecurrenceParams::default()
        })
    }
}
