//! The reasons for which metadata cannot be changed.

/// The reason for which a key cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditProblem {
    /// The file does not have the key.
    #[error("the file does not have it")]
    Missing,
    /// A key would get the name of another one.
    #[error("the file has '{}' already", name.escape_debug())]
    NameTaken {
        /// The new name.
        name: String,
    },
    /// The file does not have the key, and no type is given.
    #[error("the file does not have it, so its type is needed, as in u32:5 or string:text")]
    NoType,
    /// The text is no value of the type.
    #[error("{expected} is expected, and '{}' is none", text.escape_debug())]
    WrongValue {
        /// The type in words.
        expected: String,
        /// The text.
        text: String,
    },
    /// An array of arrays, for which there is no text.
    #[error("arrays of arrays can only be removed")]
    Nested,
    /// The keys of the parts of a model.
    #[error("it counts the parts of a split model, and changes with them only")]
    OfParts,
}
