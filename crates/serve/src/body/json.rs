//! JSON as requests have it: objects have no key twice, since readers would disagree about which of the values counts, and
//! `3.0` is an integer, as in JSON Schema.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// A value of JSON.
pub(crate) struct UniqueKeys(pub(crate) Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueKeys, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(UniqueKeys)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(UniqueKeys(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is given twice")));
            }
            let UniqueKeys(value) = fields.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// The largest integer up to which every integer is a float too.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads a type from a value. Integers may be written as floats without a fraction, as some clients write all numbers;
/// values that are kept as JSON stay as they are.
#[derive(Clone, Copy)]
pub(crate) struct Typed<'a>(pub(crate) &'a Value);

impl Typed<'_> {
    /// The integer that a float stands for.
    fn integer(self) -> Option<i64> {
        let float = self.0.as_f64().filter(|_| self.0.is_f64())?;
        (float.fract() == 0.0 && float.abs() <= MAX_EXACT).then_some(float as i64)
    }
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            match self.integer() {
                Some(integer) => visitor.visit_i64(integer),
                None => self.0.$method(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Typed<'de> {
    type Error = serde_json::Error;

    integers!(deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64);
    integers!(deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Array(items) => SeqDeserializer::new(items.iter().map(Typed)).deserialize_seq(visitor),
            _ => self.0.deserialize_seq(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (&name[..], Typed(value)));
                MapDeserializer::new(fields).deserialize_map(visitor)
            }
            _ => self.0.deserialize_map(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for Typed<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[test]
    fn values_are_those_of_serde_unless_a_key_comes_twice() {
        let text =
            r#"{"a": [null, true, -1, 18446744073709551615, 1.5e3, "\u00e9"], "b": {"a": {}}, "": ""}"#;
        let UniqueKeys(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        let error = serde_json::from_str::<UniqueKeys>(r#"{"a": [{"b": 1, "b": 1}]}"#).err().unwrap();
        assert_eq!(error.to_string(), "the key \"b\" is given twice at line 1 column 19");
    }

    #[test]
    fn floats_without_a_fraction_are_integers_of_typed_fields() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Fields {
            count: Option<u32>,
            tokens: Vec<u64>,
            biases: BTreeMap<String, i64>,
            kept: Value,
        }
        let read = |json: &str| {
            let value = serde_json::from_str(json).unwrap();
            Fields::deserialize(Typed(&value)).map_err(|error| error.to_string())
        };
        let given =
            r#"{"count": 3.0, "tokens": [1.0, 2, 1e3], "biases": {"a": -5.0}, "kept": {"b": [1.0, 2]}}"#;
        let kept = serde_json::json!({"b": [1.0, 2]});
        let biases = BTreeMap::from([("a".to_string(), -5)]);
        assert_eq!(read(given), Ok(Fields { count: Some(3), tokens: vec![1, 2, 1000], biases, kept }));
        let wrong = |count: &str| {
            let json = format!(r#"{{"count": {count}, "tokens": [], "biases": {{}}, "kept": null}}"#);
            read(&json).unwrap_err()
        };
        assert_eq!(wrong("3.5"), "invalid type: floating point `3.5`, expected u32");
        assert_eq!(wrong("-1.0"), "invalid value: integer `-1`, expected u32");
        assert_eq!(wrong("1e300"), "invalid type: floating point `1e+300`, expected u32");
        assert_eq!(wrong("\"3\""), "invalid type: string \"3\", expected u32");
    }
}
