//! Embeddings, and the rows of pictures that take their place.

use rf_graph::{Op, RowNorm, ValueId, WeightId};

use super::Recorder;
use crate::exec::media::MediaPlaces;
use crate::params::{
    Address, EmbedParams, LoadRowsParams, PairParams, RowMemory as _, embed_rms_norm_threads,
    record_row_op,
};

impl Recorder<'_> {
    /// Records [`Op::AddMedia`]: a copy, and a sum for the rows of each picture.
    pub(super) fn add_media(&mut self, op: &Op, part: usize, out: ValueId) {
        record_row_op(op, &self.memory, &mut self.launches);
        for rows in self.memory.media.part(part) {
            let to = self.row_address(out, rows.first_token);
            let params = PairParams { a: to, b: rows.from, out: to, count: rows.floats as u64 };
            self.launches.push(params.add(), params);
        }
    }

    /// The address of a row of a value.
    fn row_address(&self, id: ValueId, row: usize) -> Address {
        self.memory.address(id) + (4 * row * self.memory.width(id)) as Address
    }

    /// Records [`Op::Embed`] with its fused norm, if any. Rows of pictures replace those of tokens
    /// before the norm.
    pub(super) fn embed(
        &mut self,
        (table, scale): (WeightId, f32),
        media: MediaPlaces<'_>,
        norm: Option<&RowNorm>,
        out: ValueId,
    ) {
        let place = *self.memory.weight(table);
        let columns = self.memory.width(out) as u32;
        let params = EmbedParams {
            table: place.planes,
            ids: self.memory.batch().ids,
            x: self.memory.address(out),
            scale,
            columns,
            rows: self.memory.rows(out) as u32,
            last_id: place.rows as u32 - 1,
            ..EmbedParams::default()
        };
        match norm {
            Some(norm) if columns.is_multiple_of(4) && media.is_empty() => {
                let params = EmbedParams {
                    norm: self.memory.vector(norm.weight),
                    out: self.memory.output(norm.out),
                    eps: norm.eps,
                    threads: embed_rms_norm_threads(columns),
                    ..params
                };
                self.launches.push(params.embed_rms_norm(place.dtype), params);
            }
            norm => {
                self.launches.push(params.embed(place.dtype), params);
                for rows in media.part(0) {
                    let to = self.row_address(out, rows.first_token);
                    let pairs = rows.floats as u32 / 2;
                    let params = LoadRowsParams { from: rows.from, to, pairs, reserved: 0 };
                    self.launches.push(params.launch(), params);
                }
                if let Some(norm) = norm {
                    self.row_norm(out, norm);
                }
            }
        }
    }

    /// Records [`Op::EmbedPosition`]: an embedding whose ids are the positions.
    pub(super) fn embed_position(&mut self, table: WeightId, out: ValueId) {
        let place = *self.memory.weight(table);
        let params = EmbedParams {
            table: place.planes,
            ids: self.memory.positions(),
            x: self.memory.address(out),
            scale: 1.0,
            columns: self.memory.width(out) as u32,
            rows: self.memory.rows(out) as u32,
            last_id: place.rows as u32 - 1,
            ..EmbedParams::default()
        };
        self.launches.push(params.embed(place.dtype), params);
    }
}
