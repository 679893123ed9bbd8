//! Matrix products: which kernel for which format and how many rows.

use rf_graph::{DType, MatMul, Op, Prologue, ValueId, WeightId};
use rf_quant::Family;

use super::{Ready, Recorder, activation_number};
use crate::error::Error;
use crate::params::{
    Activations, CombineExpertsParams, MatmulParams, MatvecGluParams, MatvecParams, NormIn,
    NormOut, Operand, Projection, QuantizeParams, RouteParams,
};

/// Rows up to which a product is a matrix-vector one.
const MATVEC_ROWS: usize = 8;

/// Projections that one launch takes.
const MAX_PROJECTIONS: usize = 3;

/// Whether products of a format read activations in f32.
pub(super) fn is_float(dtype: DType) -> bool {
    dtype.is_float()
}

/// Formats that one launch with projections of several formats supports.
fn mixes(dtype: DType) -> bool {
    matches!(dtype.family(), Family::Block32 | Family::KQuant)
}

/// A projection with the format that decides on its kernel.
#[derive(Clone, Copy)]
struct Product {
    dtype: DType,
    params: Projection,
}

impl Recorder<'_> {
    /// [`Op::MatMul`].
    pub(super) fn matmul(&mut self, m: &MatMul) -> Result<(), Error> {
        let products: Vec<Product> = m
            .projections
            .iter()
            .map(|p| {
                let place = self.exec.weights.place(p.weight);
                let params = Projection {
                    weight: place.planes,
                    bias: p.bias.map_or(0, |bias| self.exec.weights.vector(bias)),
                    out: self.at(p.out),
                    rows: place.rows as u32,
                    format: place.dtype.number(),
                };
                Product { dtype: place.dtype, params }
            })
            .collect();
        let wants = self.wants(m);
        let (operand, norm_in) = self.operand(&m.prologue, wants)?;
        let x = m.prologue.inputs()[0];
        let (rows, columns) = (self.rows(x), self.width(x));
        if rows == 0 {
            return Ok(());
        }
        if rows == 1
            && let Some(reader) = self.exec.facts.glu_of[self.op]
        {
            return self.gate_and_up(&products, operand, norm_in, reader, columns);
        }
        let residual = m.residual.map_or(0, |residual| self.at(residual));
        for group in groups(&products, rows) {
            let mut projections = [Projection::default(); MAX_PROJECTIONS];
            for (slot, product) in projections.iter_mut().zip(&group) {
                *slot = product.params;
            }
            let num_projections = group.len() as u32;
            let (tokens, columns) = (rows as u32, columns as u32);
            if rows <= MATVEC_ROWS {
                let params = MatvecParams {
                    projections,
                    x_q8: operand.q8,
                    x_f32: operand.f32,
                    residual,
                    norm_in,
                    norm_out: self.norm_out(rows),
                    num_projections,
                    columns,
                    tokens,
                    ..MatvecParams::default()
                }
                .with_waves();
                self.push(
                    params.launch(&group.iter().map(|p| p.dtype).collect::<Vec<_>>()),
                    params,
                )?;
            } else {
                let params = MatmulParams {
                    projections,
                    x_q8: operand.q8,
                    x_f32: operand.f32,
                    residual,
                    num_projections,
                    columns,
                    tokens,
                    reserved: 0,
                };
                self.push(params.launch(group[0].dtype, self.exec.facts.matmul_device), params)?;
            }
        }
        Ok(())
    }

    /// What the product of one token that is being recorded does of the norm behind it.
    fn norm_out(&mut self, rows: usize) -> NormOut {
        let Some(norm) = self.exec.facts.norm_behind[self.op].filter(|_| rows == 1) else {
            return NormOut::default();
        };
        let q8 = self.next_q8();
        let squares = self.exec.work.squares.address();
        let count = (self.exec.graph.weight_columns(norm.weight) / 32) as u32;
        self.ready = Some(Ready {
            reader: self.op + 1,
            operand: Operand { q8, f32: 0 },
            norm: NormIn { squares, count, eps: norm.eps },
        });
        NormOut { weight: self.exec.weights.vector(norm.weight), out: q8, squares }
    }

    /// Gate and up of one token with the activation and the quantisation behind them.
    fn gate_and_up(
        &mut self,
        products: &[Product],
        x: Operand,
        norm_in: NormIn,
        reader: usize,
        columns: usize,
    ) -> Result<(), Error> {
        let Op::MatMul(down @ MatMul { prologue: Prologue::Glu { activation, .. }, .. }) =
            &self.exec.graph.ops()[reader]
        else {
            return Ok(());
        };
        let out = self.room_for(self.wants(down));
        let params = MatvecGluParams {
            gate: products[0].params.weight,
            up: products[1].params.weight,
            x_q8: x.q8,
            x_f32: x.f32,
            out_f32: out.f32,
            out_q8: out.q8,
            norm_in,
            rows: products[0].params.rows,
            columns: columns as u32,
            tokens: 1,
            activation: activation_number(*activation),
        };
        self.push(params.launch(products[0].dtype), params)?;
        self.ready = Some(Ready { reader, operand: out, norm: NormIn::default() });
        Ok(())
    }

    /// [`Op::ExpertMatMul`]: every slot of every token is a matrix-vector product.
    pub(super) fn expert_matmul(
        &mut self,
        x: ValueId,
        route: ValueId,
        weights: &[WeightId],
        out: ValueId,
    ) -> Result<(), Error> {
        let used = self.width(route) / 2;
        let first = *self.exec.weights.place(weights[0]);
        let columns = self.exec.graph.weight_columns(weights[0]);
        let (tokens, width) = (self.rows(x), self.width(x));
        let shared_x = width == columns;
        let x_rows = if shared_x { tokens } else { tokens * used };
        let mut operand = Operand { q8: Activations::default(), f32: self.at(x) };
        if !is_float(first.dtype) {
            operand.q8 = self.next_q8();
            let params = QuantizeParams {
                x: operand.f32,
                out: Operand { q8: operand.q8, f32: 0 },
                columns: columns as u32,
                rows: x_rows as u32,
            };
            self.push(params.launch(), params)?;
        }
        let projection = Projection {
            weight: first.planes,
            bias: 0,
            out: self.at(out),
            rows: first.rows as u32,
            format: first.dtype.number(),
        };
        let params = MatvecParams {
            projections: [projection, Projection::default(), Projection::default()],
            x_q8: operand.q8,
            x_f32: operand.f32,
            residual: 0,
            route: self.at(route),
            norm_in: NormIn::default(),
            norm_out: NormOut::default(),
            num_projections: 1,
            columns: columns as u32,
            tokens: tokens as u32,
            used: used as u32,
            shared_x: u32::from(shared_x),
            waves: 0,
        }
        .with_waves();
        self.push(params.launch(&[first.dtype]), params)
    }

    /// [`Op::Route`].
    pub(super) fn route(
        &mut self,
        logits: ValueId,
        used: usize,
        out: ValueId,
    ) -> Result<(), Error> {
        let params = RouteParams {
            logits: self.at(logits),
            out: self.at(out),
            experts: self.width(logits) as u32,
            used: used as u32,
            tokens: self.rows(logits) as u32,
            reserved: 0,
        };
        self.push(params.launch(), params)
    }

    /// [`Op::CombineExperts`].
    pub(super) fn combine_experts(
        &mut self,
        x: ValueId,
        route: ValueId,
        out: ValueId,
    ) -> Result<(), Error> {
        let params = CombineExpertsParams {
            x: self.at(x),
            route: self.at(route),
            out: self.at(out),
            columns: self.width(out) as u32,
            used: (self.width(route) / 2) as u32,
            tokens: self.rows(out) as u32,
            reserved: 0,
        };
        self.push(params.launch(), params)
    }
}

/// Projections by launch: those of one format together, for one row also those whose formats mix.
fn groups(products: &[Product], rows: usize) -> Vec<Vec<Product>> {
    let mut groups: Vec<Vec<Product>> = Vec::new();
    for product in products {
        let joins = |group: &&mut Vec<Product>| {
            let first = group[0].dtype;
            group.len() < MAX_PROJECTIONS
                && (first == product.dtype || (rows == 1 && mixes(first) && mixes(product.dtype)))
        };
        match groups.iter_mut().find(joins) {
            Some(group) => group.push(*product),
            None => groups.push(vec![*product]),
        }
    }
    groups
}
