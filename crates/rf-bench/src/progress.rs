//! The progress of a measurement.

/// The progress of a measurement, for the program that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementProgress<'a> {
    /// The current stage, such as `round 1/5`.
    pub stage: &'a str,
    /// Finished steps of the stage.
    pub done: usize,
    /// Steps of the stage.
    pub total: usize,
    /// The current step: the name of a benchmark or of a model.
    pub step: &'a str,
}
