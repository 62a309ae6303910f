//! A limit on how deep values lie in one another, for a codec that has none: a body of a few hundred kilobytes would else end the process, since
//! each level of a type that holds itself is a call, and stacks end.
//!
//! What is counted is what JSON and MessagePack count: sequences, maps, options, newtypes and variants.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::DEPTH_MAX;

/// Anything that values are read by, with as many levels as are left.
#[derive(Clone, Copy)]
pub(super) struct Nested<T> {
    inner: T,
    left: u32,
}

impl<T> Nested<T> {
    pub(super) const fn new(inner: T) -> Self {
        Self { inner, left: DEPTH_MAX }
    }

    /// One level below `self`, around something of it.
    fn below<U, E: Error>(left: u32, inner: U) -> Result<Nested<U>, E> {
        match left.checked_sub(1) {
            Some(left) => Ok(Nested { inner, left }),
            None => Err(E::custom(format_args!("values lie in one another deeper than {DEPTH_MAX} levels"))),
        }
    }
}

macro_rules! handed_on {
    ($($name:ident($($arg:ident: $of:ty),*);)*) => {
        $(fn $name<V: Visitor<'de>>(self, $($arg: $of,)* visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$name($($arg,)* Nested { inner: visitor, left: self.left })
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Nested<D> {
    type Error = D::Error;

    handed_on! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! seen {
    ($($name:ident: $of:ty,)*) => {
        $(fn $name<E: Error>(self, value: $of) -> Result<V::Value, E> {
            self.inner.$name(value)
        })*
    };
}

macro_rules! lower {
    ($($name:ident: $of:ident,)*) => {
        $(fn $name<A: $of<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
            self.inner.$name(Self::below(self.left, inner)?)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Nested<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    seen! {
        visit_bool: bool,
        visit_i8: i8,
        visit_i16: i16,
        visit_i32: i32,
        visit_i64: i64,
        visit_i128: i128,
        visit_u8: u8,
        visit_u16: u16,
        visit_u32: u32,
        visit_u64: u64,
        visit_u128: u128,
        visit_f32: f32,
        visit_f64: f64,
        visit_char: char,
        visit_str: &str,
        visit_borrowed_str: &'de str,
        visit_string: String,
        visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8],
        visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Self::below(self.left, inner)?)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Self::below(self.left, inner)?)
    }

    lower! {
        visit_seq: SeqAccess,
        visit_map: MapAccess,
        visit_enum: EnumAccess,
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nested<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Nested { inner, left: self.left })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Nested<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, inner: T) -> Result<Option<T::Value>, A::Error> {
        self.inner.next_element_seed(Nested { inner, left: self.left })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Nested<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, inner: K) -> Result<Option<K::Value>, A::Error> {
        self.inner.next_key_seed(Nested { inner, left: self.left })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, inner: T) -> Result<T::Value, A::Error> {
        self.inner.next_value_seed(Nested { inner, left: self.left })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Nested<A> {
    type Error = A::Error;
    type Variant = Nested<A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        let (value, inner) = self.inner.variant_seed(seed)?;
        Ok((value, Nested { inner, left: self.left }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Nested<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, inner: T) -> Result<T::Value, A::Error> {
        self.inner.newtype_variant_seed(Nested { inner, left: self.left })
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, inner: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Nested { inner, left: self.left })
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], inner: V) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Nested { inner, left: self.left })
    }
}
