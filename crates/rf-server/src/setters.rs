//! The methods that set the fields of options.

/// Defines a method for each named field, which sets it and returns the options. Fields that are
/// options themselves also take plain values, by `impl Into<Option<…>>`.
macro_rules! setters {
    ($($method:ident($field:ident: $type:ty);)+) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[must_use]
        pub fn $method(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )+};
}

pub(crate) use setters;
