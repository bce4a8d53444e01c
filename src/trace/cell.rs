//! How one value of a row becomes a column and comes back.
//!
//! In: the Rust types of the row structs. Out: Arrow arrays of the types the schema promises, and values read from such arrays.
//! Floats must be finite on both ways; a null is only read where the field is an `Option`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::row::{ActivationCell, ActiveCell, ClaimCell, MatchCell, PassageCell, SeedCell, WeightCell};
use crate::gates::Decision;
use crate::generate::{Judgement, LlmStatus};

/// Why a column cannot be written or read: which column (dotted into structs) and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted name; empty until the caller that knows it fills it in.
    pub column: String,
    /// What is wrong, to stand after the column's name.
    pub text: String,
}

impl Problem {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { column: String::new(), text: text.into() }
    }

    /// The same problem, inside `name`.
    pub(super) fn inside(mut self, name: &str) -> Self {
        self.column = if self.column.is_empty() { name.into() } else { format!("{name}.{}", self.column) };
        self
    }

    fn wrong_type(expected: &DataType, found: &DataType) -> Self {
        Self::new(format!("is of type {}, not {}", type_name(found), type_name(expected)))
    }
}

/// A type with a column type of its own.
pub trait Cell: Sized {
    /// The Arrow type.
    fn data_type() -> DataType;
    /// One entry a cell; `None` is a null.
    fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem>;
    /// The inverse of [`Cell::encode`].
    fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem>;
}

/// A field of a row: a [`Cell`], or an `Option` of one where the column may be null.
pub trait Stored: Sized {
    /// Whether the column may hold nulls.
    const NULLABLE: bool;
    /// The Arrow type.
    fn data_type() -> DataType;
    /// The column of these values.
    fn encode(values: &[&Self]) -> Result<ArrayRef, Problem>;
    /// The values of a column.
    fn decode(array: &dyn Array) -> Result<Vec<Self>, Problem>;
    /// The values of a field that a file of an earlier program lacks; `None` where it must be there.
    fn absent(_entries: usize) -> Option<Vec<Self>> {
        None
    }

    /// The Arrow field under a name.
    fn field(name: &str) -> Field {
        Field::new(name, Self::data_type(), Self::NULLABLE)
    }
}

impl<T: Cell> Stored for T {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        T::data_type()
    }

    fn encode(values: &[&Self]) -> Result<ArrayRef, Problem> {
        T::encode(&values.iter().map(|v| Some(*v)).collect::<Vec<_>>())
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, Problem> {
        let cells = T::decode(array)?.into_iter().enumerate();
        cells.map(|(i, c)| c.ok_or_else(|| Problem::new(format!("is null at entry {i}")))).collect()
    }
}

impl<T: Cell> Stored for Option<T> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        T::data_type()
    }

    fn encode(values: &[&Self]) -> Result<ArrayRef, Problem> {
        T::encode(&values.iter().map(|v| v.as_ref()).collect::<Vec<_>>())
    }

    fn decode(array: &dyn Array) -> Result<Vec<Self>, Problem> {
        T::decode(array)
    }

    fn absent(entries: usize) -> Option<Vec<Self>> {
        Some(std::iter::repeat_with(|| None).take(entries).collect())
    }
}

/// The name of a type as the trace documentation writes it, for example `list<struct<entity: string, score: f32>>`.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => "string".into(),
        DataType::Boolean => "bool".into(),
        DataType::UInt32 => "u32".into(),
        DataType::UInt64 => "u64".into(),
        DataType::Float32 => "f32".into(),
        DataType::Float64 => "f64".into(),
        DataType::List(item) => format!("list<{}>", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|f| format!("{}: {}", f.name(), type_name(f.data_type()))).collect();
            format!("struct<{}>", fields.join(", "))
        }
        other => other.to_string(),
    }
}

macro_rules! primitive_cell {
    ($rust:ty, $arrow:ty, $data_type:expr, $check:expr) => {
        impl Cell for $rust {
            fn data_type() -> DataType {
                $data_type
            }

            fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem> {
                check_each(cells.iter().map(|c| c.copied()), $check)?;
                Ok(Arc::new(cells.iter().map(|c| c.copied()).collect::<PrimitiveArray<$arrow>>()))
            }

            fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem> {
                let values = array
                    .as_primitive_opt::<$arrow>()
                    .ok_or_else(|| Problem::wrong_type(&$data_type, array.data_type()))?;
                check_each(values.iter(), $check)?;
                Ok(values.iter().collect())
            }
        }
    };
}

primitive_cell!(u32, UInt32Type, DataType::UInt32, |_| true);
primitive_cell!(u64, UInt64Type, DataType::UInt64, |_| true);
primitive_cell!(f32, Float32Type, DataType::Float32, |x: f32| x.is_finite());
primitive_cell!(f64, Float64Type, DataType::Float64, |x: f64| x.is_finite());

fn check_each<T: Copy + std::fmt::Display>(
    values: impl Iterator<Item = Option<T>>,
    allowed: impl Fn(T) -> bool,
) -> Result<(), Problem> {
    match values.enumerate().find_map(|(i, v)| v.filter(|v| !allowed(*v)).map(|v| (i, v))) {
        Some((i, value)) => Err(Problem::new(format!("is {value} at entry {i}, which is not a finite number"))),
        None => Ok(()),
    }
}

impl Cell for bool {
    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem> {
        Ok(Arc::new(cells.iter().map(|c| c.copied()).collect::<BooleanArray>()))
    }

    fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem> {
        let values = array
            .as_boolean_opt()
            .ok_or_else(|| Problem::wrong_type(&<Self as Cell>::data_type(), array.data_type()))?;
        Ok(values.iter().collect())
    }
}

impl Cell for String {
    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem> {
        Ok(Arc::new(cells.iter().map(|c| c.map(String::as_str)).collect::<StringArray>()))
    }

    fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem> {
        Ok(strings(array)?.iter().map(|s| s.map(str::to_owned)).collect())
    }
}

fn strings(array: &dyn Array) -> Result<&StringArray, Problem> {
    array.as_string_opt::<i32>().ok_or_else(|| Problem::wrong_type(&DataType::Utf8, array.data_type()))
}

/// An enum whose `as_str` names are also its serde names.
macro_rules! name_cell {
    ($rust:ty) => {
        impl Cell for $rust {
            fn data_type() -> DataType {
                DataType::Utf8
            }

            fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem> {
                Ok(Arc::new(cells.iter().map(|c| c.map(|c| c.as_str())).collect::<StringArray>()))
            }

            fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem> {
                let parse = |name: &str| {
                    Self::deserialize(StrDeserializer::<ValueError>::new(name))
                        .map_err(|e| Problem::new(format!("holds an {e}")))
                };
                strings(array)?.iter().map(|name| name.map(parse).transpose()).collect()
            }
        }
    };
}

name_cell!(LlmStatus);
name_cell!(Judgement);
name_cell!(Decision);

/// A struct column, its fields in this order.
macro_rules! struct_cell {
    ($rust:ident { $($field:ident: $kind:ty),+ }) => {
        impl Cell for $rust {
            fn data_type() -> DataType {
                DataType::Struct(Fields::from(vec![$(<$kind as Stored>::field(stringify!($field))),+]))
            }

            fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem> {
                // Struct cells only occur inside lists, whose entries are never null.
                let cells: Vec<&Self> = cells.iter().flatten().copied().collect();
                let columns = vec![$(
                    <$kind as Stored>::encode(&cells.iter().map(|c| &c.$field).collect::<Vec<_>>())
                        .map_err(|p| p.inside(stringify!($field)))?
                ),+];
                let fields = Fields::from(vec![$(<$kind as Stored>::field(stringify!($field))),+]);
                StructArray::try_new_with_length(fields, columns, None, cells.len())
                    .map(|a| Arc::new(a) as ArrayRef)
                    .map_err(|e| Problem::new(format!("cannot be built: {e}")))
            }

            fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem> {
                let array = array
                    .as_struct_opt()
                    .ok_or_else(|| Problem::wrong_type(&<Self as Cell>::data_type(), array.data_type()))?;
                $(
                    let values = match array.column_by_name(stringify!($field)) {
                        Some(column) => <$kind as Stored>::decode(column),
                        None => <$kind as Stored>::absent(array.len()).ok_or_else(|| Problem::new("is missing")),
                    };
                    let mut $field = values.map_err(|p| p.inside(stringify!($field)))?.into_iter();
                )+
                let mut cells = Vec::with_capacity(array.len());
                while let ($(Some($field),)+) = ($($field.next(),)+) {
                    let present = array.is_valid(cells.len());
                    cells.push(present.then_some(Self { $($field),+ }));
                }
                Ok(cells)
            }
        }
    };
}

struct_cell!(SeedCell { entity: String, score: f32 });
struct_cell!(MatchCell { experience: u32, score: f32, cos_query: f32, cos_activation: f32, weight: f32 });
struct_cell!(PassageCell { passage: u32, score: f64 });
struct_cell!(ClaimCell {
    text: String,
    support: f32,
    passage: u32,
    evidence: String,
    contradiction: Option<f32>
});
struct_cell!(ActivationCell { entity: String, weight: f32 });
struct_cell!(ActiveCell { entity: String, score: f64, tier: u32 });
struct_cell!(WeightCell { entity: String, weight: f64 });

impl<T: Cell> Cell for Vec<T> {
    fn data_type() -> DataType {
        DataType::List(Arc::new(Field::new_list_field(T::data_type(), false)))
    }

    fn encode(cells: &[Option<&Self>]) -> Result<ArrayRef, Problem> {
        let items: Vec<Option<&T>> = cells.iter().flatten().flat_map(|list| list.iter().map(Some)).collect();
        let lengths = cells.iter().map(|c| c.map_or(0, Vec::len));
        let nulls = NullBuffer::from_iter(cells.iter().map(Option::is_some));
        ListArray::try_new(
            Arc::new(Field::new_list_field(T::data_type(), false)),
            OffsetBuffer::from_lengths(lengths),
            T::encode(&items)?,
            (nulls.null_count() > 0).then_some(nulls),
        )
        .map(|a| Arc::new(a) as ArrayRef)
        .map_err(|e| Problem::new(format!("cannot be built: {e}")))
    }

    fn decode(array: &dyn Array) -> Result<Vec<Option<Self>>, Problem> {
        let lists = array
            .as_list_opt::<i32>()
            .ok_or_else(|| Problem::wrong_type(&<Self as Cell>::data_type(), array.data_type()))?;
        let offsets: &ScalarBuffer<i32> = lists.offsets().inner();
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let mut items = <T as Stored>::decode(&lists.values().slice(first, last - first))?.into_iter();
        let lengths = lists.offsets().lengths();
        Ok(lengths
            .enumerate()
            .map(|(i, length)| {
                let list: Vec<T> = items.by_ref().take(length).collect();
                lists.is_valid(i).then_some(list)
            })
            .collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A file of a program that did not know the field yet reads as null there; a field that may not be null must be there.
    #[test]
    fn a_nullable_field_may_be_absent() {
        let claim = |contradiction| ClaimCell {
            text: "a".into(),
            support: 0.5,
            passage: 3,
            evidence: "b".into(),
            contradiction,
        };
        let whole = <ClaimCell as Cell>::encode(&[Some(&claim(Some(0.25)))]).unwrap();
        assert_eq!(<ClaimCell as Cell>::decode(&whole).unwrap(), [Some(claim(Some(0.25)))]);
        let without = |name: &str| {
            let (fields, columns, nulls) = whole.as_struct().clone().into_parts();
            let (fields, columns): (Vec<_>, Vec<_>) =
                fields.iter().cloned().zip(columns).filter(|(field, _)| field.name() != name).unzip();
            <ClaimCell as Cell>::decode(&StructArray::new(fields.into(), columns, nulls))
        };
        assert_eq!(without("contradiction").unwrap(), [Some(claim(None))]);
        let problem = without("support").unwrap_err();
        assert_eq!((problem.column.as_str(), problem.text.as_str()), ("support", "is missing"));
    }
}
