//! Configurations in files of any format that serde knows: the table's names and aliases, and no others.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{FIELDS, Field, PipelineConfig};

/// Fields without a value are left out, so that formats without a word for nothing can hold them.
impl Serialize for PipelineConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = FIELDS.iter().map(|field| (field.name, field.value(self)));
        let given: Vec<(&str, Value)> = values.filter(|(_, value)| !value.is_null()).collect();
        let mut map = serializer.serialize_map(Some(given.len()))?;
        given.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// What is left out has its default. A field may be given once, under one of its names.
impl<'de> Deserialize<'de> for PipelineConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PipelineConfig, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = PipelineConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PipelineConfig, A::Error> {
        let mut config = PipelineConfig::default();
        let mut given: Vec<&str> = Vec::new();
        while let Some(field) = map.next_key_seed(Name { given: &given })? {
            given.push(field.name);
            map.next_value_seed(Set { field, config: &mut config })?;
        }
        Ok(config)
    }
}

/// Reads the name of a field. A seed, so that errors are at the place of the name.
struct Name<'a> {
    given: &'a [&'static str],
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = &'static Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static Field, D::Error> {
        let name = String::deserialize(deserializer)?;
        let field = Field::find(&name).map_err(D::Error::custom)?;
        if self.given.contains(&field.name) {
            Err(D::Error::custom(format!("`{name}`: {} was given already", field.name)))
        } else {
            Ok(field)
        }
    }
}

/// Reads the value of a field.
struct Set<'a> {
    field: &'static Field,
    config: &'a mut PipelineConfig,
}

impl<'de> DeserializeSeed<'de> for Set<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let value = Value::deserialize(deserializer)?;
        let wrong = |expected| D::Error::custom(format!("{} is {value}: {expected}", self.field.name));
        self.field.set(self.config, &value).map_err(wrong)
    }
}
