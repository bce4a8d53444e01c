//! One JSON object of a dataset file, read field by field: values out, or an error that names file, record and field.

use serde_json::{Map, Value};

use super::source::{Layout, Source, type_name};
use crate::error::{Error, Result};

/// A borrowed JSON object that knows where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Record<'a> {
    place: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Record<'a> {
    /// Record `number` of `source`; an error when `value` is no object.
    pub(crate) fn new(source: &Source, number: usize, value: &'a Value) -> Result<Self> {
        let noun = if source.layout == Layout::JsonLines { "line" } else { "record" };
        let id = match value.get("id").or_else(|| value.get("_id")) {
            Some(Value::String(id)) => format!(" (id \"{id}\")"),
            _ => String::new(),
        };
        Self::at(format!("{}: {noun} {number}{id}", source.path.display()), value)
    }

    /// An object inside this record, called `what`.
    pub(crate) fn inner(&self, what: &str, value: &'a Value) -> Result<Self> {
        Self::at(format!("{}, {what}", self.place), value)
    }

    fn at(place: String, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self { place, fields }),
            other => Err(Error::request(format!("{place} is {} where an object belongs", type_name(other)))),
        }
    }

    /// An error about this record.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::request(format!("{} {what}", self.place))
    }

    /// The field, or `None` where it is not there.
    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field)
    }

    /// Whether the field is there.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// The first of `fields` that is there; an error names the first of them.
    pub(crate) fn require(&self, fields: &[&str]) -> Result<(&'a str, &'a Value)> {
        let found = fields.iter().find_map(|f| self.fields.get_key_value(*f)).map(|(k, v)| (k.as_str(), v));
        found.ok_or_else(|| {
            let names: Vec<String> = fields.iter().map(|f| format!("\"{f}\"")).collect();
            let present: Vec<&str> = self.fields.keys().map(String::as_str).collect();
            self.error(format!("has no field {}", names.join(" or ")))
                .with_hint(format!("its fields are {}", present.join(", ")))
        })
    }

    /// A string under one of `fields`.
    pub(crate) fn string(&self, fields: &[&str]) -> Result<&'a str> {
        let (field, value) = self.require(fields)?;
        value.as_str().ok_or_else(|| self.wrong(field, value, "a string"))
    }

    /// A string, or `None` where the field is missing or null.
    pub(crate) fn optional_string(&self, field: &str) -> Result<Option<&'a str>> {
        match self.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(self.wrong(field, other, "a string")),
        }
    }

    /// A list.
    pub(crate) fn list(&self, field: &str) -> Result<&'a [Value]> {
        let (field, value) = self.require(&[field])?;
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(field, value, "a list"))
    }

    /// Strings of a list, or of nothing where the field is missing or null.
    pub(crate) fn optional_strings(&self, field: &str) -> Result<Vec<String>> {
        match self.get(field) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(value) => self.strings(field, value),
        }
    }

    /// `value`, which stands under `field`, as a list of strings.
    pub(crate) fn strings(&self, field: &str, value: &Value) -> Result<Vec<String>> {
        let items = value.as_array().ok_or_else(|| self.wrong(field, value, "a list of strings"))?;
        items
            .iter()
            .map(|item| {
                item.as_str().map(str::to_owned).ok_or_else(|| {
                    self.error(format!("has {} in the list \"{field}\" where a string belongs", type_name(item)))
                })
            })
            .collect()
    }

    /// The error of a field of the wrong type.
    pub(crate) fn wrong(&self, field: &str, found: &Value, wanted: &str) -> Error {
        self.error(format!("has {} in \"{field}\" where {wanted} belongs", type_name(found)))
    }
}
