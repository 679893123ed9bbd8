//! The parts of a picture in the prompt: the text around the rows of each tile.

use crate::chunk::{Grid, Piece, RowGroup};
use crate::config::{ProjectorSettings, TileText};
use crate::kind::ProjectorKind;
use crate::plan::TilePlan;

/// The pieces of a picture, `index` being its number in the prompt from 0 and `width` that of its
/// rows.
pub(crate) fn pieces(
    kind: &ProjectorKind,
    settings: &ProjectorSettings,
    plan: &TilePlan,
    width: usize,
    index: usize,
) -> Vec<Piece> {
    let mut list = Pieces { kind, settings, width, list: Vec::new() };
    let [before, after] = kind.around;
    let tiles = plan.tiles.as_ref();
    match kind.tile_text {
        TileText::MiniCpm => {
            list.text(&format!("<image_id>{index}</image_id><image>"));
            list.overview(plan);
            list.text("</image>");
            list.tiles(plan, |list, [x, y], [columns, rows]| {
                list.text("<slice>");
                list.tile(plan);
                list.text("</slice>");
                if x + 1 == columns && y + 1 < rows {
                    list.text("\n");
                }
            });
        }
        TileText::Lfm2 => {
            list.text(before);
            list.tiles(plan, |list, [x, y], _| {
                list.text(&format!("<|img_row_{}_col_{}|>", y + 1, x + 1));
                list.tile(plan);
            });
            if tiles.is_some() {
                list.text("<|img_thumbnail|>");
            }
            list.overview(plan);
            list.text(after);
        }
        TileText::Idefics3 => {
            const AROUND: &str = "<fake_token_around_image>";
            list.tiles(plan, |list, [x, y], [columns, _]| {
                list.text(&format!("{AROUND}<row_{}_col_{}>", y + 1, x + 1));
                list.tile(plan);
                if x + 1 == columns {
                    list.text("\n");
                }
            });
            list.text(&format!("\n{AROUND}<global-img>"));
            list.overview(plan);
            list.text(AROUND);
        }
        TileText::None => {
            list.text(before);
            list.tiles(plan, |list, _, _| list.tile(plan));
            list.overview(plan);
            list.text(after);
        }
    }
    list.list
}

struct Pieces<'a> {
    kind: &'a ProjectorKind,
    settings: &'a ProjectorSettings,
    width: usize,
    list: Vec<Piece>,
}

impl Pieces<'_> {
    fn text(&mut self, text: &str) {
        match self.list.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.list.push(Piece::Text(text.to_owned())),
        }
    }

    /// Calls `each` for every tile with its place and the size of the grid.
    fn tiles(&mut self, plan: &TilePlan, mut each: impl FnMut(&mut Self, [usize; 2], [usize; 2])) {
        let Some(tiles) = &plan.tiles else { return };
        let [columns, rows] = tiles.grid;
        for y in 0..rows {
            for x in 0..columns {
                each(self, [x, y], tiles.grid);
            }
        }
    }

    fn tile(&mut self, plan: &TilePlan) {
        if let Some(tiles) = &plan.tiles {
            self.rows(tiles.size);
        }
    }

    fn overview(&mut self, plan: &TilePlan) {
        if let Some(overview) = &plan.overview {
            self.rows(overview.size);
        }
    }

    fn rows(&mut self, size: [usize; 2]) {
        let (kind, merge) = (self.kind, self.settings.merge);
        let patches = self.settings.patches(size);
        let [columns, rows] = patches.map(|n| n / merge);
        self.list.push(Piece::Rows(RowGroup {
            rows: kind.rows.count(patches, merge),
            grid: kind.has_grid.then_some(Grid { columns, rows }),
            non_causal: (kind.non_causal)(self.width),
        }));
    }
}
