//! Arguments of a call.

use std::sync::Arc;

use crate::error::Error;
use crate::value::Value;

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Arc<str>, Value)>,
}

impl Arguments {
    /// The values of the parameters `names` of `function`. Undefined without a value.
    pub(crate) fn bind<const N: usize>(
        self,
        function: &str,
        names: [&str; N],
    ) -> Result<[Value; N], Error> {
        let mut values = [const { Value::Undefined }; N];
        if self.positional.len() > N {
            let found = self.positional.len();
            return Err(Error::failed(format!("{function} takes {N} arguments, found {found}")));
        }
        for (slot, value) in values.iter_mut().zip(self.positional) {
            *slot = value;
        }
        for (name, value) in self.named {
            let Some(index) = names.iter().position(|known| **known == *name) else {
                return Err(Error::failed(format!("{function} has no argument `{name}`")));
            };
            values[index] = value;
        }
        Ok(values)
    }
}

/// A count or width.
pub(crate) fn size(value: &Value, default: usize) -> Result<usize, Error> {
    match value {
        Value::Undefined => Ok(default),
        _ => match value.as_int().map(usize::try_from) {
            Some(Ok(size)) => Ok(size),
            _ => Err(Error::failed("expected a number that is not negative")),
        },
    }
}

/// A text, which must be there.
pub(crate) fn text(value: &Value) -> Result<&Arc<str>, Error> {
    let wrong = || Error::failed(format!("expected a string, found {}", value.kind()));
    value.as_text().ok_or_else(wrong)
}

/// A text, or a default.
pub(crate) fn text_or(value: &Value, default: &str) -> Result<Arc<str>, Error> {
    match value {
        Value::Undefined | Value::None => Ok(default.into()),
        _ => text(value).cloned(),
    }
}
