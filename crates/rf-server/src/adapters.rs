//! Scales of adapters (LoRA) in requests, in the form of llama.cpp.

use rocmforge::AdapterScales;
use rocmforge::engine::Model;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;

/// The scale of an adapter.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(crate) struct AdapterScale {
    /// The place of the adapter on the command line, counted from 0.
    id: usize,
    /// 0 turns the adapter off, 1 is its strength as it was trained.
    scale: f32,
}

/// The scales of the adapters of a model. Those that the list leaves out are turned off.
pub(crate) fn scales(list: &[AdapterScale], model: &Model) -> Result<AdapterScales, ApiError> {
    let count = model.adapters().len();
    let mut scales = vec![0.0; count];
    for AdapterScale { id, scale } in list {
        let Some(place) = scales.get_mut(*id) else {
            let message =
                format!("there is no adapter with id {id}: the model was loaded with {count}");
            return Err(ApiError::field("lora", message));
        };
        *place = *scale;
    }
    let scales = AdapterScales::new(&scales);
    scales.check(count).map_err(|error| ApiError::field("lora", error))?;
    Ok(scales)
}
