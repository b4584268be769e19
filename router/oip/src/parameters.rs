//! Parameters of a request, a tensor or a response.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::SerializeMap,
};

pub const MAX_PARAMETERS: usize = 128;

/// A parameter's value, with the number kept as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    String(String),
    Int(i64),
    /// An integer above [`i64::MAX`].
    Uint(u64),
    /// A number with a fraction or an exponent. Always finite.
    Float(f64),
    Bool(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => write!(f, "{text:?}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Uint(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Bool(flag) => write!(f, "{flag}"),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Uint(number), Self::Int)
    }
}

/// Named values, in the order they were written, each name once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(Vec<(String, Value)>);

impl Parameters {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The value of `name`, if it is an integer of zero or more.
    pub fn get_u64(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::Uint(number) => Some(*number),
            Value::String(_) | Value::Float(_) | Value::Bool(_) => None,
        }
    }

    pub fn get_bool(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Float(_) => None,
        }
    }

    /// Sets `name`, in its old place if it had one.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::String(text) => serializer.serialize_str(text),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Uint(number) => serializer.serialize_u64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Bool(flag) => serializer.serialize_bool(*flag),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl Visitor<'_> for Scalar {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a parameter: a string, a number or a boolean")
            }

            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Value, E> {
                Ok(flag.into())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
                Ok(number.into())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
                Ok(number.into())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
                Ok(Value::Float(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
                Ok(text.into())
            }
        }

        deserializer.deserialize_any(Scalar)
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl<'de> Visitor<'de> for Named {
            type Value = Parameters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut parameters = Parameters::new();
                while let Some(name) = map.next_key::<String>()? {
                    if parameters.len() == MAX_PARAMETERS {
                        let problem = format!("more than {MAX_PARAMETERS} parameters");
                        return Err(de::Error::custom(problem));
                    }
                    if parameters.get(&name).is_some() {
                        return Err(de::Error::custom("a parameter is given twice"));
                    }
                    parameters.0.push((name, map.next_value()?));
                }
                Ok(parameters)
            }
        }

        deserializer.deserialize_map(Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Parameters, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        let text = r#"{"a":-1,"b":18446744073709551615,"c":0.1,"d":1.0,"e":9007199254740993}"#;
        let parameters = parse(text).unwrap();
        assert_eq!(parameters.get("b"), Some(&Value::Uint(u64::MAX)));
        assert_eq!(serde_json::to_string(&parameters).unwrap(), text);
    }

    #[test]
    fn a_getter_refuses_a_value_of_another_kind() {
        let parameters =
            parse(r#"{"s":"1","i":-1,"f":1.5,"b":true,"u":18446744073709551615}"#).unwrap();
        assert_eq!(parameters.get_u64("s"), None);
        assert_eq!(parameters.get_u64("f"), None);
        assert_eq!(parameters.get_u64("i"), None);
        assert_eq!(parameters.get_u64("u"), Some(u64::MAX));
        assert_eq!(parameters.get_bool("b"), Some(true));
        assert_eq!(parameters.get_bool("i"), None);
    }

    #[test]
    fn inserting_twice_keeps_the_place_and_the_last_value() {
        let mut parameters = parse(r#"{"a":1,"b":2}"#).unwrap();
        parameters.insert("a", 3_i64);
        assert_eq!(serde_json::to_string(&parameters).unwrap(), r#"{"a":3,"b":2}"#);
        assert_eq!(parameters.remove("a"), Some(Value::Int(3)));
        assert_eq!(parameters.remove("a"), None);
    }

    #[test]
    fn a_name_given_twice_is_refused() {
        assert!(parse(r#"{"a":1,"a":2}"#).unwrap_err().to_string().contains("given twice"));
    }

    #[test]
    fn neither_null_nor_a_list_is_a_parameter() {
        for text in [r#"{"a":null}"#, r#"{"a":[1]}"#, r#"{"a":{}}"#] {
            let problem = parse(text).unwrap_err().to_string();
            assert!(problem.contains("a string, a number or a boolean"), "{problem}");
        }
    }

    #[test]
    fn the_count_of_parameters_is_bounded() {
        let of = |count: usize| {
            let entries: Vec<String> = (0..count).map(|n| format!("\"p{n}\":0")).collect();
            parse(&format!("{{{}}}", entries.join(",")))
        };
        assert_eq!(of(MAX_PARAMETERS).unwrap().len(), MAX_PARAMETERS);
        assert!(of(MAX_PARAMETERS + 1).is_err());
    }
}
